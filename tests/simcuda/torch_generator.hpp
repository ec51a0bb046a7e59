// SPDX-License-Identifier: Apache-2.0
// Random numbers of a simulated GPU: like CUDA's a seed and an offset, and none of the CPU's.
#pragma once

#include <atomic>
#include <cstdint>

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace simcuda {

class SimGenerator final : public c10::GeneratorImpl {
  public:
    explicit SimGenerator(c10::DeviceIndex device);

    void set_current_seed(std::uint64_t seed) override;
    std::uint64_t current_seed() const override { return seed_; }
    std::uint64_t seed() override;
    void set_offset(std::uint64_t offset) override { offset_ = offset; }
    std::uint64_t get_offset() const override { return offset_; }
    void set_state(const c10::TensorImpl& state) override;
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
    void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;

    /// As in LibTorch, draws fail from the begin of a recording to its end, and for ever if that
    /// fails.
    void be_recorded(bool is_recorded) { is_recorded_ = is_recorded; }

    /// The seed of one operator's draws; the next one has others.
    std::uint64_t next();

  private:
    SimGenerator* clone_impl() const override;

    std::uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
    std::atomic<bool> is_recorded_ = false;
};

const at::Generator& default_generator(c10::DeviceIndex device);

/// LibTorch's operators for CPUs draw from the CPU's default generator: while this lives, they draw
/// what `source` gives, and afterwards as if nothing had been drawn.
class DrawScope {
  public:
    explicit DrawScope(const at::Generator& source);
    ~DrawScope();
    DrawScope(const DrawScope&) = delete;
    DrawScope& operator=(const DrawScope&) = delete;

  private:
    c10::intrusive_ptr<c10::TensorImpl> before_;
};

}  // namespace simcuda
