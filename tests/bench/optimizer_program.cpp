// SPDX-License-Identifier: Apache-2.0
// An Adam step over ResNet-50's parameters, ours beside LibTorch's two, on one thread and in the
// same memory, in turn: bench_optimizer [--rounds N]. The last line is JSON: milliseconds of
// processor time by round.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/train/model.hpp"

#include "replica/optimizer.hpp"

#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adam.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

namespace {

using namespace lockstep;

constexpr double rate = 1e-3;

/// Each entrant updates these.
struct Tensors {
    std::vector<at::Tensor> values, gradients, m, v, steps;

    Tensors() {
        for (const at::Tensor& parameter :
             make_model({"resnet50", true}, {3, 224, 224, 1000}, 1)->parameters()) {
            values.push_back(parameter.detach().clone());
            gradients.push_back(torch::randn_like(values.back()));
            m.push_back(torch::zeros_like(values.back()));
            v.push_back(torch::zeros_like(values.back()));
            steps.push_back(torch::ones({}));
        }
    }
};

struct Entrant {
    std::string name;
    std::function<void(std::int64_t)> step;
    std::vector<double> ms;
};

Entrant ours(Tensors& tensors) {
    std::vector<ParameterPiece> pieces;
    for (std::size_t i = 0; i < tensors.values.size(); ++i)
        pieces.push_back(
            {.tensor = i,
             .dimensions = static_cast<std::size_t>(tensors.values[i].dim()),
             .count = static_cast<std::size_t>(tensors.values[i].numel()),
             .values = tensors.values[i].data_ptr<float>(),
             .gradients = tensors.gradients[i].const_data_ptr<float>(),
             .state = {tensors.m[i].data_ptr<float>(), tensors.v[i].data_ptr<float>()}});
    return {"ours",
            [pieces](std::int64_t number) {
                update_pieces({}, {}, pieces, ParameterCopy::first, pieces.size(), {number, rate});
            },
            {}};
}

Entrant fused(Tensors& tensors) {
    return {"at::_fused_adam_",
            [&tensors](std::int64_t number) {
                for (at::Tensor& step : tensors.steps) step.fill_(static_cast<double>(number));
                at::_fused_adam_(tensors.values,
                                 tensors.gradients,
                                 tensors.m,
                                 tensors.v,
                                 {},
                                 tensors.steps,
                                 rate,
                                 0.9,
                                 0.999,
                                 0,
                                 1e-8,
                                 false,
                                 false);
            },
            {}};
}

Entrant plain(Tensors& tensors) {
    for (std::size_t i = 0; i < tensors.values.size(); ++i)
        tensors.values[i].mutable_grad() = tensors.gradients[i];
    const auto adam =
        std::make_shared<torch::optim::Adam>(tensors.values, torch::optim::AdamOptions(rate));
    return {"torch::optim::Adam", [adam](std::int64_t) { adam->step(); }, {}};
}

// The second of two steps counts: each entrant finds the caches as it left them itself. By this
// thread's processor time: others on the machine do not show in it as in the wall's.
void run(std::vector<Entrant>& entrants, int rounds) {
    for (int round = 0; round < rounds; ++round)
        for (Entrant& entrant : entrants) {
            entrant.step(2 * round + 1);
            const double begin = thread_processor_s();
            entrant.step(2 * round + 2);
            entrant.ms.push_back(1e3 * (thread_processor_s() - begin));
        }
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds =
        argc > 2 && std::string_view(argv[1]) == "--rounds" ? std::stoi(argv[2]) : 15;
    at::set_num_threads(1);
    Tensors tensors;
    std::int64_t parameters = 0;
    for (const at::Tensor& tensor : tensors.values) parameters += tensor.numel();
    std::vector<Entrant> entrants = {ours(tensors), fused(tensors), plain(tensors)};
    run(entrants, rounds);
    Json result = {{"parameters", parameters}};
    for (const Entrant& entrant : entrants) result["ms"][entrant.name] = entrant.ms;
    std::cout << result << "\n";
}
