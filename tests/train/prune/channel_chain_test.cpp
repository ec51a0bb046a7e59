// SPDX-License-Identifier: Apache-2.0
#include "prune/channel_chain.hpp"

#include "model/model_file.hpp"
#include "support/unit.hpp"

#include <torch/torch.h>

namespace lockstep {
namespace {

void load(const Model& model, const WeightMap& weights) {
    const torch::NoGradGuard no_gradients;
    for (auto& [name, tensor] : weight_map(model)) {
        ASSERT_EQ(tensor.sizes(), weights.at(name).sizes()) << name;
        tensor.copy_(weights.at(name));
    }
}

// Every second channel of each layer gives nothing: weights, biases and shifts of norms are zero.
void weaken(const Model& model, const std::vector<std::string>& layers) {
    const torch::NoGradGuard no_gradients;
    auto weights = weight_map(model);
    for (const std::string& layer : layers)
        for (const char* part : {".weight", ".bias", ".running_mean"})
            if (const auto found = weights.find(layer + part); found != weights.end())
                for (std::int64_t i = 1; i < found->second.size(0); i += 2)
                    found->second[i].zero_();
}

struct PruneCase {
    std::string model;
    std::vector<std::string> layers;  ///< with channels to take
    std::string channels;             ///< when half of them are gone
};

class PruneChannels : public testing::TestWithParam<PruneCase> {};
INSTANTIATE_TEST_SUITE_P(
    Models,
    PruneChannels,
    testing::Values(PruneCase{"mlp", {"fc1"}, "128"},
                    PruneCase{"cnn", {"conv1", "conv2", "fc1"}, "16,32,256"},
                    PruneCase{"cnn-bn", {"conv1", "norm1", "conv2", "norm2", "fc1"}, "16,32,256"}),
    [](const auto& one) { return one.param.model == "cnn-bn" ? "CnnBatchNorm" : one.param.model; });

TEST_P(PruneChannels, KeepsWhatTheModelGivesWhereTheOthersGiveNothing) {
    const PruneCase& one = GetParam();
    const ModelShape shape{1, 9, 13, 5};
    const auto model = open_model({.name = one.model}, shape, 3);
    weaken(*model, one.layers);
    WeightMap weights = weight_map(*model);
    prune_channels(one.model, 0.5, weights);
    EXPECT_EQ(channels_in(one.model, weights), one.channels);
    const auto pruned = open_model({.name = one.model, .channels = one.channels}, shape, 4);
    load(*pruned, weights);
    model->set_mode(ModelMode::evaluate);
    pruned->set_mode(ModelMode::evaluate);
    const NamedTensors images = {{"images", torch::rand({4, 1, 9, 13})}};
    const at::Tensor whole = only(model->forward(images)), less = only(pruned->forward(images));
    EXPECT_TRUE(whole.allclose(less, 1e-4, 1e-5)) << whole << less;
    EXPECT_GT(whole.abs().max().item<float>(), 1e-3F);
}

TEST(PruneChannels, KeepsTheFirstOfEqualOnesAndAtLeastOne) {
    WeightMap weights{{"fc1.weight", torch::tensor({{1.F}, {-3.F}, {2.F}, {3.F}, {2.F}})},
                      {"fc2.weight", torch::tensor({{1.F, 2.F, 3.F, 4.F, 5.F}})}};
    WeightMap few = weights;
    prune_channels("mlp", 0.6, weights);
    EXPECT_TRUE(weights["fc1.weight"].equal(torch::tensor({{-3.F}, {2.F}, {3.F}})));
    EXPECT_TRUE(weights["fc2.weight"].equal(torch::tensor({{2.F, 3.F, 4.F}})));
    prune_channels("mlp", 0.01, few);
    EXPECT_TRUE(few["fc2.weight"].equal(torch::tensor({{2.F}})));
}

TEST(CheckPrunable, SaysWhyOthersAreNot) {
    for (const char* model : {"cnn", "cnn-bn", "mlp"}) check_prunable(model);
    const auto said = [](const std::string& model) {
        return caught_text([&] { check_prunable(model); });
    };
    EXPECT_THAT(said("resnet18"), HasSubstr("E106: 'resnet18' cannot be pruned"));
    EXPECT_THAT(said("resnet18"), HasSubstr("its shortcuts add up the channels"));
    EXPECT_THAT(said("net.pt"), HasSubstr("what its layers are is in its file"));
    EXPECT_THAT(said("mine"), HasSubstr("what its layers are is not known"));
}

TEST(Channels, AreAsManyAsTheModelHas) {
    const auto code = [](const std::string& model, const std::string& channels) {
        return caught_code([&] {
            open_model({.name = model, .channels = channels}, {1, 8, 8, 5}, 1);
        });
    };
    EXPECT_EQ(code("cnn", "3,5,7"), "");
    EXPECT_EQ(code("mlp", "3"), "");
    for (const char* channels : {"3,5", "3,5,7,9", "3,x,7", "3,0,7", "3,,7", "3,5,99999999999"})
        EXPECT_EQ(code("cnn", channels), "E103") << channels;
}

}  // namespace
}  // namespace lockstep
