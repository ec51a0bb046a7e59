// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/model.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/split.hpp"

#include "checkpoint/initial_weights.hpp"
#include "model/built_in.hpp"
#include "model/model.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out, bool bias) {
    return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(bias));
}

nn::Linear linear(std::int64_t in, std::int64_t out, bool bias) {
    return nn::Linear(nn::LinearOptions(in, out).bias(bias));
}

// max_pool2d(relu(x), 2), to the bit: the greatest of four is positive, or none is. A quarter of
// the values go through relu this way round.
Tensor pooled_relu(const Tensor& x) {
    return torch::relu(torch::max_pool2d(x, 2));
}

using Channels = std::vector<std::int64_t>;

// Those of --channels, as many as there are in `usual`, or else these.
Channels channels_of(const ModelSettings& settings, const Channels& usual) {
    if (settings.channels.empty()) return usual;
    constexpr std::int64_t most = 1 << 20;
    Channels channels;
    for (const std::string& part : split(settings.channels, ',')) {
        const auto count = parse_integer(part);
        channels.push_back(count && *count <= most ? *count : 0);
    }
    check(channels.size() == usual.size() && std::ranges::min(channels) >= 1,
          "E103",
          fmt::format("--channels is '{}'", settings.channels),
          fmt::format(
              "--model {} takes {} whole number(s) of 1 to {}", settings.name, usual.size(), most),
          fmt::format("for example --channels {}", fmt::join(usual, ",")));
    return channels;
}

std::int64_t features_after_two_pools(const ModelShape& shape, std::int64_t channels) {
    check(shape.height >= 4 && shape.width >= 4,
          "E217",
          fmt::format("images are {}x{}", shape.height, shape.width),
          "this model halves them twice and needs at least 4x4",
          "use --model mlp, or larger images");
    return channels * (shape.height / 4) * (shape.width / 4);
}

enum class Norms { none, by_batch };

// The small CNN of "Accelerate Model Training with PyTorch 2.X": two convolutions, two linears. Or
// the same model with batch normalisation after each convolution and dropout before the classifier.
template <Norms norms>
class Cnn : public Classifier {
  public:
    Cnn(const ModelShape& shape, const ModelSettings& settings) {
        const Channels wide = channels_of(settings, {32, 64, 512});
        const std::int64_t features = features_after_two_pools(shape, wide[1]);
        conv1_ = register_module("conv1", conv3x3(shape.channels, wide[0], settings.bias));
        if (has_norms) norm1_ = register_module("norm1", nn::BatchNorm2d(wide[0]));
        conv2_ = register_module("conv2", conv3x3(wide[0], wide[1], settings.bias));
        if (has_norms) norm2_ = register_module("norm2", nn::BatchNorm2d(wide[1]));
        fc1_ = register_module("fc1", linear(features, wide[2], settings.bias));
        if (has_norms) dropout_ = register_module("dropout", nn::Dropout(0.25));
        fc2_ = register_module("fc2", linear(wide[2], shape.classes, settings.bias));
    }

    Tensor forward(const Tensor& images) override {
        Tensor x = conv1_(images);
        x = conv2_(pooled_relu(has_norms ? norm1_(x) : x));
        x = pooled_relu(has_norms ? norm2_(x) : x);
        x = torch::relu(fc1_(x.flatten(1)));
        return fc2_(has_norms ? dropout_(x) : x);
    }

  private:
    static constexpr bool has_norms = norms == Norms::by_batch;

    nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
    nn::BatchNorm2d norm1_{nullptr}, norm2_{nullptr};
    nn::Linear fc1_{nullptr}, fc2_{nullptr};
    nn::Dropout dropout_{nullptr};
};

class Mlp : public Classifier {
  public:
    Mlp(const ModelShape& shape, const ModelSettings& settings) {
        const std::int64_t pixels = shape.channels * shape.height * shape.width;
        const std::int64_t wide = channels_of(settings, {256})[0];
        fc1_ = register_module("fc1", linear(pixels, wide, settings.bias));
        fc2_ = register_module("fc2", linear(wide, shape.classes, settings.bias));
    }

