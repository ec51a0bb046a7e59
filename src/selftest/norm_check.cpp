// SPDX-License-Identifier: Apache-2.0
#include "norm_check.hpp"

#include "lockstep/comm/exact_words.hpp"
#include "lockstep/core/random.hpp"

#include "kernel_gpu.hpp"

#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

/// Of all exponents, infinities and NaN left out.
std::vector<float> any_floats(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = static_cast<std::uint32_t>(mix64(i));
        const std::uint32_t exponent = (bits >> 23 & 0xff) % 0xff;
        values[i] = std::bit_cast<float>((bits & 0x807fffffU) | exponent << 23);
    }
    return values;
}

using Words = std::vector<std::int64_t>;

/// In two launches that add to the same words.
Words words_on(const KernelGpu& gpu, std::span<const float> values) {
    const Words zeros(exact::words);
    const DeviceMemory floats = gpu.copy_of(values);
    const DeviceMemory words = gpu.copy_of(std::span<const std::int64_t>(zeros));
    const auto count = static_cast<std::int64_t>(values.size()), cut = count / 3;
    for (const exact::SquaresLaunch& launch :
         {exact::SquaresLaunch{floats.as<float>(), cut, words.as<std::int64_t>()},
          exact::SquaresLaunch{floats.as<float>() + cut, count - cut, words.as<std::int64_t>()}})
        gpu.run<exact::SquaresEntryPoint>(exact::squares_entry_point, &launch);
    Words found = gpu.values<std::int64_t>(words, exact::words);
    exact::carry(found.data());
    return found;
}

// By words: ExactSum itself comes with MPI.
void check_sum(const KernelGpu& gpu, std::span<const float> values) {
    Words expected(exact::words);
    for (const float value : values) {
        exact::add_square(expected.data(), value);
        exact::carry(expected.data());
    }
    check(words_on(gpu, values) == expected, [&] {
        return Error("E679",
                     fmt::format("the squares of {} floats have another sum on the GPU than on "
                                 "the CPU",
                                 values.size()),
                     "both run one source and must give the same bits",
                     "please report it with the GPU's name and driver");
    });
}

}  // namespace

std::string check_norms() {
    const KernelGpu gpu;
    int done = 0;
    for (const std::size_t count : {1UL, 1000UL, 1UL << 20, (1UL << 24) + 7}) {
        std::vector<float> values = any_floats(count);
        check_sum(gpu, values);
        values[count / 2] = std::numeric_limits<float>::infinity();
        check_sum(gpu, values);
        done += 2;
    }
    return fmt::format("{} sums of squares, the bits of the CPU", done);
}

}  // namespace lockstep
