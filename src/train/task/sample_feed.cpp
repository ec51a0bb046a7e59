// SPDX-License-Identifier: Apache-2.0
// Batches are copied to a GPU one ahead of the model:
//
//     host      next k | issue step k | look_ahead: issue k + 1 | waits for step k | next k + 1 ...
//     copies           |              |  copy u8 -> transform --+---> copied       |
//     computes  waits for copied k -> | forward, backward, sums, update .......... | waits for ...
//
// The batch's bytes are copied as stored, from the page-locked memory that the assembler filled;
// transforms are kernels with the host's bits.
//
// What must never happen:
// - The model reads what is not copied: its stream waits for `copied`.
// - Memory of the batch before is given to the next one while the model still reads it: the stream
//   of copies waits for what was asked of the model before the memory is freed, in next().
// - The assembler gets a buffer back that is still copied from: the host waits for `copied`.
// - A batch that a run does not need any more ends it: errors wait for who asks for the batch.
//
// Tested: simcuda/feed_test.cpp (streams late at random, bits of a host feed), e2e/device_test.cpp.

#include "lockstep/core/clock.hpp"

#include "task/input.hpp"

#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/types.h>

namespace lockstep {
namespace {

at::Tensor bytes_at(std::span<const std::byte> memory) {
    return torch::from_blob(const_cast<std::byte*>(memory.data()),
                            {static_cast<std::int64_t>(memory.size())},
                            torch::kUInt8);
}

constexpr double end_wait_s = 5;

class HostFeed : public SampleFeed {
  public:
    HostFeed(BatchStream& stream, const InputReader& input) : stream_(stream), input_(input) {}

    const Batch& next() override {
        batch_.reset();
        return batch_.emplace(stream_.next());
    }

    const Batch& batch() const override { return *batch_; }
    LeafSamples read(const LeafRows& leaf) override { return input_.read(*batch_, leaf); }

  private:
    BatchStream& stream_;
    const InputReader& input_;
    std::optional<Batch> batch_;
};

class DeviceFeed : public SampleFeed {
  public:
    DeviceFeed(BatchStream& stream, const InputReader& input, const InputKernels& kernels)
        : stream_(stream), input_(input), stage_(kernels), released_(kernels.device.type()) {}

    ~DeviceFeed() override {
        leave(current_);
        leave(ahead_);
    }
    DeviceFeed& operator=(DeviceFeed&&) = delete;

    const Batch& next() override {
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
        released_.record(model_stream());
        stage_.stream().wait(released_);
        drop(current_);
        if (!ahead_) prepare();
        current_.swap(ahead_);
        model_stream().wait(current_->copied);
        return current_->batch;
    }

    const Batch& batch() const override { return current_->batch; }

    LeafSamples read(const LeafRows& leaf) override {
        const int first = current_->batch.leaves.front().leaf;
        return current_->leaves.at(static_cast<std::size_t>(leaf.leaf - first));
    }

    void look_ahead() override {
        if (ahead_ || failure_) return;
        try {
            prepare();
        } catch (...) {
            ahead_.reset();
            failure_ = std::current_exception();
        }
    }

    std::optional<double> take_copy_s() override { return std::exchange(copy_s_, 0); }

  private:
    struct Prepared {
        Batch batch;
        std::vector<LeafSamples> leaves;  ///< leaves of the batch
        c10::Event begun, copied;         ///< the stream of copies is between them for this batch
    };

    c10::Stream model_stream() const {
        return c10::impl::VirtualGuardImpl(stage_.device().type()).getStream(stage_.device());
    }

    void prepare() {
        ahead_.emplace(Prepared{stream_.next(), {}, timed_event(), timed_event()});
        ahead_->begun.record(stage_.stream());
        ahead_->leaves = input_.read_on(stage_, ahead_->batch);
        ahead_->copied.record(stage_.stream());
    }

    c10::Event timed_event() const {
        return {stage_.device().type(), c10::EventFlag::BACKEND_DEFAULT};
    }

    void drop(std::optional<Prepared>& prepared) {
        if (!prepared) return;
        prepared->copied.synchronize();
        copy_s_ += prepared->begun.elapsedTime(prepared->copied) / 1000;
        prepared.reset();
    }

    // At the end, where the model's stream may never come so far: what is still copied then stays.
    static void leave(std::optional<Prepared>& prepared) {
        try {
            const double end_s = now_s() + end_wait_s;
            while (prepared && !prepared->copied.query()) {
                if (now_s() > end_s) return static_cast<void>(new Prepared(std::move(*prepared)));
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        } catch (const c10::Error&) {
            // The GPU is lost, and copies nothing any more.
        }
    }

    BatchStream& stream_;
    const InputReader& input_;
    DeviceStage stage_;
    c10::Event released_;
    std::optional<Prepared> current_, ahead_;
    std::exception_ptr failure_;  ///< failure of looking ahead
    double copy_s_ = 0;           ///< time of batches dropped since the last take_copy_s()
};

}  // namespace

DeviceStage::DeviceStage(const InputKernels& kernels)
    : kernels_(kernels),
      stream_(c10::impl::VirtualGuardImpl(kernels.device.type())
                  .getStreamFromGlobalPool(kernels.device)) {}

at::Tensor DeviceStage::copy(std::span<const std::byte> locked) const {
    const c10::StreamGuard guard(stream_);
    return bytes_at(locked).to(device(), torch::kUInt8, /*non_blocking=*/true);
}

at::Tensor DeviceStage::upload(const at::Tensor& host) const {
    const c10::StreamGuard guard(stream_);
    return host.pin_memory().to(device(), /*non_blocking=*/true);
}

at::Tensor DeviceStage::upload(std::span<const std::byte> host) const {
    return upload(bytes_at(host));
}

NamedTensors DeviceStage::upload(NamedTensors host) const {
    for (NamedTensor& named : host) named.tensor = upload(named.tensor);
    return host;
}

at::Tensor DeviceStage::room(std::size_t floats) const {
    const c10::StreamGuard guard(stream_);
    return torch::empty({static_cast<std::int64_t>(floats)},
                        at::TensorOptions(at::kFloat).device(device()));
}

at::Tensor DeviceStage::aligned(const at::Tensor& there) const {
    constexpr std::uintptr_t line = 64;
    if (reinterpret_cast<std::uintptr_t>(there.const_data_ptr()) % line == 0) return there;
    const c10::StreamGuard guard(stream_);
    return there.clone();
}

void DeviceStage::transform(std::span<const StageLaunch> stages) const {
    kernels_.transform(stages, stream_.native_handle());
}

std::unique_ptr<SampleFeed> make_feed(BatchStream& stream,
                                      const InputReader& input,
                                      const InputKernels* kernels) {
    if (kernels != nullptr) return std::make_unique<DeviceFeed>(stream, input, *kernels);
    return std::make_unique<HostFeed>(stream, input);
}

}  // namespace lockstep
