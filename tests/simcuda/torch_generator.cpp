// SPDX-License-Identifier: Apache-2.0
#include "simcuda/torch_generator.hpp"

#include "simcuda/gpus.hpp"
#include "simcuda/machine.hpp"
#include "simcuda/recording.hpp"

#include <array>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

namespace simcuda {
namespace {

using State = std::array<std::uint64_t, 2>;

constexpr std::uint64_t step = 4;  // CUDA's, too, counts in fours

std::mutex& draw_mutex() {
    static std::mutex& one = *new std::mutex;
    return one;
}

std::vector<at::Generator> make_generators() {
    std::vector<at::Generator> all;
    for (int device = 0; device < device_count(); ++device)
        all.push_back(at::make_generator<SimGenerator>(static_cast<c10::DeviceIndex>(device)));
    return all;
}

}  // namespace

SimGenerator::SimGenerator(c10::DeviceIndex device, std::shared_ptr<DrawState> state)
    : GeneratorImpl({c10::kCUDA, device}, c10::DispatchKeySet(c10::DispatchKey::CUDA)),
      state_(state ? std::move(state) : std::make_shared<DrawState>()) {}

void SimGenerator::set_current_seed(std::uint64_t seed) {
    state_->seed = seed;
    state_->offset = 0;
}

std::uint64_t SimGenerator::seed() {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_->seed;
}

void SimGenerator::set_state(const c10::TensorImpl& state) {
    TORCH_CHECK(state.numel() == sizeof(State), "RNG state is wrong size");
    State words;
    std::memcpy(words.data(), state.data(), sizeof words);
    state_->seed = words[0];
    state_->offset = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> SimGenerator::get_state() const {
    const State words{state_->seed, state_->offset};
    const at::Tensor state = at::empty({sizeof(State)}, at::TensorOptions(at::kByte));
    std::memcpy(state.mutable_data_ptr(), words.data(), sizeof words);
    return state.getIntrusivePtr();
}

void SimGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
    use(static_cast<const SimGenerator&>(*state).state_);
}

c10::intrusive_ptr<c10::GeneratorImpl> SimGenerator::graphsafe_get_state() const {
    return c10::make_intrusive<SimGenerator>(device().index(), state_);
}

SimGenerator* SimGenerator::clone_impl() const {
    auto* const copy = new SimGenerator(device().index());
    copy->set_current_seed(state_->seed);
    copy->set_offset(state_->offset);
    return copy;
}

std::uint64_t SimGenerator::next() {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!state_->is_spoilt,
                "Offset increment outside graph capture encountered unexpectedly.");
    TORCH_CHECK(recording_around() == nullptr || state_->is_in_recording,
                "The CUDA generator must be registered with the graph that is captured.");
    std::uint64_t x = state_->seed * 0x9e3779b97f4a7c15 + state_->offset;
    state_->offset += step;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
    static const auto& all = *new std::vector<at::Generator>(make_generators());
    const int index = device < 0 ? Machine::device() : device;
    return all.at(static_cast<std::size_t>(index));
}

SimGenerator& default_draws(c10::DeviceIndex device) {
    return *static_cast<SimGenerator*>(default_generator(device).unsafeGetGeneratorImpl());
}

DrawScope::DrawScope(const at::Generator& source) {
    TORCH_CHECK(source.device().is_cuda(),
                "Expected a 'cuda' device type for generator but found 'cpu'");
    const std::uint64_t seed = static_cast<SimGenerator*>(source.unsafeGetGeneratorImpl())->next();
    draw_mutex().lock();
    at::Generator cpu = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(cpu.mutex());
    before_ = cpu.unsafeGetGeneratorImpl()->get_state();
    cpu.set_current_seed(seed);
}

DrawScope::~DrawScope() {
    {
        at::Generator cpu = at::detail::getDefaultCPUGenerator();
        const std::lock_guard lock(cpu.mutex());
        cpu.unsafeGetGeneratorImpl()->set_state(*before_);
    }
    draw_mutex().unlock();
}

}  // namespace simcuda
