// SPDX-License-Identifier: Apache-2.0
#include "schedule/blank_step.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/random.hpp"

#include "leaves/leaf_graph.hpp"
#include "replica/replica.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

// Number of the update, so that Adam's bias correction is not trivial.
constexpr UpdateStep update_step{.number = 3, .rate = 1e-3, .gradient_scale = 1};

constexpr int timed_passes = 3;  // the first one warms up

at::Tensor plain_copy(const at::Tensor& tensor) {
    return tensor.detach().clone(at::MemoryFormat::Contiguous);
}

// Multiples of 2^-22 in [-2, 2): no rounding is part of them.
void fill(at::Tensor& numbers) {
    CounterRandom random(Purpose::synthetic_data, {});
    for (float& value : std::span(numbers.data_ptr<float>(), numbers.numel()))
        value = static_cast<float>(static_cast<std::int32_t>(random.next() >> 40) - (1 << 23)) /
                (1 << 22);
}

at::Tensor blank_input(const InputShape& shape, std::int64_t rows) {
    const int usual = shape.vocabulary > 0 ? 1 : 3;
    const int dimensions = shape.dimensions < 0 ? usual : shape.dimensions;
    std::vector<std::int64_t> extents{shape.channels, shape.height, shape.width};
    if (dimensions == 4) extents.insert(extents.begin() + 1, shape.depth);
    extents.erase(extents.begin(), extents.end() - dimensions);
    extents.insert(extents.begin(), rows);
    if (shape.vocabulary > 0)
        return torch::arange(c10::multiply_integers(extents))
            .remainder(shape.vocabulary)
            .reshape(extents);
    at::Tensor numbers = torch::empty(
        extents, dimensions == 3 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
    fill(numbers);
    return numbers;
}

constexpr const char* see_models =
    "'lockstep models' says which model takes what, and is for which task";

// "f32 [8, 1, 28, 28] and i64 [8, 20]"
std::string shapes_text(const NamedTensors& tensors) {
    std::vector<std::string> texts;
    for (const auto& [name, tensor] : tensors)
        texts.push_back(fmt::format("{} [{}]",
                                    tensor.is_floating_point() ? "f32" : "i64",
                                    fmt::join(tensor.sizes(), ", ")));
    return fmt::format("{}", fmt::join(texts, " and "));
}

std::string fix_of_forward(ModelAuthor author, const NamedTensors& inputs) {
    if (author == ModelAuthor::lockstep) return see_models;
    const std::string given =
        "fix the model's forward(), which is given " + shapes_text(inputs) + " here";
    if (author == ModelAuthor::user_class) return given;
    if (author == ModelAuthor::user_program) return given + ", and export it again";
    return given +
           "; a file that was traced keeps the sizes of its example, the number of samples, too: "
           "write x.flatten(1) or x.size(0) in place of such a number, or use torch.jit.script";
}

void check_gradient(const Model& model, const NamedTensors& outputs) {
    check(outputs.front().tensor.requires_grad(), [&] {
        return Error("E250",
                     "the model's output has no gradient",
                     "no parameter that learns leads to it: forward() detaches what it computes, "
                     "or does so without gradients",
                     fmt::format("{}leave out detach(), data() and NoGradGuard on the way from "
                                 "parameters to the output",
                                 model.frozen().empty() ? "" : "freeze fewer parameters, or "));
    });
}

// Ranks sum gradients as dense vectors.
void check_dense(const NamedTensor& parameter) {
    check(parameter.tensor.grad().layout() == at::kStrided,
          "E250",
          fmt::format("the gradient of parameter '{}' is sparse", parameter.name),
          "ranks sum dense gradients only",
          "leave out sparse(true) (Python: sparse=True) where the model makes its embedding");
}

std::string fix_of_output(const Model& model, const Task& task) {
    if (model.author() == ModelAuthor::lockstep) return see_models;
    if (task.takes_metrics())
        return "return the loss of each sample, [n]: give loss functions reduction=\"none\" (C++: "
               "at::Reduction::None), and end with .flatten(1).mean(1) if more dimensions are left";
    return "return that shape from the model's forward(), or use the --task that its output is for";
}

void check_output_shape(const Model& model,
                        const NamedTensors& outputs,
                        const Task& task,
                        std::int64_t rows) {
    check(outputs.size() == 1 || task.takes_metrics(), [&] {
        std::vector<std::string> names;
        for (const NamedTensor& one : outputs) names.push_back(one.name);
        return Error("E217",
                     fmt::format("the model returns {} tensors", outputs.size()),
                     fmt::format("they are {}, and this task uses one", fmt::join(names, ", ")),
                     fmt::format("give --output {}, or another of them", names.front()));
    });
    std::vector<std::int64_t> wanted = task.output_shape();
    wanted.insert(wanted.begin(), rows);
    const at::IntArrayRef found = outputs.front().tensor.sizes();
    check(found == at::IntArrayRef(wanted), [&] {
        return Error(
            "E217",
            "the model is not for this task",
            fmt::format("its output for {} sample(s) is [{}], the task's targets need [{}]",
                        rows,
                        fmt::join(found, ", "),
                        fmt::join(wanted, ", ")),
            fix_of_output(model, task));
    });
}

at::Tensor blank_loss(Model& model, const Task& task, const ModelShape& shape, std::int64_t rows) {
    torch::manual_seed(1);
    const LeafSamples samples = blank_samples(task, shape, rows);
    const NamedTensors outputs = outputs_of(model, samples.inputs);
    check_output_shape(model, outputs, task, rows);
    check_gradient(model, outputs);
    const LeafSamples there = samples.with_targets_on(outputs.front().tensor.device());
    return task.loss(outputs, there) / static_cast<double>(rows);
}

void add(Hasher128& hasher, const at::Tensor& tensor) {
    const at::Tensor plain = tensor.detach().contiguous().cpu();
    hasher.add({static_cast<const std::byte*>(plain.data_ptr()), plain.nbytes()});
}

void add_update(Hasher128& hasher,
                const at::Tensor& parameter,
                const OptimizerSettings& optimizer) {
    const at::Tensor values = plain_copy(parameter.cpu());
    const at::Tensor gradient = parameter.grad().contiguous().cpu();
    std::vector<at::Tensor> vectors;
    ParameterPiece piece{.dimensions = static_cast<std::size_t>(values.dim()),
                         .count = static_cast<std::size_t>(values.numel()),
                         .values = values.data_ptr<float>(),
                         .gradients = gradient.data_ptr<float>()};
    for (std::size_t k = 0; k < state_names(optimizer).size(); ++k)
        piece.state.push_back(vectors.emplace_back(torch::zeros_like(values)).data_ptr<float>());
    update_pieces(optimizer, {}, {&piece, 1}, ParameterCopy::first, 1, update_step);
    add(hasher, values);
}

// Computes gradients as for a leaf that is computed by itself.
void compute_gradients(const at::Tensor& loss,
                       const NamedTensors& named,
                       std::int64_t rows,
                       std::vector<std::size_t>& order) {
    if (!loss.is_cpu()) return loss.backward();
    std::vector<at::Tensor> parameters;
    std::vector<FloatRange> ranges;
    std::size_t end = 0;
    for (const NamedTensor& parameter : named) {
        parameters.push_back(parameter.tensor);
        const auto count = static_cast<std::size_t>(parameter.tensor.numel());
        ranges.push_back({end, end + count});
        end += rounded_to_lines(count);
    }
    std::vector<float> slot(end);
    const auto gradient = [&](float* from, std::size_t i) {
        return torch::from_blob(from + ranges[i].begin, parameters[i].sizes());
    };
    const ParameterPlaces places{.parameters = parameters,
                                 .range = [&](std::size_t i) { return ranges[i]; },
                                 .gradient = gradient,
                                 .ready =
                                     [&](std::size_t i) {
                                         order.push_back(i);
                                         parameters[i].mutable_grad() =
                                             gradient(slot.data(), i).clone();
                                     }};
    const LeafSums sums(std::vector<LeafPlace>(1), {slot.data()}, 1, host_memory());
    LeafGraph graph({loss}, places, {.leaves = 1, .rows = rows}, nullptr);
    graph.take(Taking::products, sums);
    loss.backward();
    graph.finish();
}

}  // namespace

