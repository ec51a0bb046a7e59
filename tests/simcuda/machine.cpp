// SPDX-License-Identifier: Apache-2.0
#include "simcuda/machine.hpp"

#include "simcuda/settings.hpp"

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include <sys/mman.h>

namespace simcuda {
namespace {

constexpr std::size_t smallest = 512;  // to which CUDA's allocations are aligned

std::size_t rounded(std::size_t bytes) {
    return std::bit_ceil(std::max(bytes, smallest));
}

/// Of the element that holds `data`, or the end.
template <class Map>
auto holding(Map& map, const void* data) {
    const auto above = map.upper_bound(static_cast<const std::byte*>(data));
    return above == map.begin() ? map.end() : std::prev(above);
}

std::uint64_t next_number() {
    static std::atomic<std::uint64_t> streams = 0;
    return ++streams;
}

thread_local int current_device = 0;

}  // namespace

void die(const char* what) {
    std::fprintf(stderr, "simcuda: %s\n", what);
    std::abort();
}

Arena::Arena() {
    void* const both =
        ::mmap(nullptr, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (both == MAP_FAILED) die("no addresses for the memory of GPUs (ulimit -v)");
    begin_ = static_cast<std::byte*>(both);
    if (::mprotect(begin_ + size, size, PROT_READ | PROT_WRITE) != 0)
        die("no memory for GPUs (vm.overcommit_memory)");
}

void* Arena::take(std::size_t bytes) {
    const std::size_t whole = rounded(bytes);
    auto& free = free_[static_cast<std::size_t>(std::countr_zero(whole))];
    if (!free.empty()) {
        void* const block = free.back();
        free.pop_back();
        return block;
    }
    if (whole > size - used_) return nullptr;
    used_ += whole;
    return begin_ + used_ - whole;
}

void Arena::give_back(void* block, std::size_t bytes) {
    free_[static_cast<std::size_t>(std::countr_zero(rounded(bytes)))].push_back(block);
}

bool Arena::holds(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= begin_ && at < begin_ + size;
}

void* Memory::allocate(int device, std::size_t bytes, Stream* owner) {
    const std::size_t most = settings().memory;
    const std::lock_guard lock(mutex_);
    std::size_t& used = used_[device];
    if (bytes > most || used > most - bytes) return nullptr;
    void* const data = arena_.take(bytes);
    if (data == nullptr) return nullptr;
    std::memset(behind(data), poison, bytes);
    used += bytes;
    blocks_[static_cast<const std::byte*>(data)] = {bytes, device, owner};
    return data;
}

Stream* Memory::take_owner(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<const std::byte*>(data));
    return found == blocks_.end() ? nullptr : std::exchange(found->second.owner, nullptr);
}

void Memory::release(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<const std::byte*>(data));
    if (found == blocks_.end()) die("freed what is not allocated on a GPU");
    const std::size_t bytes = found->second.bytes;
    std::memset(behind(data), poison, bytes);
    used_[found->second.device] -= bytes;
    arena_.give_back(data, bytes);
    blocks_.erase(found);
}

std::optional<int> Memory::device_of(const void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = holding(blocks_, data);
    if (found == blocks_.end()) return {};
    const auto offset =
        static_cast<std::size_t>(static_cast<const std::byte*>(data) - found->first);
    if (offset >= found->second.bytes) return {};
    if (offset + bytes > found->second.bytes) die("work goes beyond an allocation");
    return found->second.device;
}

std::size_t Memory::used(int device) {
    const std::lock_guard lock(mutex_);
    return used_[device];
}

bool Memory::lock(void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    return locked_.emplace(static_cast<const std::byte*>(data), bytes).second;
}

bool Memory::unlock(void* data) {
    const std::lock_guard lock(mutex_);
    return locked_.erase(static_cast<const std::byte*>(data)) == 1;
}

bool Memory::is_locked(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = holding(locked_, data);
    return found != locked_.end() &&
           static_cast<const std::byte*>(data) < found->first + found->second;
}

Stream::Stream(int device) : device_(device), number_(next_number()) {
    std::thread([this] {
        sigset_t all;  // signals are for the program's own threads
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
        run();
    }).detach();
}

void Stream::run() {
    std::unique_lock lock(mutex_);
    for (std::uint64_t number = 0; !ends_; ++number) {
        changed_.wait(lock, [&] { return !tasks_.empty(); });
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        be_late(number_, number);
        task();
        task = nullptr;
        lock.lock();
        ++done_;
        changed_.notify_all();
    }
}

void Stream::enqueue(Task task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    ++enqueued_;
    changed_.notify_all();
}

bool Stream::is_idle() {
    const std::lock_guard lock(mutex_);
    return done_ == enqueued_;
}

void Stream::drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&, upto = enqueued_] { return done_ >= upto; });
}

void Stream::end() {
    enqueue([this] { ends_ = true; });
}

void Event::record(Stream& stream) {
    const auto place = std::make_shared<std::promise<Time>>();
    passed_ = place->get_future().share();
    stream.enqueue([place] { place->set_value(std::chrono::steady_clock::now()); });
}

bool Event::has_passed() const {
    return !passed_.valid() ||
           passed_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

double Event::milliseconds_to(const Event& later) const {
    return std::chrono::duration<double, std::milli>(later.passed_.get() - passed_.get()).count();
}

void Event::hold(Stream& stream) const {
    if (passed_.valid()) stream.enqueue([passed = passed_] { passed.wait(); });
}

Machine& machine() {
    static Machine& one = *new Machine;  // threads outlive what a process destroys at its end
    return one;
}

int Machine::device() {
    return current_device;
}

void Machine::set_device(int device) {
    current_device = device;
}

bool Machine::has_context(int device) {
    const std::lock_guard lock(mutex_);
    return contexts_.contains(device);
}

void Machine::make_context(int device) {
    const std::lock_guard lock(mutex_);
    contexts_.insert(device);
}

Stream& Machine::default_stream(int device) {
    const std::lock_guard lock(mutex_);
    Stream*& stream = defaults_[device];
    if (stream == nullptr) streams_.push_back(stream = new Stream(device));
    return *stream;
}

Stream& Machine::make_stream(int device) {
    const std::lock_guard lock(mutex_);
    return *streams_.emplace_back(new Stream(device));
}

void Machine::end_stream(Stream& stream) {
    const std::lock_guard lock(mutex_);
    std::erase(streams_, &stream);
    stream.end();
}

void Machine::synchronize(int device) {
    std::vector<Stream*> streams;
    {
        const std::lock_guard lock(mutex_);
        streams = streams_;
    }
    for (Stream* stream : streams)
        if (stream->device() == device) stream->drain();
}

void* Machine::allocate(int device, std::size_t bytes, Stream* owner) {
    make_context(device);
    if (void* const data = memory.allocate(device, bytes, owner)) return data;
    synchronize(device);
    return memory.allocate(device, bytes, owner);
}

}  // namespace simcuda
