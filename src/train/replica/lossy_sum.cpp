// SPDX-License-Identifier: Apache-2.0
#include "replica/lossy_sum.hpp"

#include "lockstep/comm/signature_check.hpp"

#include <vector>

namespace lockstep {
namespace {

std::vector<MatrixShape> matrix_shapes(const ModelLayout& layout) {
    std::vector<MatrixShape> shapes;
    for (const FlatTensor& place : layout.parameters()) {
        const std::size_t rows =
            place.shape.empty() ? 1 : static_cast<std::size_t>(place.shape.front());
        shapes.push_back({rows, rows == 0 ? 0 : place.range.size() / rows});
    }
    return shapes;
}

}  // namespace

void check_wire_format(const TrainSettings& settings) {
    check_wire_format(settings.wire, settings.plain_summation ? Summation::plain : Summation::tree);
}

LossySum make_lossy_sum(const Communicator& ranks,
                        const ModelLayout& layout,
                        const TrainSettings& settings) {
    const WireFormat format = settings.wire;
    if (format == WireFormat::float32 || ranks.size() == 1) return {};
    // Bucket after bucket is new in the first step only: comparing calls costs nothing later.
    LossySum lossy{.collectives = signature_checked(make_collectives(ranks), ranks), .hook = {}};
    lossy.hook = format == WireFormat::power_sgd
                     ? make_power_sgd(layout.flat(),
                                      matrix_shapes(layout),
                                      {.rank = settings.powersgd_rank, .seed = settings.seed},
                                      *lossy.collectives)
                     : make_wire_hook(format, ranks, *lossy.collectives);
    return lossy;
}

}  // namespace lockstep
