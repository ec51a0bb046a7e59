// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/random.hpp"

#include "philox_blocks.hpp"

#include <tuple>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

constexpr std::size_t count = philox_blocks_at_once;

PhiloxWords baseline_blocks(std::uint64_t first, std::uint64_t key) {
    std::array<std::uint32_t, count> a, b, c{}, d{};
    for (std::size_t i = 0; i < count; ++i) {
        a[i] = static_cast<std::uint32_t>(first + i);
        b[i] = static_cast<std::uint32_t>((first + i) >> 32);
    }
    auto key_0 = static_cast<std::uint32_t>(key), key_1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint64_t product_0 = philox_multiplier_0 * a[i];
            const std::uint64_t product_1 = philox_multiplier_1 * c[i];
            a[i] = static_cast<std::uint32_t>(product_1 >> 32) ^ b[i] ^ key_0;
            b[i] = static_cast<std::uint32_t>(product_1);
            c[i] = static_cast<std::uint32_t>(product_0 >> 32) ^ d[i] ^ key_1;
            d[i] = static_cast<std::uint32_t>(product_0);
        }
        key_0 += philox_weyl_0;
        key_1 += philox_weyl_1;
    }
    PhiloxWords words;
    for (std::size_t i = 0; i < count; ++i) {
        words[2 * i] = a[i] | std::uint64_t{b[i]} << 32;
        words[2 * i + 1] = c[i] | std::uint64_t{d[i]} << 32;
    }
    return words;
}

#if defined(__x86_64__)
constexpr std::size_t lanes = 4, vectors = count / lanes;

/// Each word of a counter in the low half of 64 bits. What is in the high half does not matter: it
/// is not multiplied.
struct WideCounters {
    __m256i a[vectors], b[vectors], c[vectors], d[vectors];
};

[[gnu::target("avx2")]] __m256i words_of(__m256i low, __m256i high) {
    return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0b10101010);
}

[[gnu::target("avx2")]] void run_round(WideCounters& at, std::uint32_t key_0, std::uint32_t key_1) {
    const __m256i multiplier_0 = _mm256_set1_epi64x(philox_multiplier_0);
    const __m256i multiplier_1 = _mm256_set1_epi64x(philox_multiplier_1);
    const __m256i mask_0 = _mm256_set1_epi64x(key_0), mask_1 = _mm256_set1_epi64x(key_1);
    for (std::size_t i = 0; i < vectors; ++i) {
        const __m256i product_0 = _mm256_mul_epu32(at.a[i], multiplier_0);
        const __m256i product_1 = _mm256_mul_epu32(at.c[i], multiplier_1);
        const __m256i high_0 = _mm256_srli_epi64(product_0, 32);
        const __m256i high_1 = _mm256_srli_epi64(product_1, 32);
        at.a[i] = _mm256_xor_si256(_mm256_xor_si256(high_1, at.b[i]), mask_0);
        at.b[i] = product_1;
        at.c[i] = _mm256_xor_si256(_mm256_xor_si256(high_0, at.d[i]), mask_1);
        at.d[i] = product_0;
    }
}

[[gnu::target("avx2")]] PhiloxWords avx2_blocks(std::uint64_t first, std::uint64_t key) {
    WideCounters at;
    for (std::size_t i = 0; i < vectors; ++i) {
        const auto number = static_cast<std::int64_t>(first + i * lanes);
        at.a[i] = _mm256_add_epi64(_mm256_set1_epi64x(number), _mm256_set_epi64x(3, 2, 1, 0));
        at.b[i] = _mm256_srli_epi64(at.a[i], 32);
        at.c[i] = at.d[i] = _mm256_setzero_si256();
    }
    auto key_0 = static_cast<std::uint32_t>(key), key_1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        run_round(at, key_0, key_1);
        key_0 += philox_weyl_0;
        key_1 += philox_weyl_1;
    }
    PhiloxWords words;
    for (std::size_t i = 0; i < vectors; ++i) {
        const __m256i front = words_of(at.a[i], at.b[i]), back = words_of(at.c[i], at.d[i]);
        const __m256i even = _mm256_unpacklo_epi64(front, back);
        const __m256i odd = _mm256_unpackhi_epi64(front, back);
        auto* const to = reinterpret_cast<__m256i*>(words.data() + 2 * lanes * i);
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }
    return words;
}
#endif

