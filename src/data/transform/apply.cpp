// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include "bound.hpp"
#include "exact_math.hpp"
#include "image_runner.hpp"
#include "share.hpp"
#include "stages.hpp"

#include <algorithm>

namespace lockstep {
namespace {

StageDraw whole_window(const TransformStage& stage) {
    StageDraw draw{};
    draw.x_step = 1;
    draw.x_high = stage.in_width;
    draw.y_high = stage.in_height;
    return draw;
}

/// The window's output (y, x) becomes its former (y + top, x + left), cut to the op's size.
void shift(StageDraw& draw, const TransformOp& op, int top, int left) {
    draw.x_begin += draw.x_step * left;
    draw.x_low = std::clamp(draw.x_low - left, 0, op.width);
    draw.x_high = std::clamp(draw.x_high - left, draw.x_low, op.width);
    draw.y_begin += top;
    draw.y_low = std::clamp(draw.y_low - top, 0, op.height);
    draw.y_high = std::clamp(draw.y_high - top, draw.y_low, op.height);
}

void mirror(StageDraw& draw, int width) {
    draw.x_begin += draw.x_step * (width - 1);
    draw.x_step = -draw.x_step;
    const int low = draw.x_low;
    draw.x_low = width - draw.x_high;
    draw.x_high = width - low;
}

int below(CounterRandom& random, int n) {
    return static_cast<int>(random.below(static_cast<std::uint64_t>(n)));
}

void cut_out(StageDraw& draw, const PlacedOp& placed, CounterRandom random) {
    const int size = placed.op.size;
    const int top = below(random, placed.before.height) - size / 2;
    const int left = below(random, placed.before.width) - size / 2;
    draw.cut_top = std::max(top, 0);
    draw.cut_bottom = std::min(top + size, placed.before.height);
    draw.cut_left = std::max(left, 0);
    draw.cut_right = std::min(left + size, placed.before.width);
}

void draw_crop(StageDraw& draw, const PlacedOp& placed, CounterRandom random) {
    const TransformOp& op = placed.op;
    const int top = below(random, placed.before.height + 2 * op.size - op.height + 1);
    const int left = below(random, placed.before.width + 2 * op.size - op.width + 1);
    shift(draw, op, top - op.size, left - op.size);
}

void draw_rotation(StageDraw& draw, const TransformOp& op, CounterRandom random) {
    const CosineSine turn = cosine_sine((2 * random.uniform() - 1) * op.high);
    draw.cosine = static_cast<float>(turn.cosine);
    draw.sine = static_cast<float>(turn.sine);
}

void draw_blur(StageDraw& draw, const TransformOp& op, CounterRandom random) {
    const double sigma = op.low + (op.high - op.low) * random.uniform();
    double weights[most_blur_radius] = {}, sum = 1;
    for (int i = 1; i <= op.size / 2; ++i) {
        weights[i - 1] = exponential(-i * i / (2 * sigma * sigma));
        sum += 2 * weights[i - 1];
    }
    for (int i = 0; i < op.size / 2; ++i) draw.weights[i] = static_cast<float>(weights[i] / sum);
}

void draw_op(StageDraw& draw, const PlacedOp& placed, CounterRandom random) {
    const TransformOp& op = placed.op;
    switch (op.kind) {
        case TransformKind::crop:
            return draw_crop(draw, placed, random);
        case TransformKind::centre_crop:
            return shift(draw,
                         op,
                         (placed.before.height - op.height) / 2,
                         (placed.before.width - op.width) / 2);
        case TransformKind::flip:
            if (random.uniform() < op.high) mirror(draw, placed.before.width);
            return;
        case TransformKind::cutout:
            return cut_out(draw, placed, random);
        case TransformKind::rotate:
            return draw_rotation(draw, op, random);
        case TransformKind::blur:
            return draw_blur(draw, op, random);
        default:
            return;
    }
}

}  // namespace

void transform_rows(const BoundTransform& bound,
                    const RowKernels& kernels,
                    std::span<const std::uint8_t> images,
                    std::span<const std::uint64_t> ids,
                    TransformKey key,
                    PixelLayout layout,
                    std::span<float> out) {
    ImageRunner runner(bound, kernels, layout);
    std::vector<StageDraw> draws(bound.plan.stages.size());
    const std::size_t in_values = bound.input.values(), out_values = bound.output.values();
    for (std::size_t i = 0; i < ids.size(); ++i) {
        draw_image(bound.plan, ids[i], key, draws);
        runner.run(images.data() + i * in_values, draws, out.data() + i * out_values);
    }
}

void ImageTransform::apply(std::span<const std::uint8_t> images,
                           std::span<const std::uint64_t> ids,
                           TransformKey key,
                           PixelLayout layout,
                           std::span<float> out,
                           int threads) const {
    const std::size_t in_values = bound_->input.values(), out_values = bound_->output.values();
    expect(images.size() == ids.size() * in_values, "a row of bytes for each sample");
    expect(out.size() == ids.size() * out_values, "room for each transformed image");
    share_out(ids.size(), threads, [&](std::size_t begin, std::size_t end) {
        transform_rows(*bound_,
                       *bound_->rows,
                       images.subspan(begin * in_values, (end - begin) * in_values),
                       ids.subspan(begin, end - begin),
                       key,
                       layout,
                       out.subspan(begin * out_values, (end - begin) * out_values));
    });
}

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

void draw_image(const StagePlan& plan,
                std::uint64_t id,
                TransformKey key,
                std::span<StageDraw> draws) {
    for (std::size_t i = 0; i < plan.stages.size(); ++i) draws[i] = whole_window(plan.stages[i]);
    for (const PlacedOp& placed : plan.ops)
        draw_op(draws[placed.stage],
                placed,
                CounterRandom(Purpose::augmentation, {key.seed, key.epoch, id, placed.position}));
}

}  // namespace lockstep
