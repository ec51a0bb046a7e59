// SPDX-License-Identifier: Apache-2.0
#include "simcuda/torch_generator.hpp"

#include "simcuda/gpus.hpp"
#include "simcuda/machine.hpp"

#include <array>
#include <cstring>
#include <mutex>
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

SimGenerator::SimGenerator(c10::DeviceIndex device)
    : GeneratorImpl({c10::kCUDA, device}, c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}

void SimGenerator::set_current_seed(std::uint64_t seed) {
    seed_ = seed;
    offset_ = 0;
}

std::uint64_t SimGenerator::seed() {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
}

void SimGenerator::set_state(const c10::TensorImpl& state) {
    TORCH_CHECK(state.numel() == sizeof(State), "RNG state is wrong size");
    State words;
    std::memcpy(words.data(), state.data(), sizeof words);
    seed_ = words[0];
    offset_ = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> SimGenerator::get_state() const {
    const State words{seed_, offset_};
    const at::Tensor state = at::empty({sizeof(State)}, at::TensorOptions(at::kByte));
    std::memcpy(state.mutable_data_ptr(), words.data(), sizeof words);
    return state.getIntrusivePtr();
}

void SimGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
    const auto& other = static_cast<const SimGenerator&>(*state);
    seed_ = other.seed_;
    offset_ = other.offset_;
    is_recorded_ = other.is_recorded_.load();
}

SimGenerator* SimGenerator::clone_impl() const {
    auto* const copy = new SimGenerator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
}

std::uint64_t SimGenerator::next() {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!is_recorded_, "Offset increment outside graph capture encountered unexpectedly.");
    std::uint64_t x = seed_ * 0x9e3779b97f4a7c15 + offset_;
    offset_ += step;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
    static const auto& all = *new std::vector<at::Generator>(make_generators());
    const int index = device < 0 ? Machine::device() : device;
    return all.at(static_cast<std::size_t>(index));
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
