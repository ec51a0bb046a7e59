// SPDX-License-Identifier: Apache-2.0
// Lockstep's command line with a model of this project.
#include "lockstep/app/run_program.hpp"

#include <torch/nn/modules/linear.h>

namespace {

class Tiny : public lockstep::Classifier {
  public:
    explicit Tiny(const lockstep::ModelShape& shape)
        : layer_(register_module(
              "layer",
              torch::nn::Linear(shape.channels * shape.height * shape.width, shape.classes))) {}

    torch::Tensor forward(const torch::Tensor& images) override {
        return layer_(images.flatten(1));
    }

  private:
    torch::nn::Linear layer_;
};

}  // namespace

int main(int argc, char** argv) {
    return lockstep::run_program(argc, argv, "tiny", [](const auto& shape, const auto&) {
        return std::make_shared<Tiny>(shape);
    });
}
