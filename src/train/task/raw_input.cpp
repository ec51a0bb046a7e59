// SPDX-License-Identifier: Apache-2.0
#include "task/field_input.hpp"

#include <torch/types.h>

namespace lockstep {
namespace {

// Targets and tokens for a model that compares them itself.
class RawInput : public FieldInput {
  public:
    explicit RawInput(Field field) : field_(std::move(field)) {}

    ImageShape shape() const override {
        const std::size_t dimensions = field_.shape.size();
        const auto extent = [&](std::size_t from_end) {
            return from_end <= dimensions ? static_cast<int>(field_.shape[dimensions - from_end])
                                          : 1;
        };
        return {extent(is_volume() ? 4 : 3), extent(2), extent(1)};
    }
    int depth() const override { return is_volume() ? static_cast<int>(field_.shape[1]) : 1; }

    at::Tensor read(std::span<const std::byte> rows,
                    std::span<const std::uint64_t> ids,
                    TransformKey) const override {
        const at::ScalarType stored = stored_type(field_.type);
        const bool is_real = stored == torch::kFloat32 || stored == torch::kFloat64;
        return torch::from_blob(const_cast<std::byte*>(rows.data()),
                                batch_extents(field_, static_cast<std::int64_t>(ids.size())),
                                stored)
            .to(is_real ? torch::kFloat32 : torch::kInt64, /*non_blocking=*/false, /*copy=*/true);
    }

  private:
    bool is_volume() const { return field_.shape.size() == 4; }

    Field field_;
};

}  // namespace

std::unique_ptr<FieldInput> make_raw_input(const Field& field) {
    return std::make_unique<RawInput>(field);
}

}  // namespace lockstep
