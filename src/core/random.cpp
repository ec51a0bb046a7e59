// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/random.hpp"

#include "philox_blocks.hpp"

#include <tuple>

namespace lockstep {
namespace {

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
