// SPDX-License-Identifier: Apache-2.0
#include "simcuda/machine.hpp"

#include "simcuda/gpus.hpp"

namespace simcuda {
namespace {

thread_local int current_device = 0;

template <class T>
T& at_device(std::vector<T>& all, int device) {
    all.resize(static_cast<std::size_t>(device_count()));
    return all.at(static_cast<std::size_t>(device));
}

}  // namespace

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
    return contexts_.size() > static_cast<std::size_t>(device) &&
           contexts_[static_cast<std::size_t>(device)];
}

void Machine::make_context(int device) {
    const std::lock_guard lock(mutex_);
    contexts_.resize(static_cast<std::size_t>(device_count()));
    contexts_.at(static_cast<std::size_t>(device)) = true;
}

Stream& Machine::default_stream(int device) {
    const std::lock_guard lock(mutex_);
    Stream*& stream = at_device(defaults_, device);
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

void* Machine::allocate(int device, std::size_t bytes) {
    make_context(device);
    if (void* const data = memory.allocate(device, bytes)) return data;
    synchronize(device);
    return memory.allocate(device, bytes);
}

}  // namespace simcuda
