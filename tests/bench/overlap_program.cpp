// SPDX-License-Identifier: Apache-2.0
// What gradient hooks cost on one rank, and how much of a slow link backward hides. Without mpirun
// it measures the first, with mpirun the second. The last line is JSON.
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/exchange.hpp"
#include "lockstep/core/clock.hpp"

#include "replica/replica.hpp"
#include "schedule/blank_step.hpp"
#include "support/slow_link.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn.h>
#include <torch/utils.h>

namespace {

using namespace lockstep;
namespace nn = torch::nn;

/// Many equal layers: gradients become ready one after another all through backward. The first ten
/// outputs are the logits.
struct Deep : Classifier {
    Deep() {
        for (int i = 0; i < layers; ++i)
            stack.push_back(register_module(fmt::format("layer{}", i), nn::Linear(width, width)));
    }
    torch::Tensor forward(const torch::Tensor& images) override {
        torch::Tensor x = images.flatten(1);
        for (nn::Linear& layer : stack) x = torch::relu(layer(x));
        return x.narrow(1, 0, 10);
    }
    static constexpr int layers = 24;
    static constexpr std::int64_t width = 784;
    std::vector<nn::Linear> stack;
};

std::vector<std::size_t> order_in(Model& model) {
    Field labels;
    labels.class_counts.resize(10);
    return run_blank_step(model, *make_classification({}, labels), {1, 28, 28, 10}, 2, {}).order;
}

/// Forward and backward as LibTorch alone does it.
struct Plain {
    std::shared_ptr<Classifier> module;
    torch::Tensor images = torch::rand({64, 1, 28, 28}).contiguous(at::MemoryFormat::ChannelsLast);
    torch::Tensor labels = torch::randint(10, {64});

    void backward() const {
        nn::functional::cross_entropy(module->forward(images), labels).backward();
    }
    void forget_gradients() const {
        for (const at::Tensor& parameter : module->parameters()) parameter.mutable_grad().reset();
    }
};

/// The same on an exchange, without data or update.
struct Trainee {
    Plain plain;
    TreePlan plan;
    Replica replica;

    static constexpr double no_limit = 0;

    Trainee(const Communicator& ranks,
            std::shared_ptr<Classifier> module,
            BucketLimits limits = {},
            double bytes_per_s = no_limit)
        : plain{std::move(module)},
          plan(ranks.size(), ranks.size(), Summation::plain),
          replica(parts(ranks, limits, bytes_per_s)) {
        replica.start(replica.counters());
    }
    Replica::Parts parts(const Communicator& ranks, BucketLimits limits, double bytes_per_s) const {
        auto model = model_of(plain.module);
        const std::vector<std::size_t> order = order_in(*model);
        auto layout = std::make_unique<const ModelLayout>(*model, order, limits);
        auto exchange = std::make_unique<test::SlowLink>(
            make_exchange(ranks, layout->flat(), plan), layout->flat(), bytes_per_s);
        return {.model = std::move(model),
                .layout = std::move(layout),
                .plan = plan,
                .exchange = std::move(exchange),
                .optimizer = {},
                .ranks = ranks,
                .progress = {}};
    }
    void step() {
        replica.begin_step(LeafNorms::ignore);
        replica.begin_leaf(1);
        plain.backward();
        replica.end_leaf();
        replica.finish();
        replica.publish();
    }
};

template <class Clock, class Work>
double seconds_of(Clock&& clock, Work&& work) {
    const double begin = clock();
    work();
    return clock() - begin;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

/// LibTorch alone, with fresh gradients, and our step, in turn. By this thread's processor time, on
/// which what neighbours on the machine do counts little.
void measure_hooks(int steps) {
    const auto module = [] { return make_model({"cnn", true}, {1, 28, 28, 10}, 1); };
    const Plain plain{module()};
    Trainee trainee(Communicator(), module());
    std::vector<double> bare, hooked;
    for (int step = 0; step < steps; ++step) {
        plain.forget_gradients();
        bare.push_back(seconds_of(thread_processor_s, [&] { plain.backward(); }));
        hooked.push_back(seconds_of(thread_processor_s, [&] { trainee.step(); }));
    }
    fmt::print("{{\"bare_ms\": {:.3f}, \"hooked_ms\": {:.3f}, \"cost\": {:.5f}}}\n",
               1e3 * median(bare),
               1e3 * median(hooked),
               median(hooked) / median(bare) - 1);
}

/// Median of a few.
double backward_s_of(const Plain& plain, const Communicator& ranks) {
    std::vector<double> times;
    for (int i = 0; i < 10; ++i) {
        plain.forget_gradients();
        const torch::Tensor loss =
            nn::functional::cross_entropy(plain.module->forward(plain.images), plain.labels);
        times.push_back(seconds_of(now_s, [&] { loss.backward(); }));
        ranks.barrier();
    }
    return median(times);
}

/// The link takes as long as `share` of backward to carry the gradients once. In turn: a step on a
/// link without limit, and on that one. Exposed is what the slow link adds, as a part of its time.
void measure_overlap(const Communicator& ranks, int steps, double share) {
    const BucketLimits limits{256u << 10, 2u << 20};
    Trainee free(ranks, std::make_shared<Deep>(), limits);
    const double backward_s = backward_s_of({std::make_shared<Deep>()}, ranks);
    const double link_s = std::stod(ranks.broadcast(std::to_string(share * backward_s)));
    const std::size_t floats = ModelLayout(*model_of(free.plain.module)).flat().size();
    const double bytes = static_cast<double>(floats * sizeof(float));
    Trainee throttled(ranks, std::make_shared<Deep>(), limits, bytes / link_s);
    std::vector<double> fast, slow;
    for (int step = 0; step < steps; ++step) {
        ranks.barrier();
        fast.push_back(seconds_of(now_s, [&] { free.step(); }));
        ranks.barrier();
        slow.push_back(seconds_of(now_s, [&] { throttled.step(); }));
    }
    if (!ranks.is_root()) return;
    fmt::print(
        "{{\"step_ms\": {:.3f}, \"throttled_step_ms\": {:.3f}, \"link_ms\": {:.3f}, "
        "\"exposed\": {:.4f}}}\n",
        1e3 * median(fast),
        1e3 * median(slow),
        1e3 * link_s,
        (median(slow) - median(fast)) / link_s);
}

}  // namespace

int main(int count, char** words) {
    const int steps = count > 1 ? std::atoi(words[1]) : 200;
    at::set_num_threads(1);
    if (!launched_by_mpi()) {
        measure_hooks(steps);
        return 0;
    }
    const MpiSession session;
    measure_overlap(Communicator::world(), steps, 0.8);
}
