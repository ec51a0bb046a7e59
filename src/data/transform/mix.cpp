// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include "bound.hpp"
#include "kernel_body.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

constexpr std::uint64_t partners_tag = 1;  // a key of one word more than any sample's

/// Beta(alpha, alpha). Joehnk's method, in logarithms since u^(1/alpha) underflows for small alpha:
/// Devroye, "Non-Uniform Random Variate Generation" (1986), IX.3.5.
double beta(CounterRandom& random, double alpha) {
    for (;;) {
        const double u = random.uniform(), v = random.uniform();
        if (u == 0 || v == 0) continue;
        const double x = logarithm(u) / alpha, y = logarithm(v) / alpha;
        if (exponential(x) + exponential(y) > 1) continue;
        const double ratio = exponential(-std::abs(x - y));
        return x > y ? 1 / (1 + ratio) : ratio / (1 + ratio);
    }
}

/// A box of 1 - lambda of the area around a pixel of the image, cut at its borders; lambda is then
/// what is left. Yun et al., "CutMix", ICCV 2019, https://arxiv.org/abs/1905.04899
MixRow boxed(MixRow row, double lambda, const ImageShape& shape, CounterRandom& random) {
    const double side = std::sqrt(1 - lambda);
    const auto extent = [&](int size, std::int32_t& begin, std::int32_t& end) {
        const int length = static_cast<int>(size * side);
        const int first =
            static_cast<int>(random.below(static_cast<std::uint64_t>(size))) - length / 2;
        begin = std::max(first, 0);
        end = std::min(first + length, size);
    };
    extent(shape.height, row.top, row.bottom);
    extent(shape.width, row.left, row.right);
    const double area = double{1} * (row.bottom - row.top) * (row.right - row.left);
    row.lambda = static_cast<float>(1 - area / (double{1} * shape.height * shape.width));
    if (area == 0) row.left = row.right = row.top = row.bottom = 0;
    return row;
}

MixRow draw_row(const TransformOp& op,
                std::uint32_t partner,
                const ImageShape& shape,
                CounterRandom random) {
    const double lambda = beta(random, op.high);
    MixRow row{.partner = partner, .lambda = static_cast<float>(lambda)};
    return op.kind == TransformKind::cutmix ? boxed(row, lambda, shape, random) : row;
}

std::vector<std::uint32_t> partners_of(std::span<const std::uint64_t> ids,
                                       TransformKey key,
                                       std::uint64_t position) {
    std::vector<std::uint32_t> partners(ids.size());
    std::iota(partners.begin(), partners.end(), 0u);
    if (ids.empty()) return partners;
    shuffle(std::span(partners),
            CounterRandom(Purpose::augmentation,
                          {key.seed, key.epoch, ids.front(), position, partners_tag}));
    return partners;
}

constexpr std::size_t span_values = 256;

}  // namespace

std::vector<MixRow> ImageTransform::mix_rows(std::span<const std::uint64_t> ids,
                                             TransformKey key,
                                             std::span<const std::uint8_t> valid) const {
    expect(valid.empty() || valid.size() == ids.size(), "a mark for each row, or none");
    const TransformOp& op = bound_->ops.back();
    if (op.kind != TransformKind::mixup && op.kind != TransformKind::cutmix) return {};
    const std::uint64_t position = bound_->ops.size() - 1;
    const std::vector<std::uint32_t> partners = partners_of(ids, key, position);
    std::vector<MixRow> rows(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool is_mixed = valid.empty() || (valid[i] != 0 && valid[partners[i]] != 0);
        rows[i] = is_mixed ? draw_row(op,
                                      partners[i],
                                      bound_->output,
                                      CounterRandom(Purpose::augmentation,
                                                    {key.seed, key.epoch, ids[i], position}))
                           : MixRow{.partner = static_cast<std::uint32_t>(i)};
    }
    return rows;
}

// The same few values of all images at a time: in place, a thread needs nothing of another's.
void ImageTransform::mix(std::span<float> images,
                         std::span<const MixRow> rows,
                         PixelLayout layout,
                         int threads) const {
    const ImageShape& shape = bound_->output;
    const std::size_t values = shape.values();
    expect(images.size() == rows.size() * values, "a mix for each image");
    for (const MixRow& row : rows) expect(row.partner < rows.size(), "a partner of the same leaf");
    const std::size_t spans = (values + span_values - 1) / span_values;
    share_out(spans, threads, [&](std::size_t first, std::size_t last) {
        std::vector<float> before(rows.size() * span_values);
        std::vector<pixel::Place> places(span_values);
        for (std::size_t span = first; span < last; ++span) {
            const std::size_t begin = span * span_values;
            const std::size_t count = std::min(span_values, values - begin);
            for (std::size_t k = 0; k < count; ++k)
                places[k] = pixel::place_of(static_cast<std::int64_t>(begin + k),
                                            shape.channels,
                                            shape.height,
                                            shape.width,
                                            layout);
            for (std::size_t i = 0; i < rows.size(); ++i)
                std::copy_n(&images[i * values + begin], count, &before[i * span_values]);
            for (std::size_t i = 0; i < rows.size(); ++i) {
                const MixRow& row = rows[i];
                const float *own = &before[i * span_values],
                            *partner = &before[row.partner * span_values];
                float* const out = &images[i * values + begin];
                if (row.top == row.bottom)
                    bound_->rows->blend_rows(
                        own, partner, 1 - row.lambda, out, static_cast<int>(count));
                else
                    for (std::size_t k = 0; k < count; ++k)
                        out[k] =
                            pixel::mixed_value(row, own[k], partner[k], places[k].y, places[k].x);
            }
        }
    });
}

MixedLabels mix_labels(std::span<const std::int64_t> labels, std::span<const MixRow> rows) {
    expect(rows.size() == labels.size(), "a mix for each label");
    MixedLabels mixed;
    mixed.first.assign(labels.begin(), labels.end());
    for (const MixRow& row : rows) {
        expect(row.partner < labels.size(), "a partner of the same leaf");
        mixed.second.push_back(labels[row.partner]);
        mixed.lambda.push_back(row.lambda);
    }
    return mixed;
}

}  // namespace lockstep
