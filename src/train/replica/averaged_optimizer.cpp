// SPDX-License-Identifier: Apache-2.0
#include "replica/averaged_optimizer.hpp"

#include "replica/widest_vectors.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

LOCKSTEP_WIDEST_VECTORS
void average_step(const float* __restrict values,
                  float* __restrict average,
                  std::size_t count,
                  float keep) {
    for (std::size_t i = 0; i < count; ++i) average[i] += keep * (values[i] - average[i]);
}

class Averaged : public Optimizer {
  public:
    Averaged(std::unique_ptr<Optimizer> inner, double decay)
        : inner_(std::move(inner)), keep_(static_cast<float>(1 - decay)) {}

    std::vector<std::string> state_names() const override {
        std::vector<std::string> names = inner_->state_names();
        names.emplace_back(average_state);
        return names;
    }

    NormUse norm_use() const override { return inner_->norm_use(); }

    void prepare(const ParameterPiece& piece,
                 const UpdateStep& step,
                 TensorSums& sums) const override {
        inner_->prepare(piece, step, sums);
    }

    void update(const ParameterPiece& piece,
                const TensorNorms& norms,
                const UpdateStep& step) const override {
        float* const average = piece.state.back();
        inner_->update(piece, norms, step);
        average_step(piece.values, average, piece.count, keep_);
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