    Tensor forward(const Tensor& images) override {
        return fc2_(torch::relu(fc1_(images.flatten(1))));
    }

  private:
    nn::Linear fc1_{nullptr}, fc2_{nullptr};
};

template <class Items>
NamedTensors tensors_in(const Items& items) {
    NamedTensors tensors;
    for (const auto& item : items) tensors.push_back({item.key(), item.value()});
    return tensors;
}

class ModuleModel : public Model {
  public:
    ModuleModel(std::shared_ptr<Classifier> module, ModelAuthor author, std::string output)
        : module_(std::move(module)), author_(author), output_(std::move(output)) {
        for (const auto& parameter : module_->named_parameters())
            if (!parameter.value().requires_grad()) frozen_.insert(parameter.key());
    }

    NamedTensors forward(const NamedTensors& inputs) override {
        std::vector<at::Tensor> values;
        for (const NamedTensor& input : inputs) values.push_back(input.tensor);
        check_frozen();
        NamedTensors outputs = module_->forward_named(values);
        const bool has_all = std::ranges::all_of(
            outputs, [](const NamedTensor& one) { return one.tensor.defined(); });
        check(has_all && !outputs.empty(), [] {
            return Error("E217",
                         "the model returns no tensor",
                         "an output of its forward() is empty",
                         "return a tensor from it");
        });
        choose_output(outputs, output_);
        return outputs;
    }
    NamedTensors parameters() const override { return those(Learning::yes); }
    NamedTensors frozen() const override { return those(Learning::no); }
    void freeze(const std::set<std::string>& names) override {
        for (auto& parameter : module_->named_parameters())
            if (names.contains(parameter.key())) parameter.value().set_requires_grad(false);
        frozen_.insert(names.begin(), names.end());
    }
    NamedTensors buffers() const override { return tensors_in(module_->named_buffers()); }
    void set_mode(ModelMode mode) override {
        in_model(author_, ModelPlace::train, [&] { module_->train(mode == ModelMode::train); });
    }
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
    std::string output_;
    std::set<std::string> frozen_;  ///< names
};

template <class Network>
ModelFactory factory_of() {
    return [](const ModelShape& shape, const ModelSettings& settings) {
        return std::make_shared<Network>(shape, settings);
    };
}

std::map<std::string, ModelFactory>& registry() {
    static std::map<std::string, ModelFactory> known = [] {
        auto all = models::convolutional_models();
        all.insert({{"cnn", factory_of<Cnn<Norms::none>>()},
                    {"cnn-bn", factory_of<Cnn<Norms::by_batch>>()},
                    {"gpt", models::token_decoder},
                    {"mlp", factory_of<Mlp>()},
                    {"vit_b_16", models::vit_b_16}});
        return all;
    }();
    return known;
}

const char* place_text(ModelPlace place) {
    constexpr std::array texts{"constructor", "train()", "forward()", "backward pass"};
    return texts.at(static_cast<std::size_t>(place));
}

Error failure(ModelPlace place, const std::string& reason) {
    const std::string where = place_text(place);
    return Error("E250", "the model's " + where + " failed", reason, "fix the model's " + where);
}

}  // namespace

void register_model(const std::string& name, ModelFactory factory) {
    registry()[name] = std::move(factory);
}

std::vector<std::string> model_names() {
    std::vector<std::string> names;
    for (const auto& [name, factory] : registry()) names.push_back(name);
    return names;
}

std::shared_ptr<Classifier> make_model(const ModelSettings& settings,
                                       const ModelShape& shape,
                                       std::uint64_t seed) {
    const auto found = registry().find(settings.name);
    const auto names = model_names();
    check(found != registry().end(),
          "E103",
          fmt::format("no model '{}'", settings.name),
          fmt::format("there are {}", fmt::join(names, ", ")),
          did_you_mean(settings.name, names));
    torch::manual_seed(CounterRandom(Purpose::initial_weights, {seed}).next() >> 1);
    return found->second ? found->second(shape, settings) : nullptr;
}

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

