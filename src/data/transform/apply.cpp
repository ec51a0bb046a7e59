// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include "bound.hpp"
#include "pixel.hpp"
#include "rows.hpp"

#include <algorithm>
#include <array>

namespace lockstep {

std::span<const RowKernels* const> row_kernels() {
    static constexpr std::array kernels = {
        &baseline::row_kernels,
#if defined(__x86_64__)
        &avx2::row_kernels,
#endif
    };
#if defined(__x86_64__)
    return std::span(kernels).first(__builtin_cpu_supports("avx2") ? 2 : 1);
#else
    return kernels;
#endif
}

namespace {

// What torchvision's documentation gives for models trained on ImageNet.
constexpr std::array imagenet_mean = {0.485, 0.456, 0.406};
constexpr std::array imagenet_std = {0.229, 0.224, 0.225};

// One number is for all of them.
std::vector<float> per_channel(std::span<const double> values,
                               int channels,
                               float otherwise,
                               double unit) {
    if (values.size() == 1) otherwise = static_cast<float>(values[0] * unit);
    std::vector<float> filled(static_cast<std::size_t>(channels), otherwise);
    for (std::size_t i = 0; i < std::min(values.size(), filled.size()); ++i)
        filled[i] = static_cast<float>(values[i] * unit);
    return filled;
}

StretchTaps taps_of(const TransformStage& stage) {
    StretchTaps taps;
    if (stage.kind != StageKind::resize) return taps;
    for (int x = 0; x < stage.out_width; ++x) {
        const pixel::Tap tap = pixel::resize_tap(x, stage.in_width, stage.out_width);
        taps.first.push_back(tap.first);
        taps.second.push_back(tap.second);
        taps.share.push_back(tap.share);
    }
    return taps;
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
    const int size = placed.op.size, top = below(random, placed.before.height) - size / 2;
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

/// A pixel of a mask before a stage, or none.
struct MaskPixel {
    int y, x;
    bool is_inside = true;
};

int nearest_pixel(int at, int in, int out) {
    return static_cast<int>((2 * std::int64_t{at} + 1) * in / (2 * std::int64_t{out}));
}

MaskPixel before(const TransformStage& stage, const StageDraw& draw, const MaskPixel& at) {
    switch (stage.kind) {
        case StageKind::window:
            return {draw.y_begin + at.y,
                    draw.x_begin + draw.x_step * at.x,
                    at.y >= draw.y_low && at.y < draw.y_high && at.x >= draw.x_low &&
                        at.x < draw.x_high};
        case StageKind::resize:
            return {nearest_pixel(at.y, stage.in_height, stage.out_height),
                    nearest_pixel(at.x, stage.in_width, stage.out_width)};
        case StageKind::rotate: {
            const pixel::Source from = pixel::rotated_source(
                stage.in_height, stage.in_width, draw.cosine, draw.sine, at.y, at.x);
            const int y = from.y + (from.share_y < 0.5F ? 0 : 1);
            const int x = from.x + (from.share_x < 0.5F ? 0 : 1);
            return {y, x, y >= 0 && y < stage.in_height && x >= 0 && x < stage.in_width};
        }
        case StageKind::blur:
            return at;
    }
    return at;
}

}  // namespace

BoundTransform::BoundTransform(const TransformPipeline& pipeline,
                               const ImageShape& shape,
                               std::span<const double> field_mean,
                               std::span<const double> field_std,
                               double unit)
    : ops(pipeline.ops()),
      input(shape),
      output(pipeline.output_shape(shape)),
      plan(plan_stages(pipeline, shape)),
      rows(row_kernels().back()) {
    const bool imagenet =
        std::ranges::find(ops, Statistics::imagenet, &TransformOp::statistics) != ops.end();
    const auto one = static_cast<float>(unit);
    mean = per_channel(imagenet ? imagenet_mean : field_mean, shape.channels, 0, unit);
    scale = per_channel(imagenet ? imagenet_std : field_std, shape.channels, one, unit);
    std::ranges::replace(scale, 0.0F, one);  // a channel that is the same everywhere
    for (const TransformStage& stage : plan.stages) taps.push_back(taps_of(stage));
}

std::size_t BoundTransform::largest_image() const {
    std::size_t largest = output.values();
    for (const TransformStage& stage : plan.stages)
        largest =
            std::max({largest,
                      ImageShape{stage.channels, stage.in_height, stage.in_width}.values(),
                      ImageShape{stage.channels, stage.out_height, stage.out_width}.values()});
    return largest;
}

ImageTransform::ImageTransform(const TransformPipeline& pipeline,
                               const ImageShape& input,
                               std::span<const double> mean,
                               std::span<const double> std,
                               double unit)
    : bound_(std::make_shared<BoundTransform>(pipeline, input, mean, std, unit)) {}

const ImageShape& ImageTransform::input() const {
    return bound_->input;
}
const ImageShape& ImageTransform::output() const {
    return bound_->output;
}
std::span<const TransformStage> ImageTransform::stages() const {
    return bound_->plan.stages;
}
std::span<const float> ImageTransform::mean() const {
    return bound_->mean;
}
std::span<const float> ImageTransform::scale() const {
    return bound_->scale;
}

std::vector<StageDraw> ImageTransform::draw(std::span<const std::uint64_t> ids,
                                            TransformKey key) const {
    const std::size_t stages = bound_->plan.stages.size();
    std::vector<StageDraw> draws(ids.size() * stages);
    for (std::size_t i = 0; i < ids.size(); ++i)
        draw_image(bound_->plan, ids[i], key, std::span(draws).subspan(i * stages, stages));
    return draws;
}

void ImageTransform::move_masks(std::span<const std::int64_t> masks,
                                std::span<const std::uint64_t> ids,
                                TransformKey key,
                                std::int64_t outside,
                                std::span<std::int64_t> out) const {
    const auto pixels = [](const ImageShape& shape) {
        return shape.values() / static_cast<std::size_t>(shape.channels);
    };
    const std::size_t in_pixels = pixels(bound_->input), out_pixels = pixels(bound_->output);
    expect(masks.size() == ids.size() * in_pixels, "a mask for each sample");
    expect(out.size() == ids.size() * out_pixels, "room for each moved mask");
    const std::span<const TransformStage> stages = bound_->plan.stages;
    std::vector<StageDraw> draws(stages.size());
    std::size_t to = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        draw_image(bound_->plan, ids[i], key, draws);
        const auto mask = masks.subspan(i * in_pixels, in_pixels);
        for (int y = 0; y < bound_->output.height; ++y)
            for (int x = 0; x < bound_->output.width; ++x) {
                MaskPixel at{y, x};
                for (std::size_t s = stages.size(); s-- > 0 && at.is_inside;)
                    at = before(stages[s], draws[s], at);
                const std::ptrdiff_t from = std::ptrdiff_t{at.y} * bound_->input.width + at.x;
                out[to++] = at.is_inside ? mask[static_cast<std::size_t>(from)] : outside;
            }
    }
}

std::size_t ImageTransform::scratch_values(std::size_t images) const {
    return bound_->plan.stages.size() == 1 ? 0 : images * bound_->largest_image();
}

std::vector<StageLaunch> plan_launches(const ImageTransform& transform,
                                       const StageLaunch& batch,
                                       std::array<float*, 2> scratch) {
    const std::span<const TransformStage> stages = transform.stages();
    expect(stages.size() == 1 || (scratch[0] && scratch[1]), "scratch on the device");
    std::vector<StageLaunch> launches(stages.size(), batch);
    for (std::size_t i = 0; i < stages.size(); ++i) {
        StageLaunch& launch = launches[i];
        launch.stage = stages[i];
        launch.draws += i;
        launch.draw_stride = static_cast<std::int32_t>(stages.size());
        launch.is_last = i + 1 == stages.size() ? 1 : 0;
        if (launch.is_last == 0) launch.out = scratch[i % 2];
        if (i == 0) continue;
        launch.bytes = nullptr;
        launch.floats = scratch[(i - 1) % 2];
    }
    return launches;
}

void draw_image(const StagePlan& plan,
                std::uint64_t id,
                TransformKey key,
                std::span<StageDraw> draws) {
    for (std::size_t i = 0; i < plan.stages.size(); ++i)
        draws[i] = {
            .x_step = 1, .x_high = plan.stages[i].in_width, .y_high = plan.stages[i].in_height};
    for (const PlacedOp& placed : plan.ops)
        draw_op(draws[placed.stage],
                placed,
                CounterRandom(Purpose::augmentation, {key.seed, key.epoch, id, placed.position}));
}

}  // namespace lockstep
