// SPDX-License-Identifier: Apache-2.0
// The device as LibTorch sees it, and its random numbers: like CUDA's a seed and an offset, and
// none of the CPU's.
#pragma once

#include "simcuda/machine.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/Stream.h>

namespace simcuda {

/// Of CUDA's memory; throws c10::OutOfMemoryError.
c10::Allocator& torch_allocator();

/// Counts memory that was asked for in vain.
void note_failed_allocation();

Stream& stream_of(c10::Stream stream);

/// The calling thread's current stream of a device.
c10::Stream current_stream(c10::DeviceIndex device);

/// That of its current device.
Stream& own_stream();

/// Counts a call; c10::AcceleratorError where the GPU is lost.
void throw_if_lost();

/// What an operator on the host begins with: all work before it is done. Throws as throw_if_lost().
void wait_for_current_stream();

/// Where a generator is; as in LibTorch, generators may share it, and a recording keeps it.
struct DrawState {
    std::uint64_t seed = c10::default_rng_seed_val, offset = 0;
    /// As in LibTorch, draws fail for ever after a recording that failed.
    std::atomic<bool> is_spoilt = false;
    std::atomic<bool> is_in_recording = false;  ///< it was registered with the present one
};

class SimGenerator final : public c10::GeneratorImpl {
  public:
    explicit SimGenerator(c10::DeviceIndex device, std::shared_ptr<DrawState> state = {});

    void set_current_seed(std::uint64_t seed) override;
    std::uint64_t current_seed() const override { return state_->seed; }
    std::uint64_t seed() override;
    void set_offset(std::uint64_t offset) override { state_->offset = offset; }
    std::uint64_t get_offset() const override { return state_->offset; }
    void set_state(const c10::TensorImpl& state) override;
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
    void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;

    c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

    const std::shared_ptr<DrawState>& draw_state() const { return state_; }
    void use(std::shared_ptr<DrawState> state) { state_ = std::move(state); }

    /// The seed of one operator's draws; the next one has others.
    std::uint64_t next();

  private:
    SimGenerator* clone_impl() const override;

    std::shared_ptr<DrawState> state_;
};

const at::Generator& default_generator(c10::DeviceIndex device);
SimGenerator& default_draws(c10::DeviceIndex device = -1);

}  // namespace simcuda
