// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random numbers as pure functions of (seed, purpose, counters): the same on every machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

namespace lockstep {

/// The use of a random stream. It is part of the key, so that two purposes never share numbers.
enum class Purpose : std::uint64_t {
    initial_weights = 1,
    block_order = 2,
    window_order = 3,
    leaf_generator = 4,
    augmentation = 5,
    pack_order = 6,
    compression = 7,
    sampling = 8,
    synthetic_data = 12,
    test = 99,
};

/// Philox4x32-10. Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
/// SC'11, https://doi.org/10.1145/2063384.2063405
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA'14): a bijection on 64 bits.
std::uint64_t mix64(std::uint64_t value);

/// Combines words into one 64-bit key; their order matters: key_of({seed, purpose, epoch, sample}).
std::uint64_t key_of(std::initializer_list<std::uint64_t> words);

/// A stream of random numbers; the n-th value depends on (key, n) only. Cheap to make and copy.
class CounterRandom {
  public:
    /// Begins the stream whose key consists of these words, in this order.
    CounterRandom(Purpose purpose, std::initializer_list<std::uint64_t> words);

    std::uint64_t next();  ///< 64 random bits

    /// Fills `words` with the next values; many at once cost half as much each.
    void next(std::span<std::uint64_t> words);

    /// Returns a uniform number in [0, n), n >= 1, without bias (Lemire,
    /// https://doi.org/10.1145/3230636).
    std::uint64_t below(std::uint64_t n);

    /// Fills `numbers` with the results of below(n), below(n - 1), ...; it holds at most n.
    void below_falling(std::uint64_t n, std::span<std::uint64_t> numbers);

    /// Returns a uniform number in [0, 1) with 53 bits.
    double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  private:
    std::uint64_t key_, counter_ = 0;
    std::array<std::uint64_t, 2> block_{};
};

/// Shuffles by Fisher-Yates; the permutation depends on the stream and the length only.
template <class T>
void shuffle(std::span<T> values, CounterRandom random) {
    std::array<std::uint64_t, 64> places;
    while (values.size() > 1) {
        const auto some = std::span(places).first(std::min(places.size(), values.size() - 1));
        random.below_falling(values.size(), some);
        for (const std::uint64_t place : some) {
            std::swap(values.back(), values[place]);
            values = values.first(values.size() - 1);
        }
    }
}

}  // namespace lockstep
