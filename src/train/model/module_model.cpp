// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "checkpoint/name_patterns.hpp"
#include "model/model.hpp"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

template <class Items>
NamedTensors tensors_in(const Items& items) {
    NamedTensors tensors;
    for (const auto& item : items) tensors.push_back({item.key(), item.value()});
    return tensors;
}

class ModuleModel : public Model {
  public:
    ModuleModel(std::shared_ptr<Classifier> module, ModelAuthor author)
        : module_(std::move(module)), author_(author) {
        for (const auto& parameter : module_->named_parameters())
            if (!parameter.value().requires_grad()) frozen_.insert(parameter.key());
    }

    NamedTensors forward(const NamedTensors& inputs) override {
        std::vector<at::Tensor> values;
        for (const NamedTensor& input : inputs) values.push_back(input.tensor);
        check_frozen();
        return {{"output", module_->forward_all(values)}};
    }
    NamedTensors parameters() const override { return those(Learning::yes); }
    NamedTensors frozen() const override { return those(Learning::no); }
    void freeze(const std::set<std::string>& names) override {
        for (auto& parameter : module_->named_parameters())
            if (names.contains(parameter.key())) parameter.value().set_requires_grad(false);
        frozen_.insert(names.begin(), names.end());
    }
    NamedTensors buffers() const override { return tensors_in(module_->named_buffers()); }
    void set_mode(ModelMode mode) override { module_->train(mode == ModelMode::train); }
    ModelAuthor author() const override { return author_; }

  private:
    enum class Learning { no, yes };
    NamedTensors those(Learning wanted) const {
        NamedTensors found = tensors_in(module_->named_parameters());
        std::erase_if(found, [&](const NamedTensor& one) {
            return frozen_.contains(one.name) == (wanted == Learning::yes);
        });
        return found;
    }

    // One that thaws would have gradients that nobody sums.
    void check_frozen() const {
        if (frozen_.empty()) return;
        for (const NamedTensor& one : frozen())
            check(!one.tensor.requires_grad(), [&] {
                return Error("E250",
                             fmt::format("parameter '{}' learns now", one.name),
                             "requires_grad was false when the model was made, and which "
                             "parameters learn stays the same in a run",
                             "set requires_grad in the model's constructor alone");
            });
    }

    std::shared_ptr<Classifier> module_;
    ModelAuthor author_;
    std::set<std::string> frozen_;  ///< names
};

}  // namespace

torch::Tensor Classifier::forward_all(const std::vector<torch::Tensor>& inputs) {
    check(inputs.size() == 1, [&] {
        return Error("E217",
                     fmt::format("--inputs names {} fields", inputs.size()),
                     "this model takes one input",
                     "name one, or use a model whose forward_all() takes several");
    });
    return forward(inputs.front());
}

const at::Tensor& only(const NamedTensors& tensors) {
    expect(tensors.size() == 1, "there is one tensor");
    return tensors.front().tensor;
}

void freeze_named(Model& model, const std::string& patterns) {
    const std::vector<std::string> wanted = name_patterns(patterns);
    std::set<std::string> learning, frozen;
    for (const NamedTensor& parameter : model.parameters()) {
        learning.insert(parameter.name);
        if (matches_any(wanted, parameter.name)) frozen.insert(parameter.name);
    }
    check_patterns_match("freeze", wanted, learning, "the model has no parameter that learns");
    check(wanted.empty() || frozen.size() < learning.size(), [&] {
        return Error("E107",
                     fmt::format("--freeze '{}' leaves nothing to learn", printable(patterns)),
                     fmt::format("it matches all {} parameters of the model", learning.size()),
                     "freeze fewer of them");
    });
    model.freeze(frozen);
}

std::unique_ptr<Model> model_of(std::shared_ptr<Classifier> module, ModelAuthor author) {
    return std::make_unique<ModuleModel>(std::move(module), author);
}

}  // namespace lockstep
