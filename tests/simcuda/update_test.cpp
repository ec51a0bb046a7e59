// SPDX-License-Identifier: Apache-2.0
// Updates on simulated GPUs that need something of their own step's sums: they have the bits of one
// CPU, are asked for without a wait, and told to the host at once.
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/log.hpp"

#include "model/model.hpp"
#include "replica/gpu.hpp"
#include "replica/replica.hpp"
#include "simcuda/machine.hpp"
#include "simcuda/settings.hpp"
#include "support/mpi_test.hpp"
#include "support/slow_link.hpp"
#include "train/one_rank.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace lockstep {
namespace {

using simcuda::simulate;
using test::ranks;

constexpr int virtual_ranks = 8, steps = 6;
constexpr double seconds_of_gate = 20;

/// Never computed with: gradients are what a test says.
struct Net : Classifier {
    Net() {
        torch::manual_seed(7);
        register_parameter("wide_weight", torch::randn({70, 41}));
        register_parameter("wide_bias", torch::randn({70}));
        register_parameter("narrow_weight", torch::randn({3, 5, 2}));
        register_parameter("narrow_bias", torch::zeros({3}));
        register_parameter("rare", torch::randn({50, 3}));
        register_parameter("never", torch::randn({50, 2}));
        register_parameter("frozen", torch::randn({5}), /*requires_grad=*/false);
        register_buffer("mean", torch::zeros({9}));
        register_buffer("batches", torch::zeros({}, torch::kLong));
    }
    torch::Tensor forward(const torch::Tensor& samples) override { return samples; }
};

/// What `lockstep train` is told of updates.
struct Options {
    std::string name;
    OptimizerSettings optimizer;
    UpdateRule rule;
};

std::vector<Options> all_options() {
    const auto decayed = [](OptimizerKind kind) {
        return OptimizerSettings{.kind = kind, .weight_decay = 0.01};
    };
    const OptimizerSettings averaged{.kind = OptimizerKind::lamb, .average_decay = 0.9};
    return {{"plain", decayed(OptimizerKind::adamw), {}},
            {"--clip-norm", decayed(OptimizerKind::sgd), {.clip_norm = 3}},
            {"lars", decayed(OptimizerKind::lars), {}},
            {"lamb", decayed(OptimizerKind::lamb), {}},
            {"fp16", decayed(OptimizerKind::adamw), {.loss_scale = 512, .skips_nonfinite = true}},
            {"--on-nonfinite skip", decayed(OptimizerKind::sgd), {.skips_nonfinite = true}},
            {"lars and all",
             decayed(OptimizerKind::lars),
             {.loss_scale = 4, .clip_norm = 2, .skips_nonfinite = true}},
            {"lamb and all",
             averaged,
             {.loss_scale = 4, .clip_norm = 2, .measures_norm = true, .skips_nonfinite = true}}};
}

/// Whether leaf `leaf` of step `step` has a gradient for it.
bool is_reached(const std::string& parameter, int step, int leaf) {
    if (parameter == "rare") return step % 3 == 1 && leaf == virtual_ranks - 1;
    return parameter != "never";
}

/// What is no number in a step, if anything.
enum class Fault { none, gradient, buffer };

Fault fault_of(int step, const UpdateRule& rule) {
    if (!rule.skips_nonfinite) return Fault::none;
    return step == 2 ? Fault::gradient : step == 3 ? Fault::buffer : Fault::none;
}

std::string bytes_of(const ReplicaTensors& tensors) {
    std::string all;
    for (const TensorPiece& piece : tensors.pieces)
        all.append(reinterpret_cast<const char*>(piece.data), piece.count * sizeof(float));
    return all;
}

/// Of this process's leaves.
class Trainee {
  public:
    Trainee(const Options& options, Replica::Parts parts)
        : rule_(options.rule),
          device_(parts.device),
          leaves_(leaves_of(parts.ranks.rank(), parts.ranks.size(), virtual_ranks)),
          replica_(std::move(parts)) {
        replica_.start(replica_.counters());
    }

    Replica& replica() { return replica_; }

