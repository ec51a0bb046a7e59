// SPDX-License-Identifier: Apache-2.0
// What is trained, whatever it is made of.
#pragma once

#include "lockstep/train/model.hpp"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// A tensor that others find by its name; shares its memory.
struct NamedTensor {
    std::string name;
    at::Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

/// The only one there is.
const at::Tensor& only(const NamedTensors& tensors);

enum class ModelMode { train, evaluate };

/// Named tensors in, named tensors out, and weights between.
class Model {
  public:
    virtual ~Model() = default;

    /// Inputs and outputs have samples as their first dimension.
    virtual NamedTensors forward(const NamedTensors& inputs) = 0;

    /// The model's own tensors, always in the same order. Parameters are fp32; buffers may be
    /// floats (running statistics, averaged over leaves) or single integers (counters, which all
    /// leaves advance alike).
    virtual NamedTensors parameters() const = 0;
    virtual NamedTensors buffers() const = 0;

    /// Parameters that do not learn: requires_grad was false when the model was made, or freeze()
    /// named them. parameters() has none of them.
    virtual NamedTensors frozen() const { return {}; }

    /// Parameters of these names learn no longer. Before anything is computed.
    virtual void freeze(const std::set<std::string>& names) = 0;

    /// Whether the model's file has the values of frozen(), so that checkpoints need not.
    virtual bool has_frozen_in_file() const { return false; }

    /// What an export contains besides, and stays as it is: other names of tied parameters, and
    /// buffers that nothing writes. The model's file has them.
    virtual NamedTensors fixed() const { return {}; }

    virtual void set_mode(ModelMode mode) = 0;

    virtual ModelAuthor author() const { return ModelAuthor::lockstep; }

    /// What forward() calls its inputs; empty where nobody can know.
    virtual std::vector<std::string> input_names() const { return {}; }
};

/// Freezes what `patterns`, "features.*,stem.*", name. Errors: E107 for a pattern that names no
/// parameter that learns, and if they name all.
void freeze_named(Model& model, const std::string& patterns);

/// A module with one input and one output, called "output".
std::unique_ptr<Model> model_of(std::shared_ptr<Classifier> module,
                                ModelAuthor author = ModelAuthor::lockstep);

}  // namespace lockstep
