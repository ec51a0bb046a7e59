// SPDX-License-Identifier: Apache-2.0
// The interface of models in training, and errors of their code as ours.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/train/model.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace lockstep {

/// Returns the only tensor.
const at::Tensor& only(const NamedTensors& tensors);

/// Returns the number of all elements.
std::int64_t element_count(const NamedTensors& tensors);

/// Returns the names of tensors, or of what else has a name.
template <class Named>
std::vector<std::string> names_of(const std::vector<Named>& all) {
    std::vector<std::string> names;
    for (const Named& one : all) names.push_back(one.name);
    return names;
}

enum class ModelMode { train, evaluate };

/// A model: named tensors as inputs and outputs, and its weights.
class Model {
  public:
    virtual ~Model() = default;

    /// Inputs and outputs have samples as their first dimension.
    virtual NamedTensors forward(const NamedTensors& inputs) = 0;

    /// Returns the model's own tensors, always in the same order. Parameters are fp32; buffers may
    /// be floats (running statistics, averaged over leaves) or single integers (counters, which all
    /// leaves advance alike).
    virtual NamedTensors parameters() const = 0;
    virtual NamedTensors buffers() const = 0;

    /// Returns the parameters that are not trained: requires_grad was false when the model was
    /// made, or freeze() named them. parameters() does not contain them.
    virtual NamedTensors frozen() const { return {}; }

    /// Stops training of the parameters with these names. Call it before any computation.
    virtual void freeze(const std::set<std::string>& names) = 0;

    /// Returns true if the model's file has the values of frozen(), so that checkpoints need not
    /// have them.
    virtual bool has_frozen_in_file() const { return false; }

    /// What an export contains besides, and stays as it is: other names of tied parameters, and
    /// buffers that nothing writes. The model's file has them.
    virtual NamedTensors fixed() const { return {}; }

    virtual void set_mode(ModelMode mode) = 0;

    virtual ModelAuthor author() const { return ModelAuthor::lockstep; }

    /// Returns the names of forward()'s inputs; empty if they are unknown.
    virtual std::vector<std::string> input_names() const { return {}; }
};

/// Freezes the parameters that match `patterns`, "features.*,stem.*". Errors: E107 for a pattern
/// that matches no trained parameter, and if they match all.
void freeze_named(Model& model, const std::string& patterns);

/// Returns the error for an --output that is none of `names`.
Error no_output(const std::string& wanted, const std::vector<std::string>& names);

/// Keeps the output called `wanted` alone; "": all, that called "loss" first. Errors: E103 if there
/// is no `wanted`.
template <class Output>
void choose_output(std::vector<Output>& outputs, const std::string& wanted) {
    const auto found = std::ranges::find(outputs, wanted.empty() ? "loss" : wanted, &Output::name);
    check(found != outputs.end() || wanted.empty(),
          [&] { return no_output(wanted, names_of(outputs)); });
    if (!wanted.empty())
        outputs = {*found};
    else if (found != outputs.end())
        std::rotate(outputs.begin(), found, found + 1);
}

/// Makes a model of a module. `output` is that of choose_output().
std::unique_ptr<Model> model_of(std::shared_ptr<Classifier> module,
                                ModelAuthor author = ModelAuthor::lockstep,
                                const std::string& output = "");

/// Moves all tensors of `model` to `device`, and all later inputs; its outputs are there, too.
std::unique_ptr<Model> on_device(std::unique_ptr<Model> model, at::Device device);

/// Returns the device of its parameters.
at::Device device_of(const Model& model);

NamedTensors moved_to(at::Device device, NamedTensors tensors);

/// The type of a model's outputs that were computed in 16 bits.
enum class ReducedOutputs {
    fp32,            ///< copies of them
    as_is_to_learn,  ///< 16 bits if gradients are wanted, without copies; otherwise fp32
};

/// Returns `model`, whose operators compute in `precision` if they gain by it; tf32 is the GPU's
/// affair. Inputs, parameters, buffers and gradients stay fp32, outputs as `outputs` says.
std::unique_ptr<Model> with_precision(std::unique_ptr<Model> model,
                                      Precision precision,
                                      ReducedOutputs outputs = ReducedOutputs::fp32);

/// Returns "--precision bf16 is 1.5 times as slow as fp32 here: 3 ms a micro-batch against 2 ms";
/// "" if it is faster, or slower only within the error of two measurements.
std::string slower_text(const std::string& precision, double full_s, double reduced_s);

/// Returns LibTorch's own message: the first line of its errors, the last of TorchScript's.
std::string reason_of(const std::exception& error);

/// Returns the same for code by `author`: the first line of an exception from a user's class.
std::string reason_of(const std::exception& error, ModelAuthor author);

/// Throws if the cause is known. Errors: those of as_error() (memory, files); E681 if `error` is
/// CUDA's, E695 if an operator may give other bits each time, E696 if a GPU has no memory left.
void throw_if_known(const std::exception& error);

/// The part of a model's code that runs.
enum class ModelPlace { constructor, train, forward, backward };

/// Call it in a handler of exceptions from a model's code. Errors: the exception itself if it is an
/// Error, reports that a GPU has no memory, or comes from a model of ours; those of
/// throw_if_known(); those of as_error(); else E250 with the exception's first line.
[[noreturn]] void rethrow_of_model(ModelAuthor author, ModelPlace place);

/// Returns the result of `work`, which runs a model's code. Errors: those above.
template <class Work>
decltype(auto) in_model(ModelAuthor author, ModelPlace place, Work&& work) {
    try {
        return work();
    } catch (...) {
        rethrow_of_model(author, place);
    }
}

/// Returns the result of `work`. LibTorch's exceptions become those of throw_if_known().
template <class Work>
decltype(auto) with_known_errors(Work&& work) {
    try {
        return work();
    } catch (const c10::Error& error) {
        throw_if_known(error);
        throw;
    }
}

}  // namespace lockstep
