// SPDX-License-Identifier: Apache-2.0
// LibTorch on simulated GPUs: models train, gradients come on other threads, memory ends, random
// numbers are the GPU's own.
#include "simcuda/machine.hpp"
#include "simcuda/settings.hpp"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace {

using simcuda::simulate;
using torch::Tensor;
namespace nn = torch::nn;

const at::Device gpu(at::kCUDA, 1);

nn::Sequential convolutions() {
    return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1)),
                          nn::BatchNorm2d(8),
                          nn::ReLU(),
                          nn::MaxPool2d(2),
                          nn::Conv2d(nn::Conv2dOptions(8, 16, 3).padding(1)),
                          nn::ReLU(),
                          nn::MaxPool2d(2),
                          nn::Flatten(),
                          nn::Linear(16 * 7 * 7, 10));
}

struct Words : nn::Module {
    Words() {
        register_module("embedding", embedding);
        register_module("norm", norm);
        register_module("heads", heads);
        register_module("out", out);
        register_module("words", words);
        register_module("dropout", dropout);
    }
    static Tensor by_head(const Tensor& x) {
        return x.view({x.size(0), x.size(1), 4, 8}).transpose(1, 2);
    }
    Tensor forward(const Tensor& tokens) {
        const Tensor x = embedding(tokens);
        const auto parts = heads(norm(x)).chunk(3, -1);
        const Tensor y = at::scaled_dot_product_attention(
            by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), {}, 0.0, true);
        const Tensor mixed = out(y.transpose(1, 2).reshape(x.sizes()));
        return words(torch::gelu(dropout(mixed) + x));
    }
    nn::Embedding embedding{64, 32};
    nn::LayerNorm norm{nn::LayerNormOptions({32})};
    nn::Linear heads{32, 96}, out{32, 32}, words{32, 64};
    nn::Dropout dropout{0.1};
};

float* machine_address(const Tensor& tensor) {
    return simcuda::machine().memory.behind(tensor.data_ptr<float>());
}

class SimulatedTorch : public testing::Test {
  protected:
    SimulatedTorch() {
        torch::manual_seed(1);
        at::set_num_threads(1);
        at::globalContext().setAllowTF32CuDNN(false);
    }
    ~SimulatedTorch() override { simulate({}); }

    at::Generator data = at::detail::createCPUGenerator(7);
};

TEST_F(SimulatedTorch, TrainsConvolutionsWithNormsInFlatMemory) {
    nn::Sequential model = convolutions();
    model->to(gpu);
    const auto parameters = model->parameters();
    std::int64_t count = 0;
    for (const Tensor& parameter : parameters) count += parameter.numel();
    const Tensor values = torch::zeros({count}, at::TensorOptions(gpu));
    const Tensor gradients = torch::zeros_like(values);
    std::int64_t at = 0;
    for (Tensor parameter : parameters) {
        const torch::NoGradGuard no_gradients;
        const auto part = [&](const Tensor& all) {
            return all.narrow(0, at, parameter.numel()).view(parameter.sizes());
        };
        part(values).copy_(parameter);
        parameter.set_data(part(values));
        parameter.mutable_grad() = part(gradients);
        at += parameter.numel();
    }
    std::atomic<int> here = 0, elsewhere = 0;
    for (const Tensor& parameter : parameters)
        parameter.register_hook([&, me = std::this_thread::get_id()](const Tensor&) {
            ++(std::this_thread::get_id() == me ? here : elsewhere);
        });
    const Tensor x = torch::randn({16, 1, 28, 28}, data).to(gpu);
    const Tensor y = torch::randint(10, {16}, data, at::kLong).to(gpu);
    std::vector<float> losses;
    for (int step = 0; step < 15; ++step) {
        gradients.zero_();
        const Tensor loss = torch::cross_entropy_loss(model->forward(x), y);
        loss.backward();
        const torch::NoGradGuard no_gradients;
        values.sub_(gradients, 0.05);
        losses.push_back(loss.item<float>());
    }
    EXPECT_LT(losses.back(), 0.5f * losses.front());
    EXPECT_EQ(here, 0);
    EXPECT_EQ(elsewhere, 15 * static_cast<int>(parameters.size()));
}

