// SPDX-License-Identifier: Apache-2.0
// What gradient hooks cost on one rank, and how much of a slow link backward hides. Without mpirun
// it measures the first, with mpirun the second. The last line is JSON.
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/reducer.hpp"
#include "lockstep/core/clock.hpp"

#include "replica/flat_model.hpp"
#include "replica/gradient_hooks.hpp"
#include "schedule/blank_step.hpp"
#include "support/faulty.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn.h>
#include <torch/utils.h>

namespace {

using namespace lockstep;
namespace nn = torch::nn;

/// Many equal layers: gradients become ready one after another all through backward.
struct Deep : Classifier {
    Deep() {
        for (int i = 0; i < layers; ++i)
            stack.push_back(register_module(fmt::format("layer{}", i), nn::Linear(width, width)));
    }
    torch::Tensor forward(const torch::Tensor& images) override {
        torch::Tensor x = images.flatten(1);
        for (nn::Linear& layer : stack) x = torch::relu(layer(x));
        return x;
    }
    static constexpr int layers = 24;
    static constexpr std::int64_t width = 784;
    std::vector<nn::Linear> stack;
};

std::vector<std::size_t> order_in(const std::shared_ptr<Classifier>& module) {
    Field labels;
    labels.class_counts.resize(10);
    return run_blank_step(*model_of(module),
                          *make_classification(labels),
                          {1, 28, 28, 10},
                          2,
                          *make_optimizer({}))
        .order;
}

/// A model on an exchange, without data or optimizer.
struct Trainee {
    std::shared_ptr<Classifier> module;
    FlatModel model;
    TreePlan plan;
    std::unique_ptr<Exchange> exchange;
    std::unique_ptr<Reducer> reducer;
    torch::Tensor images, labels = torch::randint(10, {64});

    static constexpr double no_limit = 0;

    Trainee(const Communicator& ranks,
            std::shared_ptr<Classifier> classifier,
            BucketLimits limits = {},
            double bytes_per_s = no_limit)
        : module(std::move(classifier)),
          model(model_of(module), order_in(module), limits),
          plan(ranks.size(), ranks.size(), Summation::plain),
          exchange(test::faulty(make_exchange(ranks, model.layout(), plan),
                                model.layout(),
                                {.bytes_per_s = bytes_per_s})),
          reducer(std::make_unique<Reducer>(model.layout(), plan, ranks.rank(), *exchange)),
          images(torch::rand({64, 1, 28, 28}).contiguous(at::MemoryFormat::ChannelsLast)) {
        model.copy_to(exchange->values(), {0, model.layout().size()});
        exchange->publish();
        model.adopt(exchange->values());
    }
    void backward() { nn::functional::cross_entropy(module->forward(images), labels).backward(); }
    void hook() {
        const auto parameters = module->parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i)
            on_gradient(parameters[i], [this, i](const at::Tensor&) { reducer->add(i); });
    }
    void unhook() {
        for (const at::Tensor& parameter : module->parameters()) {
            on_gradient(parameter, [](const at::Tensor&) {});
            parameter.mutable_grad().reset();
        }
    }
    void step() {
        reducer->begin_step();
        model.use_gradients(reducer->begin_leaf());
        backward();
        reducer->end_leaf();
        reducer->finish();
        exchange->publish();
    }
    double gradient_bytes() const {
        return static_cast<double>(model.layout().size() * sizeof(float));
    }
};

/// Processor time of this thread: what neighbours on the machine do counts little.
double processor_s() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

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

/// Forward and backward as LibTorch alone does it, with fresh gradients, and our step, in turn.
void measure_hooks(int steps) {
    Trainee trainee(Communicator(), make_model({"cnn", true}, {1, 28, 28, 10}, 1));
    std::vector<double> bare, hooked;
    for (int step = 0; step < steps; ++step) {
        trainee.unhook();
        bare.push_back(seconds_of(processor_s, [&] { trainee.backward(); }));
        trainee.unhook();
        trainee.hook();
        hooked.push_back(seconds_of(processor_s, [&] { trainee.step(); }));
    }
    fmt::print("{{\"bare_ms\": {:.3f}, \"hooked_ms\": {:.3f}, \"cost\": {:.5f}}}\n",
               1e3 * median(bare),
               1e3 * median(hooked),
               median(hooked) / median(bare) - 1);
}

/// Median of a few; leaves the trainee hooked up.
double backward_s_of(Trainee& trainee, const Communicator& ranks) {
    std::vector<double> times;
    for (int i = 0; i < 10; ++i) {
        trainee.unhook();
        const torch::Tensor loss =
            nn::functional::cross_entropy(trainee.module->forward(trainee.images), trainee.labels);
        times.push_back(seconds_of(now_s, [&] { loss.backward(); }));
        ranks.barrier();
    }
    trainee.unhook();
    trainee.hook();
    return median(times);
}

/// The link takes as long as `share` of backward to carry the gradients once. In turn: a step on a
/// link without limit, and on that one. Exposed is what the slow link adds, as a part of its time.
void measure_overlap(const Communicator& ranks, int steps, double share) {
    const BucketLimits limits{256u << 10, 2u << 20};
    Trainee free(ranks, std::make_shared<Deep>(), limits);
    const double backward_s = backward_s_of(free, ranks);
    const double link_s = std::stod(ranks.broadcast(std::to_string(share * backward_s)));
    Trainee throttled(ranks, std::make_shared<Deep>(), limits, free.gradient_bytes() / link_s);
    throttled.hook();
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
