// SPDX-License-Identifier: Apache-2.0
// The models that make_model() knows besides its own small ones, and the layers that they are made
// of: with one input and one output, and chains of them. Parameters have PyTorch's names, shapes
// and initial values, so that weights can be exchanged in both directions. Errors of each model:
// E217.
#pragma once

#include "lockstep/train/model.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::models {

using at::Tensor;

/// A layer with one input and one output.
class Layer : public Classifier {
  protected:
    /// Makes a part of it, which is registered as `name`.
    template <class Part, class... Arguments>
    std::shared_ptr<Part> part(const std::string& name, Arguments&&... arguments) {
        return register_module(name, std::make_shared<Part>(std::forward<Arguments>(arguments)...));
    }
};

/// A layer without parameters.
using Step = std::function<Tensor(const Tensor&)>;

/// Layers and steps, one after another.
class Chain : public Layer {
  public:
    Chain& add(const std::string& name, std::shared_ptr<Layer> layer);
    template <class Part, class... Arguments>
    Chain& add(const std::string& name, Arguments&&... arguments) {
        return add(name, std::make_shared<Part>(std::forward<Arguments>(arguments)...));
    }
    Chain& then(Step step);
    Tensor forward(const Tensor& x) override;

  private:
    std::vector<Step> steps_;
};

/// The shape of a square kernel.
struct ConvShape {
    std::int64_t in = 1, out = 1, kernel = 3, stride = 1, groups = 1;
    bool bias = false;
    /// Nothing: the size of maps changes only by the stride.
    std::optional<std::int64_t> padding = std::nullopt;
};

/// The number of connections that scales a convolution's initial weights (He et al.,
/// https://arxiv.org/abs/1502.01852).
enum class Fan { in, out };

/// [n, in, H, W] -> [n, out, H', W']; weights are normal with variance 2 / fan, biases 0.
class Conv : public Layer {
  public:
    explicit Conv(const ConvShape& shape, Fan fan = Fan::out);
    Tensor forward(const Tensor& x) override;
    Tensor weight, bias;

  private:
    ConvShape shape_;
};

/// Parameters of running statistics; the defaults are PyTorch's.
struct NormRule {
    double epsilon = 1e-5, momentum = 0.1;
};

/// Checks the input [n, channels, ...] of a batch norm in training. Errors: c10::Error, in
/// PyTorch's words, if a channel has only one value: it has no statistics.
void check_has_statistics(const Tensor& x);

/// Normalises over all dimensions but the second. Errors: check_has_statistics()'s, in training.
class BatchNorm : public Layer {
  public:
    explicit BatchNorm(std::int64_t channels, NormRule rule = {});
    Tensor forward(const Tensor& x) override;

  private:
    Tensor weight_, bias_, mean_, variance_, batches_;
    NormRule rule_;
};

/// [..., in] -> [..., out].
class Linear : public Layer {
  public:
    Linear(std::int64_t in, std::int64_t out, const ModelSettings& settings);
    Tensor forward(const Tensor& x) override;
    Tensor weight;
    Tensor bias;  ///< undefined if the model has none
};

/// Zeroes single values while training.
class Dropout : public Layer {
  public:
    explicit Dropout(double probability) : probability_(probability) {}
    Tensor forward(const Tensor& x) override;

  private:
    double probability_;
};

/// Zeroes whole samples while training (Huang et al., https://arxiv.org/abs/1603.09382).
class StochasticDepth : public Layer {
  public:
    explicit StochasticDepth(double probability) : probability_(probability) {}
    Tensor forward(const Tensor& x) override;

  private:
    double probability_;
};

/// Applies ReLU; overwrites its argument.
Tensor rectify(const Tensor& x);

/// Returns the mean of each map: [n, C, H, W] -> [n, C].
Tensor map_means(const Tensor& x);

/// Checks the size of images. Errors: E217 if a side is less than `side`.
void check_sides(const ModelShape& shape, std::int64_t side);

/// Returns those of resnet18, resnet34, resnet50, densenet121, efficientnet_b0, efficientnet_b7 and
/// unet.
std::map<std::string, ModelFactory> convolutional_models();

std::shared_ptr<Classifier> vit_b_16(const ModelShape& shape, const ModelSettings& settings);

/// Makes "gpt": tokens -> logits of each token's next; by default 6 layers and heads, 384 wide.
std::shared_ptr<Classifier> token_decoder(const ModelShape& shape, const ModelSettings& settings);

/// A decoder transformer over tokens, with the names and shapes of GPT-2's parameters (Radford et
/// al., "Language Models are Unsupervised Multitask Learners", 2019). The default is the smallest
/// GPT-2: 124,439,808 parameters.
struct GptShape {
    std::int64_t vocabulary = 50257;
    std::int64_t context = 1024;  ///< largest length of a sequence
    std::int64_t layers = 12, heads = 12, width = 768;
    double dropout = 0.1;
};

/// Makes the model: i64 [n, T] with T <= context -> logits f32 [n, T, vocabulary] of each token's
/// next. Errors: E217 a width that heads do not divide; of forward(), a sequence that is too long.
std::shared_ptr<Layer> gpt(const GptShape& shape, const ModelSettings& settings);

/// Makes a U-Net with batch norm: one logit for each class and pixel (Ronneberger et al.,
/// https://arxiv.org/abs/1505.04597). [n, C, H, W] -> logits [n, classes, H, W]; the first level
/// has `settings.width` channels or 64, the last 16 times as many. Errors: E217 sides of less than
/// 16 pixels.
std::shared_ptr<Classifier> unet(const ModelShape& shape, const ModelSettings& settings);

}  // namespace lockstep::models
