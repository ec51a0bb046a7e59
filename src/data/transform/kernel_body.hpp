// SPDX-License-Identifier: Apache-2.0
// The work of one thread of a kernel; a test also runs it on the host, thread by thread.
#pragma once

#include "pixel.hpp"

namespace lockstep::pixel {

/// The place of an element of a batch.
struct Place {
    std::int64_t image;
    int channel, y, x;
};

LOCKSTEP_HOST_DEVICE inline Place place_of(
    std::int64_t element, int channels, int height, int width, PixelLayout layout) {
    Place place{};
    std::int64_t rest = element;
    if (layout == PixelLayout::nhwc) {
        place.channel = static_cast<int>(rest % channels);
        rest /= channels;
    }
    place.x = static_cast<int>(rest % width);
    rest /= width;
    place.y = static_cast<int>(rest % height);
    rest /= height;
    if (layout == PixelLayout::nchw) {
        place.channel = static_cast<int>(rest % channels);
        rest /= channels;
    }
    place.image = rest;
    return place;
}

LOCKSTEP_HOST_DEVICE inline std::int64_t elements_of(const StageLaunch& launch) {
    const TransformStage& stage = launch.stage;
    return launch.images * stage.channels * stage.out_height * stage.out_width;
}

LOCKSTEP_HOST_DEVICE inline void stage_element(const StageLaunch& launch, std::int64_t element) {
    const TransformStage& stage = launch.stage;
    const PixelLayout layout = launch.is_last != 0 ? launch.layout : PixelLayout::nchw;
    const Place at = place_of(element, stage.channels, stage.out_height, stage.out_width, layout);
    const std::int64_t plane = at.image * stage.channels + at.channel;
    const std::int64_t first = plane * stage.in_height * stage.in_width;
    const StageDraw& draw = launch.draws[at.image * launch.draw_stride];
    const float mean = launch.mean[at.channel];
    const float value =
        launch.bytes != nullptr
            ? stage_value(
                  stage,
                  Plane<std::uint8_t>{launch.bytes + first, stage.in_height, stage.in_width},
                  draw,
                  at.y,
                  at.x,
                  mean)
            : stage_value(stage,
                          Plane<float>{launch.floats + first, stage.in_height, stage.in_width},
                          draw,
                          at.y,
                          at.x,
                          mean);
    launch.out[element] =
        launch.is_last != 0 ? normalised(value, mean, launch.scale[at.channel]) : value;
}

LOCKSTEP_HOST_DEVICE inline std::int64_t elements_of(const MixLaunch& launch) {
    return launch.images * launch.channels * launch.height * launch.width;
}

LOCKSTEP_HOST_DEVICE inline void mix_element(const MixLaunch& launch, std::int64_t element) {
    const Place at = place_of(element, launch.channels, launch.height, launch.width, launch.layout);
    const MixRow& row = launch.rows[at.image];
    const std::int64_t image_values = std::int64_t{launch.channels} * launch.height * launch.width;
    const std::int64_t partner =
        element + (static_cast<std::int64_t>(row.partner) - at.image) * image_values;
    launch.out[element] = mixed_value(row, launch.in[element], launch.in[partner], at.y, at.x);
}

/// A grid of `blocks` x `threads` strides over the elements.
LOCKSTEP_HOST_DEVICE inline void stage_thread(
    const StageLaunch& launch, std::int64_t block, int thread, std::int64_t blocks, int threads) {
    for (std::int64_t i = block * threads + thread; i < elements_of(launch); i += blocks * threads)
        stage_element(launch, i);
}

LOCKSTEP_HOST_DEVICE inline void mix_thread(
    const MixLaunch& launch, std::int64_t block, int thread, std::int64_t blocks, int threads) {
    for (std::int64_t i = block * threads + thread; i < elements_of(launch); i += blocks * threads)
        mix_element(launch, i);
}

}  // namespace lockstep::pixel