KeptBuffers::KeptBuffers(const Model& model) : buffers_(model.buffers()) {
    for (const NamedTensor& buffer : buffers_) copies_.push_back(plain_copy(buffer.tensor));
}

KeptBuffers::~KeptBuffers() {
    restore();
}

void KeptBuffers::restore() {
    const torch::NoGradGuard no_gradients;
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].tensor.copy_(copies_[i]);
}

NamedTensors blank_inputs(const ModelShape& shape, std::int64_t rows) {
    std::vector<InputShape> shapes = shape.further;
    shapes.insert(shapes.begin(),
                  {shape.channels,
                   shape.height,
                   shape.width,
                   shape.vocabulary,
                   shape.dimensions,
                   shape.depth});
    NamedTensors inputs;
    for (const InputShape& one : shapes)
        inputs.push_back({fmt::format("input {}", inputs.size()), blank_input(one, rows)});
    return inputs;
}

LeafSamples blank_samples(const Task& task, const ModelShape& shape, std::int64_t rows) {
    return {.inputs = blank_inputs(shape, rows), .targets = task.blank_targets(rows)};
}

NamedTensors checked_outputs(Model& model, const Task& task, const NamedTensors& inputs) {
    NamedTensors outputs =
        in_model(model.author(), ModelPlace::forward, [&] { return model.forward(inputs); });
    check_output_shape(model, outputs, task, inputs.front().tensor.size(0));
    return outputs;
}

