// SPDX-License-Identifier: Apache-2.0
#include "loop/sample_error.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"

#include "task/input.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct BadValue {
    std::size_t row = 0;
    double value = 0;
};

// Returns true if losses that square it overflow; those of larger values do as well.
bool is_too_large(double value) {
    static const double most = std::sqrt(double{std::numeric_limits<float>::max()});
    return std::abs(value) > most;
}

template <class Real>
std::optional<BadValue> first_bad(std::span<const std::byte> bytes, std::size_t rows) {
    const std::size_t elements = bytes.size() / sizeof(Real);
    std::optional<BadValue> large;
    for (std::size_t i = 0; i < elements; ++i) {
        Real value = 0;
        std::memcpy(&value, bytes.data() + i * sizeof(Real), sizeof value);
        const BadValue here{i / (elements / rows), double{value}};
        if (!std::isfinite(value)) return here;
        if (!large && is_too_large(here.value)) large = here;
    }
    return large;
}

std::optional<BadValue> first_bad(const Batch& batch, const Field& field, std::size_t place) {
    const std::size_t rows = batch.sample_ids.size();
    if (rows == 0) return {};
    if (field.type == ElementType::f32) return first_bad<float>(batch.fields[place], rows);
    if (field.type == ElementType::f64) return first_bad<double>(batch.fields[place], rows);
    return {};
}

// Returns the places of the model's inputs and of its target.
std::vector<std::size_t> used_places(const DatasetIndex& index, const std::string& inputs) {
    std::vector<std::size_t> places = input_places(index, inputs);
    for (std::size_t place = 0; place < index.fields().size(); ++place)
        for (const char* learned : {"labels", "targets"})
            if (index.fields()[place].name == learned) places.push_back(place);
    return places;
}

}  // namespace

std::optional<BadSample> bad_sample(const Batch& batch,
                                    const DatasetIndex& index,
                                    const std::string& inputs) {
    std::optional<BadSample> large;
    for (const std::size_t place : used_places(index, inputs)) {
        const Field& field = index.fields()[place];
        const std::optional<BadValue> bad = first_bad(batch, field, place);
        if (!bad) continue;
        const bool is_finite = std::isfinite(bad->value);
        if (large && is_finite) continue;
        const std::uint64_t sample = batch.sample_ids[bad->row];
        BadSample found{.sample = sample,
                        .text = fmt::format("'{}' of sample {} has {}: {}",
                                            field.name,
                                            grouped(sample),
                                            bad->value,
                                            row_text(index, field, sample)),
                        .field = field.name,
                        .is_finite = is_finite};
        if (!is_finite) return found;
        large = std::move(found);
    }
    return large;
}

std::optional<Error> sample_error(double loss,
                                  std::int64_t step,
                                  const Batch& batch,
                                  const DatasetIndex& index,
                                  const TrainSettings& settings) {
    const std::optional<BadSample> bad = bad_sample(batch, index, settings.inputs);
    if (!bad) return {};
    const std::string what = fmt::format("the loss is {} at step {}", loss, step);
    const bool is_target = bad->is_finite && bad->field == "targets";
    if (is_target && settings.task.scales_targets) return {};  // they are about 1 in the loss
    const bool may_be_scaled = is_target && !index.field("targets").mean.empty();
    if (bad->is_finite)
        return Error(
            "E701",
            what,
            bad->text + "; its square is beyond f32's 3.4e+38",
            may_be_scaled
                ? "begin a new run with --scale-targets"
                : fmt::format("scale '{}' to numbers around 1, and begin a new run", bad->field));
    return Error("E701",
                 what,
                 bad->text,
                 "the same command with --on-nonfinite skip goes on from the last "
                 "checkpoint, and leaves out steps with such samples");
}

}  // namespace lockstep
