// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "transform/bound.hpp"

namespace lockstep {

std::size_t ImageTransform::scratch_values(std::size_t images) const {
    return bound_->plan.stages.size() == 1 ? 0 : images * bound_->largest_image();
}

std::vector<StageLaunch> plan_launches(const ImageTransform& transform, const DeviceBatch& batch) {
    const std::span<const TransformStage> stages = transform.stages();
    expect(stages.size() == 1 || (batch.scratch[0] && batch.scratch[1]), "scratch on the device");
    std::vector<StageLaunch> launches;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        StageLaunch launch;
        launch.stage = stages[i];
        launch.bytes = i == 0 ? batch.images : nullptr;
        launch.floats = i == 0 ? nullptr : batch.scratch[(i - 1) % 2];
        launch.is_last = i + 1 == stages.size() ? 1 : 0;
        launch.out = launch.is_last != 0 ? batch.out : batch.scratch[i % 2];
        launch.draws = batch.draws + i;
        launch.draw_stride = static_cast<std::int32_t>(stages.size());
        launch.mean = batch.mean;
        launch.scale = batch.scale;
        launch.layout = batch.layout;
        launch.images = batch.count;
        launches.push_back(launch);
    }
    return launches;
}

}  // namespace lockstep
