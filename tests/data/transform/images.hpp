// SPDX-License-Identifier: Apache-2.0
// Made-up images for tests of transforms.
#pragma once

#include "lockstep/core/hash.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/transform.hpp"

#include "transform/kernel_body.hpp"

#include <functional>
#include <numeric>
#include <vector>

namespace lockstep::test {

struct Images {
    ImageShape shape;
    std::vector<std::uint8_t> bytes;  ///< [n, C, H, W]
    std::vector<std::uint64_t> ids;

    std::span<const std::uint8_t> of(std::size_t first, std::size_t count) const {
        return std::span(bytes).subspan(first * shape.values(), count * shape.values());
    }
};

inline Images noise(const ImageShape& shape, std::size_t count) {
    Images images{shape, std::vector<std::uint8_t>(count * shape.values()), {}};
    CounterRandom random(Purpose::test, {shape.values(), count});
    for (std::uint8_t& byte : images.bytes) byte = static_cast<std::uint8_t>(random.below(256));
    images.ids.resize(count);
    std::iota(images.ids.begin(), images.ids.end(), 1000u);
    return images;
}

inline const std::vector<double> three_means = {0.4914, 0.4822, 0.4465};
inline const std::vector<double> three_stds = {0.2470, 0.2435, 0.2616};

inline ImageTransform bound(std::string_view text, const ImageShape& shape) {
    return {TransformPipeline::parse(text), shape, three_means, three_stds};
}

inline std::vector<float> applied(const ImageTransform& transform,
                                  const Images& images,
                                  TransformKey key = {7, 3},
                                  PixelLayout layout = PixelLayout::nchw,
                                  int threads = 1) {
    std::vector<float> out(images.ids.size() * transform.output().values());
    transform.apply(images.bytes, images.ids, key, layout, out, threads);
    return out;
}

inline std::vector<float> applied(std::string_view text,
                                  const Images& images,
                                  TransformKey key = {7, 3},
                                  PixelLayout layout = PixelLayout::nchw,
                                  int threads = 1) {
    return applied(bound(text, images.shape), images, key, layout, threads);
}

/// Every block and thread of a grid, in an order that no GPU promises.
inline void for_each_thread(std::int64_t elements,
                            const std::function<void(std::int64_t, int)>& run) {
    for (std::int64_t block = blocks_for(elements); block-- > 0;)
        for (int thread = threads_of_block; thread-- > 0;) run(block, thread);
}

inline void run_on_host(const StageLaunch& launch) {
    const std::int64_t blocks = blocks_for(pixel::elements_of(launch));
    for_each_thread(pixel::elements_of(launch), [&](std::int64_t block, int thread) {
        pixel::stage_thread(launch, block, thread, blocks, threads_of_block);
    });
}

/// Of `batch`, which has the bytes or floats alone, by the kernels' own source.
inline std::vector<float> by_kernels(const ImageTransform& transform,
                                     StageLaunch batch,
                                     std::span<const std::uint64_t> ids,
                                     TransformKey key,
                                     PixelLayout layout) {
    const std::vector<StageDraw> draws = transform.draw(ids, key);
    std::vector<float> first(transform.scratch_values(ids.size())), second(first.size());
    std::vector<float> out(ids.size() * transform.output().values(), -99);
    batch.draws = draws.data();
    batch.mean = transform.mean().data();
    batch.scale = transform.scale().data();
    batch.out = out.data();
    batch.layout = layout;
    batch.images = static_cast<std::int64_t>(ids.size());
    for (const StageLaunch& launch : plan_launches(transform, batch, {first.data(), second.data()}))
        run_on_host(launch);
    return out;
}

/// Equal bits, which == on floats would not tell for zeros and NaN.
inline std::uint64_t bits(const std::vector<float>& values) {
    return hash64(bytes_of(std::span<const float>(values)));
}

}  // namespace lockstep::test
