// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/model_table.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr ModelShape fashion{1, 28, 28, 10};
constexpr ModelShape imagenet{3, 224, 224, 1000};
constexpr ModelShape text{1, 1, 256, 256, 256};
constexpr ModelShape pixels{3, 256, 256, 2};
constexpr std::string_view image_classes = "classification";

std::int64_t mlp(const ModelShape& s) {
    return (s.channels * s.height * s.width + 1) * 256 + 257 * s.classes;
}

std::int64_t cnn(const ModelShape& s) {
    const std::int64_t features = 64 * (s.height / 4) * (s.width / 4);
    return (9 * s.channels + 1) * 32 + (9 * 32 + 1) * 64 + (features + 1) * 512 + 513 * s.classes;
}

// A network whose first convolution and last layer alone depend on the data.
template <std::int64_t usual, std::int64_t first, std::int64_t features>
std::int64_t fixed_within(const ModelShape& s) {
    return usual + (s.channels - imagenet.channels) * first +
           (s.classes - imagenet.classes) * (features + 1);
}

// Returns the same with a position for each patch of 16x16, and one for the class.
std::int64_t vit(const ModelShape& s) {
    const std::int64_t patches = (s.height / 16) * (s.width / 16);
    return fixed_within<86'567'656, 16 * 16 * 768, 768>(s) + (patches - 14 * 14) * 768;
}

template <std::int64_t usual, std::int64_t first, std::int64_t features>
constexpr ModelFacts convolutional(std::string_view name) {
    return {name, imagenet, "8x8 and more", image_classes, fixed_within<usual, first, features>};
}

// 6 layers of 384: their embeddings of tokens and positions, attention and norms.
std::int64_t gpt(const ModelShape& s) {
    constexpr std::int64_t layers = 6, width = 384;
    return (s.vocabulary + s.width + 2) * width + layers * (12 * width + 13) * width;
}

std::int64_t unet(const ModelShape& s) {
    return 31'037'698 + (s.channels - 3) * 3 * 3 * 64 + (s.classes - 2) * (64 + 1);
}

std::int64_t cnn_bn(const ModelShape& s) {
    return cnn(s) + 2 * (32 + 64);
}

constexpr ModelFacts table[] = {{"mlp", fashion, "any", image_classes, mlp},
                                {"cnn", fashion, "4x4 and more", image_classes, cnn},
                                {"cnn-bn", fashion, "4x4 and more", image_classes, cnn_bn},
                                convolutional<5'288'548, 3 * 3 * 32, 1280>("efficientnet_b0"),
                                convolutional<7'978'856, 7 * 7 * 64, 1024>("densenet121"),
                                {"gpt", text, "tokens", "next-token", gpt},
                                convolutional<11'689'512, 7 * 7 * 64, 512>("resnet18"),
                                convolutional<21'797'672, 7 * 7 * 64, 512>("resnet34"),
                                convolutional<25'557'032, 7 * 7 * 64, 2048>("resnet50"),
                                {"unet", pixels, "16x16 and more", "segmentation", unet},
                                convolutional<66'347'960, 3 * 3 * 64, 2560>("efficientnet_b7"),
                                {"vit_b_16", imagenet, "multiples of 16", image_classes, vit}};

}  // namespace

std::span<const ModelFacts> built_in_models() {
    return table;
}

const ModelFacts* find_built_in(std::string_view name) {
    const auto found = std::ranges::find(table, name, &ModelFacts::name);
    return found == std::end(table) ? nullptr : found;
}

ModelSource source_of(const std::string& model) {
    const std::filesystem::path ending = std::filesystem::path(model).extension();
    if (ending == ".so") return ModelSource::plugin;
    if (ending == ".pt" || ending == ".pth") return ModelSource::script;
    if (ending == ".pt2") return ModelSource::program;
    return ModelSource::registered;
}

}  // namespace lockstep