std::int64_t element_count(const NamedTensors& tensors) {
    std::int64_t count = 0;
    for (const NamedTensor& one : tensors) count += one.tensor.numel();
    return count;
}

void freeze_named(Model& model, const std::string& patterns) {
    const std::vector<std::string> wanted = name_patterns(patterns);
    std::set<std::string> learning, frozen;
    for (const NamedTensor& parameter : model.parameters()) {
        learning.insert(parameter.name);
        if (matches_any(wanted, parameter.name)) frozen.insert(parameter.name);
    }
    check_patterns_match("freeze", wanted, learning, "the model has no parameter that learns");
    check(wanted.empty() || frozen.size() < learning.size(),
          "E107",
          fmt::format("--freeze '{}' leaves nothing to learn", printable(patterns)),
          fmt::format("it matches all {} parameters of the model", learning.size()),
          "freeze fewer of them");
    model.freeze(frozen);
}

NamedTensors Classifier::forward_named(const std::vector<torch::Tensor>& inputs) {
    return {{"output", forward_all(inputs)}};
}

Error no_output(const std::string& wanted, const std::vector<std::string>& names) {
    return {"E103",
            fmt::format("--output {}: the model has no such output", printable(wanted)),
            fmt::format("it has {}", fmt::join(names, ", ")),
            did_you_mean(wanted, names)};
}

std::unique_ptr<Model> model_of(std::shared_ptr<Classifier> module,
                                ModelAuthor author,
                                const std::string& output) {
    return std::make_unique<ModuleModel>(std::move(module), author, output);
}

std::string reason_of(const std::exception& error) {
    const auto* const torch = dynamic_cast<const c10::Error*>(&error);
    std::string text = torch != nullptr ? torch->what_without_backtrace() : error.what();
    // Since 2.15 an exception of TorchScript is LibTorch's own: the reason follows its traceback.
    if (torch != nullptr && !text.starts_with("The following operation failed in the TorchScript"))
        return text.substr(0, text.find('\n'));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
}

std::string reason_of(const std::exception& error, ModelAuthor author) {
    const bool is_torchs = dynamic_cast<const c10::Error*>(&error) != nullptr;
    const std::string text = error.what();
    const std::string reason = is_torchs || author != ModelAuthor::user_class
                                   ? reason_of(error)
                                   : text.substr(0, text.find('\n'));
    return reason.empty() ? "its exception has no text" : reason;
}

void throw_if_known(const std::exception& error) {
    if (const Error known = as_error(error); known.exit_code() != ExitCode::bug) throw known;
    const std::string reason = reason_of(error);
    if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr)
        throw Error("E696",
                    "a GPU has no memory left for what the model computes",
                    reason,
                    "--graph off needs less, with the same bits; or use --micro-batches 2 or more, "
                    "--precision fp16, more ranks or a smaller --batch");
    if (reason.find("does not have a deterministic implementation") != reason.npos)
        throw Error("E695",
                    "the model has an operator that may give other bits each time on this device",
                    reason.substr(0, reason.find(',')),
                    "replace it in the model, or train with --device cpu");
    for (const char* library : {"CUDA error", "cuDNN error", "CUBLAS_STATUS"})
        if (reason.find(library) != reason.npos)
            throw Error("E681",
                        "CUDA failed under LibTorch",
                        reason,
                        "nvidia-smi and the kernel's log (dmesg, 'NVRM: Xid') say whether the GPU "
                        "is well; start the same command again to resume");
}

void rethrow_of_model(ModelAuthor author, ModelPlace place) {
    try {
        throw;
    } catch (const Error&) {
        throw;
    } catch (const c10::OutOfMemoryError&) {
        throw;
    } catch (const std::exception& error) {
        throw_if_known(error);
        if (author == ModelAuthor::lockstep) throw;
        throw failure(place, reason_of(error, author));
    } catch (...) {
        throw failure(place, "it threw what is no std::exception");
    }
}

}  // namespace lockstep
