// SPDX-License-Identifier: Apache-2.0
// LibTorch's guard, allocators, hooks and generators for CUDA. A c10::Stream's number is the
// address of its Stream; 0 is the default one.
#include "simcuda/torch_device.hpp"

#include "simcuda/recording.hpp"
#include "simcuda/settings.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

namespace simcuda {
namespace {

constexpr int most_gpus = 64;

thread_local std::array<c10::StreamId, most_gpus> current_streams{};

c10::DeviceIndex current() {
    return static_cast<c10::DeviceIndex>(Machine::device());
}

c10::Device gpu(int device) {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(device)};
}

int index_of(c10::Device device) {
    return device.has_index() ? device.index() : Machine::device();
}

/// As CUDA's caching allocator: memory is free for later work of the stream that it was for.
void release(void* data) {
    if (data == nullptr) return;
    Memory& memory = machine().memory;
    Stream* const owner = memory.take_owner(data);
    if (owner == nullptr) die("LibTorch freed what is not allocated on a GPU for it");
    if (owner->is_idle()) return memory.release(data);
    owner->enqueue([&memory, data] { memory.release(data); });
}

std::atomic<std::int64_t> failed_allocations = 0;

class Allocator final : public c10::DeviceAllocator {
  public:
    c10::DataPtr allocate(std::size_t bytes) override {
        const int device = Machine::device();
        void* data = nullptr;
        if (bytes > 0) data = machine().allocate(device, bytes, &own_stream());
        if (bytes > 0 && data == nullptr) note_failed_allocation();
        TORCH_CHECK_WITH(OutOfMemoryError,
                         bytes == 0 || data != nullptr,
                         "CUDA out of memory. Tried to allocate ",
                         bytes,
                         " bytes. GPU ",
                         device,
                         " has a total capacity of ",
                         settings().memory,
                         " bytes of which ",
                         machine().memory.used(device),
                         " are in use.");
        if (Recording* const recording = recording_around()) recording->own(data);
        return {data, data, &release, gpu(device)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        wait_for_current_stream();
        default_copy_data(machine().memory.behind(to), machine().memory.behind(from), bytes);
    }

    bool initialized() override { return true; }
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
        c10::CachingDeviceAllocator::DeviceStats stats;
        stats.num_ooms = failed_allocations;
        return stats;
    }
    // Nothing is cached, and memory knows its stream.
    void emptyCache(c10::MempoolId_t) override {}
    void recordStream(const c10::DataPtr&, c10::Stream) override {}
    void resetAccumulatedStats(c10::DeviceIndex) override {}
    void resetPeakStats(c10::DeviceIndex) override {}
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
  public:
    c10::DeviceType type() const override { return c10::kCUDA; }
    c10::Device exchangeDevice(c10::Device device) const override {
        const c10::Device before = getDevice();
        setDevice(device);
        return before;
    }
    c10::Device getDevice() const override { return gpu(Machine::device()); }
    void setDevice(c10::Device device) const override {
        TORCH_CHECK(index_of(device) < device_count(), "CUDA error: invalid device ordinal");
        Machine::set_device(index_of(device));
    }
    void uncheckedSetDevice(c10::Device device) const noexcept override {
        Machine::set_device(index_of(device));
    }
    c10::DeviceIndex deviceCount() const noexcept override {
        return static_cast<c10::DeviceIndex>(device_count());
    }

    c10::Stream getStream(c10::Device device) const override {
        return current_stream(static_cast<c10::DeviceIndex>(index_of(device)));
    }
    c10::Stream getDefaultStream(c10::Device device) const override {
        return c10::Stream(c10::Stream::DEFAULT, gpu(index_of(device)));
    }
    c10::Stream getNewStream(c10::Device device, int) const override {
        return c10::Stream(
            c10::Stream::UNSAFE,
            gpu(index_of(device)),
            reinterpret_cast<c10::StreamId>(&machine().make_stream(index_of(device))));
    }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
        return getNewStream(device, 0);
    }
    c10::Stream exchangeStream(c10::Stream stream) const override {
        const c10::Stream before = getStream(stream.device());
        current_streams.at(static_cast<std::size_t>(stream.device_index())) = stream.id();
        return before;
    }
    void* getStreamNativeHandle(c10::Stream stream) const override {
        return stream.id() == 0 ? nullptr : &stream_of(stream);
    }
    bool queryStream(const c10::Stream& stream) const override {
        return stream_of(stream).is_idle();
    }
    void synchronizeStream(const c10::Stream& stream) const override {
        refuse_while_recording();
        note_wait_of_host();
        stream_of(stream).drain();
    }
    void synchronizeDevice(c10::DeviceIndex device) const override {
        refuse_while_recording();
        note_wait_of_host();
        machine().synchronize(device);
    }

    void record(void** event,
                const c10::Stream& stream,
                c10::DeviceIndex,
                c10::EventFlag) const override {
        if (*event == nullptr) *event = new Event;
        auto& recorded = *static_cast<Event*>(*event);
        recorded.is_of_recording = stream_of(stream).recording != nullptr;
        recorded.record(stream_of(stream));
    }
    void block(void* event, const c10::Stream& stream) const override {
        if (event == nullptr) return;
        refuse_unless_inside(*static_cast<Event*>(event), stream_of(stream));
        if (!is_dropped_wait()) static_cast<Event*>(event)->hold(stream_of(stream));
    }
    bool queryEvent(void* event) const override {
        return event == nullptr || static_cast<Event*>(event)->has_passed();
    }
    void synchronizeEvent(void* event) const override {
        note_wait_of_host();
        if (event != nullptr) static_cast<Event*>(event)->synchronize();
    }
    double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
        return static_cast<Event*>(from)->milliseconds_to(*static_cast<Event*>(to));
    }
    void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
        delete static_cast<Event*>(event);
    }
};

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

/// Registered as CUDAHooks: only that name is looked for.
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

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

const c10::AllocatorRegisterer<c10::DeviceType::CUDA> registered(&torch_allocator());

using State = std::array<std::uint64_t, 2>;

constexpr std::uint64_t step = 4;  // CUDA's, too, counts in fours

std::vector<at::Generator> make_generators() {
    std::vector<at::Generator> all;
    for (int device = 0; device < device_count(); ++device)
        all.push_back(at::make_generator<SimGenerator>(static_cast<c10::DeviceIndex>(device)));
    return all;
}

}  // namespace

c10::Allocator& torch_allocator() {
    static Allocator& one = *new Allocator;
    return one;
}

void note_failed_allocation() {
    ++failed_allocations;
}

Stream& stream_of(c10::Stream stream) {
    if (stream.id() == 0) return machine().default_stream(stream.device_index());
    return *reinterpret_cast<Stream*>(stream.id());
}

c10::Stream current_stream(c10::DeviceIndex device) {
    return c10::Stream(
        c10::Stream::UNSAFE, gpu(device), current_streams.at(static_cast<std::size_t>(device)));
}

Stream& own_stream() {
    return stream_of(current_stream(current()));
}

void throw_if_lost() {
    if (const int lost = fault_of_call())
        throw c10::AcceleratorError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                                    lost,
                                    "CUDA error: unspecified launch failure");
}

void wait_for_current_stream() {
    throw_if_lost();
    own_stream().drain();
}

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

}  // namespace simcuda

namespace at {
using simcuda::SimHooks;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, SimHooks)
}  // namespace at
