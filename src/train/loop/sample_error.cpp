// SPDX-License-Identifier: Apache-2.0
#include "loop/sample_error.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/data/advice.hpp"

#include "task/input.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct BadValue {
    std::size_t row = 0;
    double value = 0;
};

template <class Real>
std::optional<BadValue> first_bad(std::span<const std::byte> bytes, std::size_t rows) {
    const std::size_t elements = bytes.size() / sizeof(Real);
    for (std::size_t i = 0; i < elements; ++i) {
        Real value = 0;
        std::memcpy(&value, bytes.data() + i * sizeof(Real), sizeof value);
        if (!std::isfinite(value)) return BadValue{i / (elements / rows), double{value}};
    }
    return {};
}

std::optional<BadValue> first_bad(const Batch& batch, const Field& field, std::size_t place) {
    const std::size_t rows = batch.sample_ids.size();
    if (rows == 0) return {};
    if (field.type == ElementType::f32) return first_bad<float>(batch.fields[place], rows);
    if (field.type == ElementType::f64) return first_bad<double>(batch.fields[place], rows);
    return {};
}

// What the model is given, and what it learns.
std::vector<std::size_t> used_places(const DatasetIndex& index, const TrainSettings& settings) {
    std::vector<std::size_t> places = input_places(index, settings.inputs);
    for (std::size_t place = 0; place < index.fields().size(); ++place)
        for (const char* learned : {"labels", "targets"})
            if (index.fields()[place].name == learned) places.push_back(place);
    return places;
}

}  // namespace

std::optional<Error> sample_error(double loss,
                                  std::int64_t step,
                                  const Batch& batch,
                                  const DatasetIndex& index,
                                  const TrainSettings& settings) {
    for (const std::size_t place : used_places(index, settings)) {
        const Field& field = index.fields()[place];
        const std::optional<BadValue> bad = first_bad(batch, field, place);
        if (!bad) continue;
        const std::uint64_t sample = batch.sample_ids[bad->row];
        return Error("E701",
                     fmt::format("the loss is {} at step {}", loss, step),
                     fmt::format("'{}' of sample {} has {}: {}",
                                 field.name,
                                 grouped(sample),
                                 bad->value,
                                 row_text(index, field, sample)),
                     settings.wire == WireFormat::power_sgd
                         ? "mend the data, and begin a new run"
                         : "the same command with --on-nonfinite skip goes on from the last "
                           "checkpoint, and leaves out steps with such samples");
    }
    return {};
}

}  // namespace lockstep