    void fill(int step, Fault fault) {
        replica_.begin_step(LeafNorms::ignore);
        for (int leaf = leaves_.begin; leaf < leaves_.end; ++leaf) {
            replica_.begin_leaf(1);
            torch::manual_seed(static_cast<std::uint64_t>(100 * step + leaf));
            const bool is_at_fault = leaf == virtual_ranks - 2;
            for (const NamedTensor& parameter : replica_.model().parameters()) {
                if (!is_reached(parameter.name, step, leaf)) continue;
                at::Tensor gradient = torch::randn(parameter.tensor.sizes());
                if (is_at_fault && fault == Fault::gradient) gradient.flatten()[1] = std::nanf("");
                (parameter.tensor * gradient.to(device_)).sum().backward();
            }
            for (NamedTensor& buffer : replica_.model().buffers())
                if (buffer.tensor.is_floating_point())
                    buffer.tensor.add_(is_at_fault && fault == Fault::buffer ? HUGE_VAL
                                                                             : 0.1 * leaf);
                else
                    buffer.tensor.add_(1);
            replica_.add(StepScalar::save_wanted, 1);
            replica_.end_leaf();
        }
    }

    void ask_for_update() {
        replica_.finish();
        replica_.update({.number = number_, .rate = 0.1}, rule_, 4 * virtual_ranks);
    }

    UpdateDecision end() {
        replica_.publish();
        const UpdateDecision decision = replica_.decision();
        if (decision.is_withheld == 0) ++number_;
        return decision;
    }

    UpdateDecision step(int step, Fault fault) {
        fill(step, fault);
        ask_for_update();
        return end();
    }

    /// Of this rank: weights, optimizer state and buffers, then counters.
    std::string bytes() {
        std::string all = bytes_of(replica_.tensors());
        for (const auto& [name, count] : replica_.counters()) all += std::to_string(count);
        return all;
    }

  private:
    UpdateRule rule_;
    at::Device device_;
    LeafRange leaves_;
    Replica replica_;
    std::int64_t number_ = 1;
};

/// Counts how often the host waits by it.
class CountedMemory : public FlatMemory {
  public:
    explicit CountedMemory(FlatMemory& memory) : memory_(memory) {}
    void clear(float* at, std::size_t count) override { memory_.clear(at, count); }
    void add(float* into, const float* from, std::size_t count) override {
        memory_.add(into, from, count);
    }
    void copy(float* to, const float* from, std::size_t count) override {
        memory_.copy(to, from, count);
    }
    void wait() override {
        ++waits;
        memory_.wait();
    }
    int waits = 0;

  private:
    FlatMemory& memory_;
};

/// Another one's work, with a memory that is counted.
class CountedExchange : public test::SlowLink {
  public:
    CountedExchange(std::unique_ptr<Exchange> exchange,
                    const FlatLayout& layout,
                    FlatMemory& memory)
        : SlowLink(std::move(exchange), layout, no_limit), memory_(memory) {}
    FlatMemory& memory() override { return memory_; }

  private:
    static constexpr double no_limit = 0;

    FlatMemory& memory_;
};

/// A rank's GPU, as `lockstep train` has it.
class SimulatedUpdate : public testing::Test {
  protected:
    SimulatedUpdate() {
        open_log({.terminal_level = Level::error});
        NcclOptions options;
        options.environment = Environment(std::map<std::string, std::string>{});
        options.device = ranks().rank();
        communicator_.emplace(runtime_, *bootstrap_, options);
    }
    ~SimulatedUpdate() override {
        simulate({});
        communicator_.reset();
        ranks().barrier();
    }

    std::unique_ptr<Trainee> on_gpus(const Options& options) {
        const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(ranks().rank()));
        auto model = on_device(model_of(std::make_shared<Net>()), device);
        auto layout = std::make_unique<const ModelLayout>(*model);
        auto exchange = make_nccl_exchange(*communicator_, layout->flat(), gpu_plan_, nullptr);
        loops_ = make_gpu_loops(runtime_, *exchange, device, nullptr);
        memory_.emplace(exchange->memory());
        auto counted =
            std::make_unique<CountedExchange>(std::move(exchange), layout->flat(), *memory_);
        return std::make_unique<Trainee>(options,
                                         Replica::Parts{.model = std::move(model),
                                                        .layout = std::move(layout),
                                                        .plan = gpu_plan_,
                                                        .exchange = std::move(counted),
                                                        .optimizer = options.optimizer,
                                                        .ranks = ranks(),
                                                        .progress = {},
                                                        .device = device,
                                                        .loops = *loops_});
    }

