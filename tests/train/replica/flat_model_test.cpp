// SPDX-License-Identifier: Apache-2.0
#include "replica/flat_model.hpp"

#include <cstdlib>
#include <memory>

#include <gtest/gtest.h>
#include <torch/nn.h>

namespace lockstep {
namespace {

struct Flat {
    float* data;
    std::size_t count;
    explicit Flat(std::size_t n)
        : data(static_cast<float*>(std::aligned_alloc(64, n * sizeof(float)))), count(n) {
        std::fill_n(data, n, 0.0F);
    }
    ~Flat() { std::free(data); }
    Flat(const Flat&) = delete;
    Flat& operator=(const Flat&) = delete;
};

class FlatCnn : public testing::Test {
  protected:
    const std::shared_ptr<Classifier> module = make_model({"cnn-bn", true}, {1, 8, 8, 10}, 1);
    FlatModel model{model_of(module)};
    Flat values{model.layout().size()}, slot{model.layout().size()};
    at::Tensor images = torch::rand({4, 1, 8, 8}), labels = torch::tensor({0, 1, 2, 3});

    void SetUp() override {
        model.copy_to(values.data, {0, values.count});
        model.adopt(values.data);
    }
    void backward() {
        torch::nn::functional::cross_entropy(module->forward(images), labels).backward();
    }
};

TEST_F(FlatCnn, ParametersBecomeViewsThatKeepTheirValues) {
    const auto fresh = make_model({"cnn-bn", true}, {1, 8, 8, 10}, 1);
    const auto parameters = module->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_TRUE(parameters[i].equal(fresh->parameters()[i]));
        EXPECT_EQ(parameters[i].const_data_ptr(), values.data + model.parameters()[i].range.begin);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameters[i].const_data_ptr()) % 64, 0U);
    }
}

TEST_F(FlatCnn, GradientsAccumulateIntoTheSlotAndEqualAutogradsOwn) {
    const auto plain = make_model({"cnn-bn", true}, {1, 8, 8, 10}, 1);
    plain->eval();
    module->eval();
    model.use_gradients(slot.data);
    backward();
    torch::nn::functional::cross_entropy(plain->forward(images), labels).backward();
    const auto expected = plain->parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(model.gradient_in_place(i));
        EXPECT_TRUE(module->parameters()[i].grad().equal(expected[i].grad())) << i;
    }
}

TEST_F(FlatCnn, BuffersOfLeavesAreAveragedAndCountersAdvanceTogether) {
    model.restore_buffers(values.data);
    module->forward(images);
    std::fill_n(slot.data, slot.count, 0.0F);
    model.store_buffers(slot.data);
    const FloatRange state = model.layout().state();
    for (std::size_t i = state.begin; i < state.end; ++i) values.data[i] = slot.data[i];
    model.finish_buffers(values.data);
    for (const auto& [name, count] : model.counters()) EXPECT_EQ(count, 1) << name;
    const auto buffers = module->named_buffers();
    for (const FlatTensor& place : model.buffers())
        EXPECT_EQ(buffers[place.name].flatten()[0].item<float>(), values.data[place.range.begin])
            << place.name;
}

TEST_F(FlatCnn, RestoringUndoesALeaf) {
    const auto before = module->named_buffers()["norm1.running_mean"].clone();
    module->forward(images);
    EXPECT_FALSE(module->named_buffers()["norm1.running_mean"].equal(before));
    model.restore_buffers(values.data);
    EXPECT_TRUE(module->named_buffers()["norm1.running_mean"].equal(before));
}

TEST_F(FlatCnn, CountersComeBack) {
    model.set_counters({{"norm1.num_batches_tracked", 41}, {"norm2.num_batches_tracked", 42}});
    EXPECT_EQ(model.counters().at("norm2.num_batches_tracked"), 42);
    EXPECT_ANY_THROW(model.set_counters({{"norm1.num_batches_tracked", 1}}));
}

}  // namespace
}  // namespace lockstep
