// SPDX-License-Identifier: Apache-2.0
#include "replica/averaged_optimizer.hpp"

#include "replica/update_loops.hpp"

#include <utility>

namespace lockstep {
namespace {

class Averaged : public Optimizer {
  public:
    Averaged(std::unique_ptr<Optimizer> inner, double decay)
        : inner_(std::move(inner)), keep_(static_cast<float>(1 - decay)) {}

    std::vector<std::string> state_names() const override {
        std::vector<std::string> names = inner_->state_names();
        names.emplace_back(average_state);
        return names;
    }

    OwnRateRule own_rate() const override { return inner_->own_rate(); }

    void prepare(const ParameterPiece& piece,
                 const UpdateStep& step,
                 const TensorSums& sums,
                 UpdateLoops& loops) const override {
        inner_->prepare(piece, step, sums, loops);
    }

    void update(const ParameterPiece& piece,
                const float* rate,
                const UpdateStep& step,
                UpdateLoops& loops) const override {
        inner_->update(piece, rate, step, loops);
        loops.run({.kind = UpdateKind::average,
                   .values = piece.values,
                   .first = piece.state.back(),
                   .count = static_cast<std::int64_t>(piece.count),
                   .terms = {.keep = keep_},
                   .decided = step.decided});
    }

  private:
    std::unique_ptr<Optimizer> inner_;
    float keep_;
};

}  // namespace

std::unique_ptr<Optimizer> make_averaged(std::unique_ptr<Optimizer> inner, double decay) {
    return std::make_unique<Averaged>(std::move(inner), decay);
}

}  // namespace lockstep
