// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "transform/bound.hpp"
#include "transform/image_runner.hpp"
#include "transform/share.hpp"
#include "transform/stages.hpp"

#include <algorithm>

namespace lockstep {

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

}  // namespace lockstep
