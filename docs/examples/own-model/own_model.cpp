// SPDX-License-Identifier: Apache-2.0
// A model of this project: as a program with Lockstep's command line, and as a plug-in.
#include "lockstep/app/run_program.hpp"
#include "lockstep/train/plugin.hpp"

#include <torch/nn/modules/linear.h>

namespace {

class Tiny : public lockstep::Classifier {
  public:
    Tiny(const lockstep::ModelShape& shape, const lockstep::ModelSettings&)
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

LOCKSTEP_MODEL_PLUGIN(Tiny)

#ifndef LOCKSTEP_PLUGIN_ONLY
int main(int argc, char** argv) {
    return lockstep::run_program(argc, argv, "tiny", [](const auto& shape, const auto& settings) {
        return std::make_shared<Tiny>(shape, settings);
    });
}
#endif