    std::unique_ptr<Trainee> on_one_cpu(const Options& options) {
        return std::make_unique<Trainee>(
            options, test::parts_of(std::make_shared<Net>(), cpu_plan_, options.optimizer));
    }

    /// How often the host waited so far: for the exchange, and inside CUDA.
    std::pair<int, std::uint64_t> waits() const {
        return {memory_->waits, simcuda::waits_of_host()};
    }

    const std::unique_ptr<Bootstrap> bootstrap_ = make_bootstrap(ranks());
    const std::shared_ptr<GpuRuntime> runtime_ = GpuRuntime::open();
    const TreePlan gpu_plan_{virtual_ranks, ranks().size()}, cpu_plan_{virtual_ranks, 1};
    std::unique_ptr<UpdateLoops> loops_;
    std::optional<NcclCommunicator> communicator_;
    std::optional<CountedMemory> memory_;
};

TEST_F(SimulatedUpdate, HasTheBitsOfOneCpuHoweverLateItsStreamsAre) {
    for (const Options& options : all_options())
        for (const char* delay_us : {"0", "400"}) {
            simulate({{"DELAY_US", delay_us}, {"SEED", "1"}});
            const auto cpu = on_one_cpu(options), gpus = on_gpus(options);
            for (int step = 0; step < steps; ++step) {
                const Fault fault = fault_of(step, options.rule);
                const UpdateDecision expected = cpu->step(step, fault);
                const UpdateDecision found = gpus->step(step, fault);
                EXPECT_EQ(found.norm, expected.norm) << options.name;
                EXPECT_EQ(found.scale, expected.scale) << options.name;
                EXPECT_EQ(found.is_withheld, fault == Fault::none ? 0 : 1) << options.name;
                EXPECT_EQ(gpus->replica().hash(), cpu->replica().hash())
                    << options.name << ", step " << step << ", delays of " << delay_us;
            }
        }
}

// Twenty steps of weight decay, on GPUs and on a CPU.
TEST_F(SimulatedUpdate, LeavesAloneWhatNoLeafReaches) {
    for (const OptimizerKind kind : {OptimizerKind::sgd,
                                     OptimizerKind::adam,
                                     OptimizerKind::adamw,
                                     OptimizerKind::lars,
                                     OptimizerKind::lamb}) {
        const Options options{"", {.kind = kind, .weight_decay = 0.1}, {.clip_norm = 3}};
        const auto cpu = on_one_cpu(options), gpus = on_gpus(options);
        const auto untouched = [](Trainee& trainee) {
            const Model& model = trainee.replica().model();
            return std::vector{model.parameters().back().tensor.cpu(),
                               model.frozen().front().tensor.cpu()};
        };
        const auto before = untouched(*gpus);
        for (int step = 0; step < 20; ++step) {
            cpu->step(step, Fault::none);
            gpus->step(step, Fault::none);
        }
        EXPECT_EQ(gpus->replica().hash(), cpu->replica().hash());
        const Counters missed = gpus->replica().counters();
        EXPECT_EQ(missed.at("optimizer.missed.never"), 20);
        EXPECT_EQ(missed.at("optimizer.missed.rare"), 13);
        EXPECT_EQ(cpu->replica().counters(), missed);
        for (Trainee* const trainee : {cpu.get(), gpus.get()}) {
            const auto after = untouched(*trainee);
            for (std::size_t i = 0; i < after.size(); ++i)
                EXPECT_TRUE(after[i].equal(before[i])) << static_cast<int>(kind) << ' ' << i;
        }
    }
}

