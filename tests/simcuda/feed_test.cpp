// SPDX-License-Identifier: Apache-2.0
// Samples on simulated GPUs are those of the host, however late streams are; a wait that is left
// out shows.
#include "lockstep/comm/gpu_runtime.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/sources.hpp"

#include "replica/gpu.hpp"
#include "schedule/train_step.hpp"
#include "simcuda/machine.hpp"
#include "simcuda/settings.hpp"
#include "support/unit.hpp"
#include "task/input.hpp"
#include "task/task.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/types.h>

namespace lockstep {
namespace {

using simcuda::simulate;

constexpr int steps = 5;
constexpr std::int64_t batch_samples = 8;

class Feed : public InFolder {
  protected:
    ~Feed() override { simulate({}); }

    static std::shared_ptr<const DatasetIndex> packed(const TempDir& folder) {
        const auto source = make_synthetic({.samples = 40, .size = 8, .classes = 4});
        pack_dataset(*source, {.output = folder / "data", .block_rows = 8});
        return std::make_shared<const DatasetIndex>(DatasetIndex::open(folder / "data"));
    }

    /// Kernels read `samples` on the model's stream, as late as that is: what each of them saw. The
    /// simulation's operators would wait for what is before them.
    std::array<at::Tensor, 8> seen(const at::Tensor& samples) const {
        const auto floats = static_cast<std::int64_t>(samples.nbytes() / sizeof(float));
        std::array<at::Tensor, 8> copies;
        for (at::Tensor& copy : copies) {
            copy = torch::empty({floats}, samples.options().dtype(torch::kFloat));
            if (samples.device().is_cpu())
                std::memcpy(copy.data_ptr(), samples.data_ptr(), samples.nbytes());
            else
                kernels_.mix({.in = static_cast<const float*>(samples.data_ptr()),
                              .out = copy.data_ptr<float>(),
                              .rows = static_cast<const MixRow*>(unmixed_.data_ptr()),
                              .channels = 1,
                              .height = 1,
                              .width = static_cast<std::int32_t>(floats),
                              .images = 1},
                             nullptr);
        }
        return copies;
    }

    std::vector<at::Tensor> all_seen(const InputKernels* kernels) const {
        StreamOptions options{.lanes = 1, .batch = batch_samples, .virtual_ranks = 2};
        options.last_leaf = 2;
        if (kernels != nullptr) options.page_lock = kernels->page_lock;
        BatchStream stream(data_, options);
        const InputReader input(*data_, pipeline_, settings_, *data_, *task_);
        const auto feed = make_feed(stream, input, kernels);
        std::vector<at::Tensor> all;
        for (int step = 0; step < steps; ++step) {
            // What is copied last is read first.
            for (const LeafRows& leaf : feed->next().leaves | std::views::reverse) {
                const LeafSamples samples = feed->read(leaf);
                for (const NamedTensors& tensors : {samples.targets, samples.inputs})
                    for (const NamedTensor& one : tensors)
                        for (const at::Tensor& copy : seen(one.tensor)) all.push_back(copy);
            }
            feed->look_ahead();
        }
        for (at::Tensor& tensor : all) tensor = tensor.cpu();
        return all;
    }

    /// What a feed says after each of some batches that copies took.
    std::vector<std::optional<double>> copy_seconds(const InputKernels* kernels) const {
        BatchStream stream(data_, {.lanes = 1, .batch = batch_samples});
        const InputReader input(*data_, pipeline_, settings_, *data_, *task_);
        const auto feed = make_feed(stream, input, kernels);
        std::vector<std::optional<double>> seconds;
        for (int step = 0; step < steps; ++step) {
            feed->next();
            feed->look_ahead();
            seconds.push_back(feed->take_copy_s());
        }
        return seconds;
    }

    bool is_as_on_the_host() const {
        const std::vector<at::Tensor> host = all_seen(nullptr), device = all_seen(&kernels_);
        return std::ranges::equal(host, device, [](const at::Tensor& one, const at::Tensor& other) {
            return std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) == 0;
        });
    }

    void read_with(const std::string& transform) {
        pipeline_ = TransformPipeline::parse(transform);
        task_ = make_task(settings_, *data_, pipeline_);
    }

