// SPDX-License-Identifier: Apache-2.0
// One step of an exported program, for program_peer_worker.py: forward and backward on inputs from
// files, and its gradients and buffers as bytes.
//
//   test_train_program_peer NET.pt2|resnet18|gpt OUT STEPS train|as-exported|as-in-training
//                           INPUT:f32|i64:EXTENT,EXTENT...
//
// as-in-training: with the memory, the kernels and the order of channels that a training has.
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include "model/model_file.hpp"
#include "replica/numerics.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <torch/utils.h>

namespace {

using namespace lockstep;

at::Tensor input_of(const std::string& text) {
    const std::vector<std::string> parts = split(text, ':');
    std::vector<std::int64_t> extents;
    for (const std::string& extent : split(parts.at(2), ','))
        extents.push_back(parse_integer(extent).value());
    at::Tensor tensor = torch::empty(extents, parts[1] == "i64" ? torch::kLong : torch::kFloat);
    std::ifstream file(parts[0], std::ios::binary);
    file.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
    return tensor;
}

// Those of bench/programs.
ModelSettings settings_of(const std::string& name, std::string_view mode) {
    return {.name = name,
            .layers = 4,
            .heads = 4,
            .width = 128,
            .program_mode = mode == "as-exported" ? ProgramMode::as_exported : ProgramMode::train};
}

ModelShape shape_of(const at::Tensor& input) {
    if (input.scalar_type() == torch::kLong) return {.width = input.size(1), .vocabulary = 97};
    if (input.dim() < 4) return {};
    return {.channels = input.size(1), .height = input.size(2), .width = input.size(3)};
}

void write(std::ofstream& out, const at::Tensor& tensor) {
    const at::Tensor dense = tensor.contiguous();
    out.write(static_cast<const char*>(dense.const_data_ptr()),
              static_cast<std::streamsize>(dense.nbytes()));
}

void step(Model& model, const NamedTensors& inputs) {
    at::Tensor loss = torch::zeros({});
    for (const NamedTensor& one : model.forward(inputs))
        loss = loss + one.tensor.to(torch::kFloat).square().mean();
    loss.backward();
}

double median_ms(Model& model, const NamedTensors& inputs, std::int64_t steps) {
    std::vector<double> times;
    for (std::int64_t i = 0; i < steps; ++i) {
        const double begin_s = now_s();
        step(model, inputs);
        times.push_back(1e3 * (now_s() - begin_s));
    }
    std::ranges::sort(times);
    return times.empty() ? 0 : times[times.size() / 2];
}

void compute_as_in_training() {
    TrainSettings arithmetic;
    settle_arithmetic(Communicator(), read_node_facts().instruction_set, arithmetic);
}

int compare(int count, char** words) {
    const bool as_in_training = std::string_view(words[4]) == "as-in-training";
    if (as_in_training) compute_as_in_training();
    at::set_num_threads(1);
    const auto steps = parse_integer(words[3]).value();
    NamedTensors inputs;
    for (int i = 5; i < count; ++i) inputs.push_back({words[i], input_of(words[i])});
    if (as_in_training)
        for (NamedTensor& one : inputs)
            if (one.tensor.dim() == 4)
                one.tensor = one.tensor.contiguous(at::MemoryFormat::ChannelsLast);
    const auto model =
        open_model(settings_of(words[1], words[4]), shape_of(inputs.front().tensor), 1);
    torch::manual_seed(1);
    step(*model, inputs);
    std::ofstream out(words[2], std::ios::binary);
    for (const NamedTensor& one : model->parameters()) {
        fmt::print("gradient {}\n", one.name);
        write(out, one.tensor.grad().defined() ? one.tensor.grad() : at::zeros_like(one.tensor));
    }
    for (const NamedTensor& one : model->buffers()) {
        fmt::print("buffer {}\n", one.name);
        write(out, one.tensor);
    }
    fmt::print("ms {:.3f}\n", median_ms(*model, inputs, steps));
    return 0;
}

}  // namespace

int main(int count, char** words) {
    if (count < 6) return 64;
    try {
        return compare(count, words);
    } catch (const Error& error) {
        fmt::print(stderr, "{}\n", error.text());
        return static_cast<int>(error.exit_code());
    }
}