TEST_F(SimulatedUpdate, LeavesNoTraceWhereItIsSkipped) {
    for (const Options& options : all_options()) {
        const auto gpus = on_gpus(options);
        for (int step = 0; step < steps; ++step) {
            const Fault fault = std::array{Fault::none, Fault::gradient, Fault::buffer}[step % 3];
            const std::string before = gpus->bytes();
            const UpdateDecision decision = gpus->step(step, fault);
            const bool is_skipped = fault != Fault::none && options.rule.skips_nonfinite;
            EXPECT_EQ(decision.is_withheld != 0, is_skipped) << options.name;
            EXPECT_EQ(gpus->bytes() == before, is_skipped) << options.name;
            EXPECT_EQ(gpus->replica().scalar(StepScalar::save_wanted), virtual_ranks);
        }
    }
}

// A save has the values between two updates, however late its copy or they are; not without the
// copy's wait for the one before, nor without the waits behind it, of which one is the next one's.
TEST_F(SimulatedUpdate, WaitsForTheCopyOfASaveAndTheCopyForIt) {
    enum class Order { copy_first, update_first };
    const auto wrong_copies = [&](Order order, const char* left_out) {
        const auto gpus = on_gpus(all_options().front());
        int wrong = 0;
        for (int seed = 1; seed <= 48; ++seed) {
            std::map<std::string, std::string> late{{"DELAY_US", "2000"},
                                                    {"SEED", std::to_string(seed)}};
            gpus->fill(seed, Fault::none);
            std::string expected = bytes_of(gpus->replica().tensors());
            simulate(late);
            if (order == Order::update_first) gpus->ask_for_update();
            late["DROP_WAIT"] = left_out;
            simulate(late);
            const ReplicaTensors save = gpus->replica().tensors_to_come();
            if (order == Order::copy_first) gpus->ask_for_update();
            save.wait();
            simulate({});
            gpus->end();
            if (order == Order::update_first) expected = bytes_of(gpus->replica().tensors());
            wrong += bytes_of(save) != expected;
        }
        return wrong;
    };
    const char* const none = "1000000";
    EXPECT_EQ(wrong_copies(Order::copy_first, none), 0);
    EXPECT_EQ(wrong_copies(Order::update_first, none), 0);
    EXPECT_GT(wrong_copies(Order::copy_first, "2/1"), 0);
    EXPECT_GT(wrong_copies(Order::update_first, "1"), 0);
}

/// Work of a stream that waits until it is let go on, or for too long.
class Gate {
  public:
    explicit Gate(double seconds) {
        simcuda::machine()
            .default_stream(ranks().rank())
            .enqueue([opened = opened_.get_future().share(), has_ended = has_ended_, seconds] {
                opened.wait_for(std::chrono::duration<double>(seconds));
                *has_ended = true;
            });
    }
    /// Whether nobody waited for it until now.
    bool open() {
        const bool was_closed = !*has_ended_;
        opened_.set_value();
        return was_closed;
    }

  private:
    std::promise<void> opened_;
    std::shared_ptr<std::atomic<bool>> has_ended_ = std::make_shared<std::atomic<bool>>(false);
};

// The GPU is not done with the gradients before.
TEST_F(SimulatedUpdate, IsAskedForBeforeTheHostWaits) {
    for (const Options& options : all_options()) {
        const auto gpus = on_gpus(options);
        for (const int step : {1, 2}) {
            gpus->fill(step, fault_of(step, options.rule));
            Gate gate(seconds_of_gate);
            gpus->ask_for_update();
            EXPECT_TRUE(gate.open()) << options.name;
            gpus->end();
        }
    }
    const auto gpus = on_gpus(all_options().front());
    Gate gate(0.2);
    memory_->wait();
    EXPECT_FALSE(gate.open()) << "who waits finds it closed";
}

TEST_F(SimulatedUpdate, IsToldToTheHostInOneWait) {
    for (const Options& options : all_options()) {
        const auto gpus = on_gpus(options);
        for (int step = 0; step < steps; ++step) {
            const auto [by_exchange, in_cuda] = waits();
            gpus->step(step, fault_of(step, options.rule));
            EXPECT_EQ(waits(), std::pair(by_exchange + 1, in_cuda)) << options.name;
        }
        const auto before = waits();
        gpus->replica().hash();
        EXPECT_GT(waits(), before) << "what reads the weights waits";
    }
}

}  // namespace
}  // namespace lockstep
