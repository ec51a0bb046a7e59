// SPDX-License-Identifier: Apache-2.0
// Builds a registered model and runs it once, with the LibTorch that the consumer's configure
// found. train_consumer FILE also saves a small TorchScript model, and one of two inputs as
// FILE.two.pt.
#include "lockstep/train/model.hpp"

#include <iostream>
#include <string>

#include <torch/script.h>
#include <torch/types.h>

namespace {

// As torch.jit.script writes them, of a network for 10 classes of images of 3x8x8.
void save_script(const char* path) {
    torch::manual_seed(1);
    torch::jit::Module net("net");
    net.register_attribute("training", c10::BoolType::get(), true);
    net.register_parameter(
        "weight", torch::randn({10, 3 * 8 * 8}).div_(14).requires_grad_(), false);
    net.register_parameter("bias", torch::zeros({10}).requires_grad_(), false);
    net.register_buffer("seen", torch::zeros({}));
    net.define(R"(
        def forward(self, x):
            if self.training:
                self.seen.add_(1)
            x = torch.dropout(torch.relu(x.flatten(1)), 0.1, self.training)
            return torch.addmm(self.bias, x, self.weight.t())
    )");
    net.save(path);
}

// The same of images and two numbers.
void save_script_of_two(const std::string& path) {
    torch::manual_seed(1);
    torch::jit::Module net("two");
    net.register_parameter(
        "weight", torch::randn({10, 3 * 8 * 8 + 2}).div_(14).requires_grad_(), false);
    net.define(R"(
        def forward(self, x, numbers):
            return torch.matmul(torch.cat([x.flatten(1), numbers], 1), self.weight.t())
    )");
    net.save(path);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1) save_script(argv[1]);
    if (argc > 1) save_script_of_two(std::string(argv[1]) + ".two.pt");
    const auto model = lockstep::make_model({}, {}, 1);
    const auto logits = model->forward(torch::zeros({2, 1, 28, 28}));
    std::cout << "train_consumer: logits of shape " << logits.sizes() << '\n';
    return logits.size(0) == 2 && logits.size(1) == 10 ? 0 : 1;
}