// cuDNN's keeps something for backward where channels lie last, and refuses what was kept of
// others.
TEST_F(SimulatedTorch, UpdatesRunningStatisticsAsACpuDoes) {
    const Tensor start = torch::rand({16}, data);
    for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
        for (const bool is_native : {false, true}) {
            SCOPED_TRACE(testing::Message() << layout << ", native " << is_native);
            const Tensor x = torch::randn({8, 16, 5, 5}, data).contiguous(layout);
            const auto results = [&](const at::Device& device) {
                const Tensor mean = start.clone().to(device), variance = start.clone().to(device);
                const Tensor weight = start.clone().to(device).requires_grad_();
                const Tensor on = x.to(device);
                const Tensor y =
                    is_native
                        ? std::get<0>(at::native_batch_norm(
                              on, weight, weight, mean, variance, true, 0.1, 1e-5))
                        : at::batch_norm(on, weight, weight, mean, variance, true, 0.1, 1e-5, true);
                y.square().sum().backward();
                return std::vector{y.cpu(), mean.cpu(), variance.cpu(), weight.grad().cpu()};
            };
            const auto there = results(gpu), here = results(at::kCPU);
            for (std::size_t i = 0; i < here.size(); ++i) EXPECT_TRUE(there[i].equal(here[i])) << i;
            EXPECT_FALSE(there[1].equal(start));
        }
}

float loss_after_training(bool in_half) {
    Words model;
    model.to(gpu);
    torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-2));
    auto generator = at::detail::createCPUGenerator(7);
    const Tensor tokens = torch::randint(64, {4, 17}, generator, at::kLong).to(gpu);
    float last = 0;
    for (int step = 0; step < 20; ++step) {
        optimizer.zero_grad();
        at::autocast::set_autocast_enabled(at::kCUDA, in_half);
        at::autocast::set_autocast_dtype(at::kCUDA, at::kHalf);
        const Tensor scores = model.forward(tokens.narrow(1, 0, 16));
        EXPECT_EQ(scores.scalar_type(), in_half ? at::kHalf : at::kFloat);
        const Tensor loss =
            torch::cross_entropy_loss(scores.view({-1, 64}), tokens.narrow(1, 1, 16).reshape(-1));
        at::autocast::clear_cache();
        at::autocast::set_autocast_enabled(at::kCUDA, false);
        (loss * 1024).backward();
        for (Tensor parameter : model.parameters()) parameter.mutable_grad().div_(1024);
        optimizer.step();
        last = loss.item<float>();
    }
    return last;
}

TEST_F(SimulatedTorch, TrainsAttentionAlsoInHalfPrecision) {
    EXPECT_LT(loss_after_training(false), 0.5f);
    EXPECT_LT(loss_after_training(true), 0.5f);
}

TEST_F(SimulatedTorch, DrawsFromGeneratorsOfItsOwn) {
    const auto drawn = [](at::Device device) {
        return torch::rand({5}, at::TensorOptions(device)).cpu();
    };
    torch::manual_seed(3);
    const Tensor first = drawn(gpu), second = drawn(gpu), of_cpu = drawn(at::kCPU);
    EXPECT_FALSE(first.equal(second));
    torch::manual_seed(3);
    EXPECT_TRUE(drawn(at::kCPU).equal(of_cpu)) << "the GPU has drawn from the CPU's";
    EXPECT_TRUE(drawn(gpu).equal(first));
    at::Generator own = at::globalContext().defaultGenerator(gpu);
    const Tensor state = own.get_state();
    const Tensor third = drawn(gpu);
    own.set_state(state);
    EXPECT_TRUE(drawn(gpu).equal(third));
    EXPECT_FALSE(drawn(at::Device(at::kCUDA, 2)).equal(third));
}

TEST_F(SimulatedTorch, DropsOutByTheSeed) {
    const auto dropped = [] {
        torch::manual_seed(5);
        return torch::dropout(torch::ones({1000}, at::TensorOptions(gpu)), 0.5, true).cpu();
    };
    const Tensor once = dropped();
    EXPECT_TRUE(dropped().equal(once));
    EXPECT_NEAR(once.mean().item<float>(), 1, 0.1);
}

TEST_F(SimulatedTorch, RunsOutOfMemoryAndOn) {
    simulate({{"MEMORY", "1000000"}});
    const auto options = at::TensorOptions(gpu);
    const Tensor held = torch::empty({200000}, options);
    const auto failed = [] {
        return c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(gpu.index()).num_ooms;
    };
    const std::int64_t before = failed();
    EXPECT_THROW(torch::empty({200000}, options), c10::OutOfMemoryError);
    EXPECT_EQ(failed(), before + 1);
    EXPECT_EQ(torch::ones({1000}, options).sum().item<float>(), 1000);
}

TEST_F(SimulatedTorch, FailsWhereTheGpuIsLost) {
    const Tensor ones = torch::ones({10}, at::TensorOptions(gpu));
    simulate({{"LOST", "5"}});
    EXPECT_THROW(for (int i = 0; i < 10; ++i) ones.add(1), c10::AcceleratorError);
}