std::uint32_t high(std::uint64_t value) {
    return static_cast<std::uint32_t>(value >> 32);
}
std::uint32_t low(std::uint64_t value) {
    return static_cast<std::uint32_t>(value);
}

// Makes a word a number below n; false for the few words that would make some numbers likelier.
bool scale_below(std::uint64_t n, std::uint64_t& word) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{word} * n;
    const auto rest = static_cast<std::uint64_t>(product);
    if (rest < n && rest < (0 - n) % n) return false;
    word = static_cast<std::uint64_t>(product >> 64);
    return true;
}

}  // namespace

std::span<const PhiloxBlocks> philox_blocks() {
    static constexpr std::array blocks = {
        &baseline_blocks,
#if defined(__x86_64__)
        &avx2_blocks,
#endif
    };
#if defined(__x86_64__)
    return std::span(blocks).first(__builtin_cpu_supports("avx2") ? 2 : 1);
#else
    return blocks;
#endif
}

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product_0 = philox_multiplier_0 * counter[0];
        const std::uint64_t product_1 = philox_multiplier_1 * counter[2];
        counter = {high(product_1) ^ counter[1] ^ key[0],
                   low(product_1),
                   high(product_0) ^ counter[3] ^ key[1],
                   low(product_0)};
        key = {key[0] + philox_weyl_0, key[1] + philox_weyl_1};
    }
    return counter;
}

std::uint64_t mix64(std::uint64_t value) {
    value += 0x9E3779B97F4A7C15;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
}

std::uint64_t key_of(std::initializer_list<std::uint64_t> words) {
    std::uint64_t key = 0x243F6A8885A308D3;  // the first digits of pi: nothing up the sleeve
    for (const std::uint64_t word : words) key = mix64(key ^ mix64(word));
    return key;
}

CounterRandom::CounterRandom(Purpose purpose, std::initializer_list<std::uint64_t> words)
    : key_(mix64(key_of(words) ^ mix64(static_cast<std::uint64_t>(purpose)))) {}

std::uint64_t CounterRandom::next() {
    if (counter_ % 2 == 0) {
        const std::uint64_t block = counter_ / 2;
        const auto words = philox4x32({low(block), high(block), 0, 0}, {low(key_), high(key_)});
        block_ = {words[0] | std::uint64_t{words[1]} << 32,
                  words[2] | std::uint64_t{words[3]} << 32};
    }
    return block_[counter_++ % 2];
}

void CounterRandom::next(std::span<std::uint64_t> words) {
    constexpr std::size_t many = std::tuple_size_v<PhiloxWords>;
    while (!words.empty()) {
        if (counter_ % 2 != 0 || words.size() < many) {
            words.front() = next();
            words = words.subspan(1);
        } else {
            std::ranges::copy(philox_blocks().back()(counter_ / 2, key_), words.begin());
            words = words.subspan(many);
            counter_ += many;
        }
    }
}

std::uint64_t CounterRandom::below(std::uint64_t n) {
    std::uint64_t number = next();
    while (!scale_below(n, number)) number = next();
    return number;
}

void CounterRandom::below_falling(std::uint64_t n, std::span<std::uint64_t> numbers) {
    next(numbers);
    for (std::size_t i = 0; i < numbers.size();) {
        if (scale_below(n - i, numbers[i])) {
            ++i;
        } else {
            std::shift_left(numbers.begin() + static_cast<std::ptrdiff_t>(i), numbers.end(), 1);
            numbers.back() = next();
        }
    }
}

}  // namespace lockstep
