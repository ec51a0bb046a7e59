// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "task/field_input.hpp"

#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

// All tokens of a sample but the last, which nothing follows.
class TokenInput : public FieldInput {
  public:
    explicit TokenInput(const Field& field) : stored_(field.shape[0]), type_(field.type) {}

    ImageShape shape() const override { return {1, 1, static_cast<int>(stored_ - 1)}; }

    at::Tensor read(std::span<const std::byte> rows,
                    std::span<const std::uint64_t> ids,
                    TransformKey) const override {
        const std::vector<std::int64_t> extents{static_cast<std::int64_t>(ids.size()), stored_};
        const at::Tensor stored =
            torch::from_blob(const_cast<std::byte*>(rows.data()), extents, stored_type(type_));
        return stored.narrow(1, 0, stored_ - 1).to(torch::kInt64).contiguous();
    }

  private:
    std::int64_t stored_;
    ElementType type_;
};

}  // namespace

std::unique_ptr<FieldInput> make_token_input(const Field& field,
                                             const TransformPipeline& pipeline) {
    const bool has_room = field.shape.size() == 1 && field.shape[0] > 1;
    check(has_room, [&] {
        return Error("E217",
                     fmt::format("'{}' has no sequences of two tokens or more", field.name),
                     "a sample is [T + 1]: T tokens, and the one that follows",
                     "pack them with 'lockstep data pack --text' or --tokens");
    });
    check(pipeline == TransformPipeline(), [&] {
        return Error("E248",
                     fmt::format("'{}' is for images", pipeline.text()),
                     fmt::format("field '{}' holds tokens", field.name),
                     "drop --transform");
    });
    return std::make_unique<TokenInput>(field);
}

}  // namespace lockstep