TEST_F(SimulatedTorch, RefusesWhatCudaDoesInAnyOrder) {
    const Tensor x = torch::rand({1, 2, 4, 4}, at::TensorOptions(gpu).requires_grad(true));
    const auto widen = [&] { torch::upsample_bilinear2d(x, {8, 8}, false).sum().backward(); };
    widen();
    at::globalContext().setDeterministicAlgorithms(true, false);
    EXPECT_THROW(widen(), c10::Error);
    at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_F(SimulatedTorch, ConvolvesChannelsEachByItself) {
    const auto loss_on = [](at::Device device) {
        torch::manual_seed(2);
        nn::Conv2d model(nn::Conv2dOptions(6, 6, 3).groups(6));
        const Tensor x = torch::rand({2, 6, 8, 8});
        model->to(device);
        model(x.to(device)).square().sum().backward();
        return model->weight.grad().cpu();
    };
    EXPECT_TRUE(loss_on(gpu).allclose(loss_on(at::kCPU)));
}

// 1 + 2^-11 has 11 bits behind the point.
TEST_F(SimulatedTorch, RoundsFactorsWhereItMay) {
    const auto product = [](const Tensor& factor) {
        return torch::mm(factor, torch::ones({8, 3}, at::TensorOptions(gpu))).cpu();
    };
    const Tensor fine = torch::full({5, 8}, 1 + 0x1p-11f, at::TensorOptions(gpu));
    const Tensor coarse = torch::full({5, 8}, 1 + 0x1p-10f, at::TensorOptions(gpu));
    EXPECT_FALSE(torch::equal(product(fine), product(coarse)));
    at::globalContext().setAllowTF32CuBLAS(true);
    const Tensor rounded = product(fine);
    at::globalContext().setAllowTF32CuBLAS(false);
    EXPECT_TRUE(torch::equal(rounded, product(coarse)));
    EXPECT_EQ(fine[0][0].item<float>(), 1 + 0x1p-11f);
}

TEST_F(SimulatedTorch, KeepsTheHostFromItsMemory) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const Tensor ones = torch::ones({10}, at::TensorOptions(gpu));
    EXPECT_EXIT(std::printf("%f", static_cast<double>(*ones.data_ptr<float>())),
                testing::KilledBySignal(SIGSEGV),
                "");
    std::vector<float> pageable(10);
    EXPECT_DEATH(simcuda::machine().memory.in_kernel(pageable.data()), "not page-locked");
}

TEST_F(SimulatedTorch, KeepsValuesWhenItGrows) {
    const Tensor ones = torch::ones({10}, at::TensorOptions(gpu));
    ones.resize_({1000});
    EXPECT_EQ(ones.numel(), 1000);
    EXPECT_EQ(ones.narrow(0, 0, 10).sum().item<float>(), 10);
}

TEST_F(SimulatedTorch, WaitsForWorkOfItsStream) {
    simulate({{"DELAY_US", "20000"}});
    const at::DeviceGuard guard(gpu);
    const Tensor ones = torch::ones({10}, at::TensorOptions(gpu));
    for (int round = 0; round < 8; ++round)
        simcuda::machine().default_stream(1).enqueue(
            [at = machine_address(ones), round] { at[round] = 3; });
    EXPECT_EQ(ones.sum().item<float>(), 26);
}

/// What comes late by chance is waited for until it does, in as many rounds as that takes.
constexpr bool goes_on(int round, bool was_late) {
    return round <= 20 || (!was_late && round <= 1000);
}

TEST_F(SimulatedTorch, HasResultsWhenTheStreamComesToThem) {
    simulate({{"DELAY_US", "20000"}});
    const at::DeviceGuard guard(gpu);
    simcuda::Stream& other = simcuda::machine().make_stream(1);
    bool is_late = false;
    for (int round = 1; goes_on(round, is_late); ++round) {
        // Another sum each time: memory that is used again holds the one before.
        const Tensor sums = torch::ones({10}, at::TensorOptions(gpu)).add(round);
        const auto expected = static_cast<float>(1 + round);
        const auto read = [&, from = machine_address(sums)] {
            float value = 0;
            other.enqueue([&] { value = *from; });
            other.drain();
            return value;
        };
        is_late = is_late || read() != expected;
        simcuda::Event computed;
        computed.record(simcuda::machine().default_stream(1));
        computed.hold(other);
        EXPECT_EQ(read(), expected);
    }
    EXPECT_TRUE(is_late);
    simcuda::machine().end_stream(other);
}

TEST_F(SimulatedTorch, CopiesBehindTheHostToPageLockedMemory) {
    simulate({{"DELAY_US", "100000"}});
    bool is_late = false;
    for (int round = 1; goes_on(round, is_late); ++round) {
        const Tensor ones = torch::ones({10}, at::TensorOptions(gpu));
        const Tensor seen = torch::zeros({10}, at::TensorOptions().pinned_memory(true));
        EXPECT_TRUE(seen.is_pinned());
        seen.copy_(ones, true);
        is_late = is_late || seen[9].item<float>() == 0;
        at::detail::getCUDAHooks().deviceSynchronize(gpu.index());
        EXPECT_EQ(seen.sum().item<float>(), 10);
    }
    EXPECT_TRUE(is_late);
}

}  // namespace