NamedTensors outputs_of(Model& model, const NamedTensors& inputs) {
    const auto misfit = [&](const std::string& why) {
        return Error("E217",
                     "the model cannot take these data",
                     why,
                     fix_of_forward(model.author(), inputs));
    };
    try {
        return model.forward(inputs);
    } catch (const Error&) {
        throw;
    } catch (const std::exception& error) {
        throw_if_known(error);
        throw misfit(reason_of(error, model.author()));
    } catch (...) {
        throw misfit("it threw what is no std::exception");
    }
}

void name_outputs(Task& task, Model& model, const ModelShape& shape) {
    if (!task.takes_metrics()) return;
    const torch::NoGradGuard no_gradients;
    const KeptBuffers kept(model);
    model.set_mode(ModelMode::evaluate);
    task.name_outputs(outputs_of(model, blank_inputs(shape, 2)));
    model.set_mode(ModelMode::train);
}

bool takes_single_rows(Model& model, const ModelShape& shape) {
    const torch::NoGradGuard no_gradients;
    const KeptBuffers kept(model);
    torch::manual_seed(1);
    try {
        model.forward(blank_inputs(shape, 1));
    } catch (const std::exception& error) {
        // As PyTorch's batch norm says it, and a module that was saved from Python.
        const std::string message = error.what();
        return message.find("Expected more than 1 value per channel") == message.npos;
    } catch (...) {
        return true;  // a blank step says what it was
    }
    return true;
}

double blank_step_seconds(
    Model& model, const Task& task, const ModelShape& shape, std::int64_t rows, double enough_s) {
    KeptBuffers kept(model);
    double quickest = std::numeric_limits<double>::infinity();
    for (int pass = 0; pass < timed_passes && (pass == 0 || quickest <= enough_s); ++pass) {
        const double begin_s = now_s();
        const at::Tensor loss = blank_loss(model, task, shape, rows);
        in_model(model.author(), ModelPlace::backward, [&] { loss.backward(); });
        quickest = std::min(quickest, now_s() - begin_s);
        kept.restore();
        for (const NamedTensor& parameter : model.parameters())
            parameter.tensor.mutable_grad().reset();
    }
    return quickest;
}

BlankStep run_blank_step(Model& model,
                         const Task& task,
                         const ModelShape& shape,
                         std::int64_t rows,
                         const OptimizerSettings& optimizer) {
    const NamedTensors parameters = model.parameters();
    const KeptBuffers kept(model);
    BlankStep step;
    for (std::size_t i = 0; i < parameters.size(); ++i)
        on_gradient(parameters[i].tensor,
                    [&step, i](const at::Tensor&) { step.order.push_back(i); });
    const at::Tensor loss = blank_loss(model, task, shape, rows);
    with_known_errors([&] {
        in_model(model.author(), ModelPlace::backward, [&] {
            compute_gradients(loss, parameters, rows, step.order);
        });
    });

    Hasher128 hasher;
    add(hasher, loss);
    for (const NamedTensor& buffer : model.buffers()) add(hasher, buffer.tensor);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor& parameter = parameters[i].tensor;
        if (std::ranges::find(step.order, i) == step.order.end()) {
            step.order.push_back(i);
        } else {
            check_dense(parameters[i]);
            add(hasher, parameter.grad());
            add_update(hasher, parameter, optimizer);
        }
        parameter.mutable_grad().reset();
        on_gradient(parameter, [](const at::Tensor&) {});
    }
    step.hash = hasher.value().hex();
    return step;
}

}  // namespace lockstep
