// SPDX-License-Identifier: Apache-2.0
// What LibTorch asks of CUDA. The class must be registered as CUDAHooks: only that name is looked
// for.
#include "simcuda/gpus.hpp"
#include "simcuda/machine.hpp"
#include "simcuda/torch_device.hpp"
#include "simcuda/torch_generator.hpp"

#include <cstdlib>

#include <ATen/detail/CUDAHooksInterface.h>

namespace simcuda {
namespace {

void release_pinned(void* data) {
    if (data == nullptr) return;
    machine().memory.unlock(data);
    std::free(data);
}

class PinnedAllocator final : public c10::Allocator {
  public:
    c10::DataPtr allocate(std::size_t bytes) override {
        constexpr std::size_t page = 4096;
        void* const data = std::aligned_alloc(page, (bytes + page) / page * page);
        machine().memory.lock(data, bytes);
        return {data, data, &release_pinned, c10::Device(c10::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }
};

c10::DeviceIndex current() {
    return static_cast<c10::DeviceIndex>(Machine::device());
}

class SimHooks final : public at::CUDAHooksInterface {
  public:
    explicit SimHooks(at::CUDAHooksArgs) {}

    void init() const override {}
    bool hasCUDA() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return device_count() > 0; }
    bool hasPrimaryContext(c10::DeviceIndex device) const override {
        return machine().has_context(device);
    }

    // Batch norm by itself asks for cuDNN, as on GPUs; see torch_operators.cpp.
    bool compiledWithCuDNN() const override { return true; }
    long versionCuDNN() const override { return 91002; }
    long versionRuntimeCuDNN() const override { return 91002; }
    long versionCUDART() const override { return 13000; }
    double batchnormMinEpsilonCuDNN() const override { return 0; }

    c10::DeviceIndex deviceCount() const override {
        return static_cast<c10::DeviceIndex>(device_count());
    }
    int getNumGPUs() const override { return device_count(); }
    c10::DeviceIndex current_device() const override { return current(); }
    c10::DeviceIndex getCurrentDevice() const override { return current(); }
    void setCurrentDevice(c10::DeviceIndex device) const override { Machine::set_device(device); }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
        const c10::DeviceIndex before = current();
        Machine::set_device(device);
        return before;
    }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
        return exchangeDevice(device);
    }
    void deviceSynchronize(c10::DeviceIndex device) const override {
        note_wait_of_host();
        machine().synchronize(device < 0 ? current() : device);
    }

    const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
        return default_generator(device);
    }
    at::Generator getNewGenerator(c10::DeviceIndex device) const override {
        return at::make_generator<SimGenerator>(device < 0 ? current() : device);
    }

    at::Device getDeviceFromPtr(void* data) const override {
        const auto device = machine().memory.device_of(data);
        TORCH_CHECK(device, "The specified pointer resides on host memory");
        return {at::kCUDA, static_cast<c10::DeviceIndex>(*device)};
    }
    bool isPinnedPtr(const void* data) const override { return machine().memory.is_locked(data); }
    c10::Allocator* getPinnedMemoryAllocator() const override {
        static PinnedAllocator& one = *new PinnedAllocator;
        return &one;
    }
    c10::Allocator* getCUDADeviceAllocator() const override { return &torch_allocator(); }
};

}  // namespace
}  // namespace simcuda

namespace at {
using simcuda::SimHooks;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, SimHooks)
}  // namespace at
