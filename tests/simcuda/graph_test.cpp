// SPDX-License-Identifier: Apache-2.0
// liblockstep_cuda_graph.so on simulated GPUs: recording does nothing, a replay has the bits of
// what was recorded, with the numbers of its own seed.
#include "replica/gpu.hpp"

#include <memory>
#include <string>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

const at::Device gpu(at::kCUDA, 1);

class DeviceGraphs : public testing::Test {
  protected:
    DeviceGraphs() {
        at::set_num_threads(1);
        guard().setDevice(gpu);
        std::string why;
        make_ = load_device_graphs(LOCKSTEP_CUDA_GRAPH_LIBRARY, why);
        if (!make_) throw std::runtime_error(why);
    }
    ~DeviceGraphs() override { guard().exchangeStream(guard().getDefaultStream(gpu)); }

    static c10::impl::VirtualGuardImpl guard() { return c10::impl::VirtualGuardImpl(at::kCUDA); }

    template <class Work>
    std::unique_ptr<DeviceGraph> recorded(Work&& work, const DeviceGraph* before = nullptr) {
        const c10::Stream outside = guard().exchangeStream(stream_);
        auto graph = make_();
        graph->begin(before, {});
        work();
        graph->end();
        guard().exchangeStream(outside);
        return graph;
    }

    /// A recording that `work` spoils, which is given it and the stream outside of it.
    template <class Work>
    std::unique_ptr<DeviceGraph> abandoned(Work&& work) {
        const c10::Stream outside = guard().exchangeStream(stream_);
        auto graph = make_();
        graph->begin(nullptr, {});
        work(*graph, outside);
        graph->abandon();
        guard().exchangeStream(outside);
        return graph;
    }

    /// That the stream outside cannot wait for what is recorded.
    void expect_no_wait(const c10::Stream& outside) const {
        c10::Event done(at::kCUDA);
        done.record(stream_);
        EXPECT_THROW(outside.wait(done), c10::AcceleratorError);
    }

    MakeDeviceGraph make_;
    c10::Stream stream_ = guard().getStreamFromGlobalPool(gpu);
};

TEST_F(DeviceGraphs, RecordingDoesNothing) {
    const Tensor numbers = torch::ones({4}, gpu);
    const auto graph = recorded([&] { numbers.mul_(3).add_(1); });
    EXPECT_TRUE(numbers.cpu().equal(torch::ones({4})));
    graph->replay();
    graph->replay();
    EXPECT_TRUE(numbers.cpu().equal(torch::full({4}, 13.0)));
}

TEST_F(DeviceGraphs, AReplayDrawsTheNumbersOfItsSeed) {
    const Tensor out = torch::zeros({64}, gpu), ones = torch::ones({64}, gpu);
    const auto draw = [&] { out.copy_(torch::dropout(ones, 0.5, true) + torch::rand({64}, gpu)); };
    const auto graph = recorded(draw);
    for (const int seed : {1, 2, 1}) {
        torch::manual_seed(seed);
        draw();
        const Tensor drawn = out.cpu();
        torch::manual_seed(seed);
        graph->replay();
        EXPECT_TRUE(out.cpu().equal(drawn)) << seed;
    }
}

TEST_F(DeviceGraphs, ForwardAndBackwardOfAModelHaveItsBits) {
    nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)),
                         nn::BatchNorm2d(4),
                         nn::ReLU(),
                         nn::MaxPool2d(2),
                         nn::Flatten(),
                         nn::Dropout(0.2),
                         nn::Linear(4 * 4 * 4, 10));
    model->to(gpu);
    const Tensor inputs = torch::empty({6, 1, 8, 8}, gpu);
    const Tensor targets = torch::arange(6, at::TensorOptions(at::kLong).device(gpu));
    for (Tensor& parameter : model->parameters())
        parameter.mutable_grad() = torch::zeros_like(parameter);
    const auto begin = [&](int seed) {
        torch::manual_seed(seed);
        inputs.copy_(torch::rand({6, 1, 8, 8}));
        for (Tensor& parameter : model->parameters()) parameter.mutable_grad().zero_();
        for (Tensor& buffer : model->buffers()) buffer.zero_();
    };
    const auto left = [&] {
        std::vector<Tensor> all;
        for (const Tensor& parameter : model->parameters()) all.push_back(parameter.grad().cpu());
        for (const Tensor& buffer : model->buffers()) all.push_back(buffer.cpu());
        return all;
    };
    Tensor loss;
    const auto forward = [&] { loss = torch::cross_entropy_loss(model->forward(inputs), targets); };
    const auto graph = recorded(forward);
    const auto backward = recorded([&] { loss.backward(); }, graph.get());
    for (const int seed : {1, 2}) {
        begin(seed);
        forward();
        loss.backward();
        const std::vector<Tensor> expected = left();
        begin(seed);
        graph->replay();
        backward->replay();
        const std::vector<Tensor> replayed = left();
        for (std::size_t i = 0; i < expected.size(); ++i)
            EXPECT_TRUE(replayed[i].equal(expected[i])) << seed << " " << i;
    }
}

TEST_F(DeviceGraphs, WhatTheHostWaitsForCannotBeRecorded) {
    const Tensor number = torch::ones({}, gpu);
    const auto graph = abandoned([&](DeviceGraph&, const c10::Stream&) {
        EXPECT_THROW(number.add(1).item<float>(), c10::AcceleratorError);
    });
    EXPECT_THROW(graph->replay(), c10::Error);
    EXPECT_EQ(number.add(1).item<float>(), 2);
}

TEST_F(DeviceGraphs, NumbersAreDrawnAsBeforeAfterARecordingThatFailed) {
    const Tensor ones = torch::ones({64}, gpu);
    torch::manual_seed(3);
    const Tensor expected = torch::dropout(ones, 0.5, true).cpu();
    torch::manual_seed(3);
    abandoned([&](DeviceGraph&, const c10::Stream&) {
        EXPECT_THROW(torch::dropout(ones, 0.5, true).sum().item<float>(), c10::AcceleratorError);
    });
    EXPECT_TRUE(torch::dropout(ones, 0.5, true).cpu().equal(expected));
}

TEST_F(DeviceGraphs, NumbersAreDrawnAfterARecordingWhoseEndFailed) {
    const Tensor ones = torch::ones({64}, gpu);
    abandoned([&](DeviceGraph& graph, const c10::Stream& outside) {
        expect_no_wait(outside);
        EXPECT_THROW(graph.end(), c10::AcceleratorError);
        EXPECT_THROW(torch::dropout(ones, 0.5, true), c10::Error) << "LibTorch leaves it so";
    });
    EXPECT_NO_THROW(torch::dropout(ones, 0.5, true).cpu());
}

TEST_F(DeviceGraphs, OtherStreamsWaitForNothingThatIsRecorded) {
    const Tensor number = torch::ones({}, gpu);
    abandoned([&](DeviceGraph&, const c10::Stream& outside) {
        const Tensor sum = number + 1;
        expect_no_wait(outside);
    });
}

TEST_F(DeviceGraphs, ALibraryThatIsNotThereIsSaid) {
    std::string why;
    EXPECT_FALSE(load_device_graphs("/nonexistent.so", why));
    EXPECT_NE(why.find("/nonexistent.so"), why.npos);
}

}  // namespace
}  // namespace lockstep
