// SPDX-License-Identifier: Apache-2.0
#include "batch_buffers.hpp"

#include "stream_memory.hpp"

#include <algorithm>

namespace lockstep {

BatchBuffers::BatchBuffers(const DatasetIndex& index,
                           std::size_t count,
                           std::uint64_t rows,
                           const PageLock& page_lock)
    : memory_(count * buffer_bytes(index, rows)),
      locked_(page_lock, memory_.bytes()),
      rooms_(count),
      worth_waking_((count - std::min(count, lendable_batches) + 2) / 2) {
    std::span<std::byte> rest = memory_.bytes();
    for (std::size_t i = 0; i < count; ++i) {
        for (const Field& field : index.fields()) {
            const std::uint64_t bytes = rows * field.bytes_per_sample();
            rooms_[i].places.push_back(rest.first(bytes));
            rest = rest.subspan(aligned(bytes));
        }
        free_.push_back(i);
    }
}

std::uint64_t BatchBuffers::buffer_bytes(const DatasetIndex& index, std::uint64_t rows) {
    std::uint64_t bytes = 0;
    for (const Field& field : index.fields()) bytes += aligned(rows * field.bytes_per_sample());
    return bytes;
}

BatchBuffers::Lent BatchBuffers::take() {
    std::unique_lock lock(mutex_);
    given_back_.wait(lock, [&] { return is_stopped_ || !free_.empty(); });
    return is_stopped_ ? Lent{} : lend();
}

BatchBuffers::Lent BatchBuffers::try_take() {
    const std::scoped_lock lock(mutex_);
    return is_stopped_ || free_.empty() ? Lent{} : lend();
}

BatchBuffers::Lent BatchBuffers::lend() {
    const std::size_t buffer = free_.back();
    free_.pop_back();
    std::shared_ptr<void> lease(
        this, [self = shared_from_this(), buffer](void*) { self->give_back(buffer); });
    return {&rooms_[buffer], std::move(lease)};
}

void BatchBuffers::give_back(std::size_t buffer) {
    bool is_worth_waking = false;
    {
        const std::scoped_lock lock(mutex_);
        free_.push_back(buffer);
        is_worth_waking = free_.size() >= worth_waking_;
    }
    if (is_worth_waking) given_back_.notify_one();
}

void BatchBuffers::stop() {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
    given_back_.notify_all();
}

}  // namespace lockstep