    const std::shared_ptr<const DatasetIndex> data_ = packed(folder_);
    const TrainSettings settings_{.task = {.kind = TaskKind::classification}};
    TransformPipeline pipeline_;
    std::unique_ptr<Task> task_ = make_task(settings_, *data_, {});
    const InputKernels kernels_ = make_input_kernels(GpuRuntime::open(), {at::kCUDA, 0});
    const at::Tensor unmixed_ = [] {
        const std::vector<MixRow> rows(batch_samples);
        return torch::from_blob(const_cast<MixRow*>(rows.data()),
                                {static_cast<std::int64_t>(rows.size() * sizeof(MixRow))},
                                torch::kUInt8)
            .to(at::Device(at::kCUDA, 0));
    }();
};

TEST_F(Feed, HasTheBitsOfTheHostHoweverLateStreamsAre) {
    for (const char* transform :
         {"normalise", "crop 8x8 pad 2, flip, mixup 0.4", "rotate 20, blur 3"}) {
        read_with(transform);
        simulate({});
        EXPECT_TRUE(is_as_on_the_host()) << transform;
        for (int seed = 1; seed <= 10; ++seed) {
            simulate({{"DELAY_US", "300"}, {"SEED", std::to_string(seed)}});
            EXPECT_TRUE(is_as_on_the_host()) << transform << ", seed " << seed;
        }
    }
}

// A leaf of four images of 3 x 5 x 5 floats has 1,200 bytes.
TEST_F(Feed, BeginsEachLeafWhereKernelsOfAnyWidthCanReadIt) {
    read_with("crop 5x5");
    EXPECT_TRUE(is_as_on_the_host());
    for (const int first : {0, 1}) {
        StreamOptions options{.lanes = 1, .batch = batch_samples, .virtual_ranks = 2};
        options.first_leaf = first;
        options.last_leaf = 2;
        BatchStream stream(data_, options);
        const InputReader input(*data_, pipeline_, settings_, *data_, *task_);
        const auto feed = make_feed(stream, input, &kernels_);
        for (const LeafRows& leaf : feed->next().leaves) {
            const at::Tensor images = feed->read(leaf).inputs.front().tensor;
            EXPECT_EQ(images.nbytes(), 1200u);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(images.const_data_ptr()) % 64, 0u);
        }
    }
}

// With half of all seeds a batch's pieces are late. Nothing is known of the first batch before it
// is done with.
TEST_F(Feed, SaysHowLongCopiesTook) {
    read_with("normalise");
    double sum = 0;
    for (int seed = 1; seed <= 8; ++seed) {
        simulate({{"DELAY_US", "2000"}, {"SEED", std::to_string(seed)}});
        const auto seconds = copy_seconds(&kernels_);
        EXPECT_EQ(seconds.front(), 0);
        for (const auto& each : seconds) sum += each.value();
    }
    EXPECT_GT(sum, 0.002);
    EXPECT_LT(sum, 8 * 5);
    for (const auto& each : copy_seconds(nullptr)) EXPECT_FALSE(each);
}

// A step has two: copies wait for who reads the batch before, and the model for copies.
TEST_F(Feed, ShowsAWaitThatIsLeftOut) {
    for (const char* dropped : {"1/2", "2/2"}) {
        bool is_seen = false;
        for (int seed = 1; seed <= 200 && !is_seen; ++seed) {
            simulate(
                {{"DELAY_US", "2000"}, {"SEED", std::to_string(seed)}, {"DROP_WAIT", dropped}});
            is_seen = !is_as_on_the_host();
        }
        EXPECT_TRUE(is_seen) << dropped;
    }
}

TEST(Confusion, IsCountedOnAGpuAsOnTheHost) {
    constexpr std::int64_t number = 7;
    const at::Tensor classes = at::randint(number, {5, 300}, at::kLong);
    const at::Tensor found = at::randint(number, {5, 300}, at::kLong);
    const at::Tensor counted =
        confusion_counts(classes.to(at::kCUDA), found.to(at::kCUDA), number).cpu();
    EXPECT_TRUE(counted.equal(confusion_counts(classes, found, number)));
    EXPECT_EQ(counted.sum().item<std::int64_t>(), classes.numel());
}

// The phases of a step are what the GPU does, however far the host is ahead of it.

void keep_busy(int milliseconds) {
    simcuda::machine().default_stream(0).enqueue(
        [=] { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); });
}

TEST(DevicePhases, AreWhatTheDeviceTakes) {
    const double start_s = now_s();
    PhaseClock clock;
    DevicePhases phases(clock, {c10::kCUDA, 0});
    for (int step = 0; step < 2; ++step) {
        clock.take();
        const double asked_s = now_s();
        keep_busy(20);  // samples that are not there yet
        phases.begin_step();
        const double late_s = now_s() - asked_s;
        {
            const PhaseScope scope(clock, Phase::forward);
            keep_busy(40);
        }
        {
            const PhaseScope scope(clock, Phase::backward);
            keep_busy(80);
        }
        simcuda::machine().synchronize(0);
        phases.end_step();
        const double begin_s = now_s();
        const PhaseSeconds seconds = clock.take();
        EXPECT_GE(seconds[Phase::forward], 0.04);
        EXPECT_GE(seconds[Phase::backward], 0.08);
        EXPECT_GE(seconds[Phase::copy], 0.02 - late_s);
        EXPECT_EQ(seconds[Phase::data], 0);
        EXPECT_LT(seconds.sum(), begin_s - start_s + 0.01);
    }
}

TEST(DevicePhases, OfACpuAreTheHosts) {
    PhaseClock clock;
    DevicePhases phases(clock, c10::kCPU);
    clock.take();
    phases.begin_step();
    {
        const PhaseScope scope(clock, Phase::forward);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    phases.end_step();
    EXPECT_GE(clock.take()[Phase::forward], 0.01);
}

}  // namespace
}  // namespace lockstep
