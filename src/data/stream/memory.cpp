// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

#include "stream_memory.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {

std::uint64_t row_memory(const DatasetIndex& index, std::uint64_t rows) {
    std::uint64_t bytes = 0;
    for (const Field& field : index.fields()) bytes += aligned(rows * field.bytes_per_sample());
    return bytes;
}

std::vector<std::span<std::byte>> divided(const DatasetIndex& index,
                                          std::uint64_t rows,
                                          std::span<std::byte> memory) {
    std::vector<std::span<std::byte>> fields;
    for (const Field& field : index.fields()) {
        const std::uint64_t bytes = rows * field.bytes_per_sample();
        fields.push_back(memory.first(bytes));
        memory = memory.subspan(aligned(bytes));
    }
    return fields;
}

BatchBuffers::BatchBuffers(const DatasetIndex& index,
                           std::size_t count,
                           std::uint64_t rows,
                           const PageLock& page_lock)
    : memory_(count * row_memory(index, rows)),
      locked_(page_lock, memory_.bytes()),
      rooms_(count),
      worth_waking_((count - std::min(count, lendable_batches) + 2) / 2) {
    std::span<std::byte> rest = memory_.bytes();
    for (std::size_t i = 0; i < count; ++i) {
        rooms_[i].places = divided(index, rows, rest);
        rest = rest.subspan(row_memory(index, rows));
        free_.push_back(i);
    }
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

namespace {

constexpr std::size_t line = 64;

// So many bytes are on their way at once. They go to the second cache: the first one's few line
// buffers held rows up to half of the speed (docs/decisions/0011).
constexpr std::size_t row_bytes_ahead = 12288;

// Longer rows are copied in parts: 12 KiB in one call took half as long again.
constexpr std::size_t most_at_once = 2048;

/// Rows one after the other, in parts.
class Parts {
  public:
    Parts(std::span<const std::byte* const> rows, std::size_t bytes) : rows_(rows), bytes_(bytes) {
        const std::size_t parts = (bytes + most_at_once - 1) / most_at_once;
        part_ = (bytes + parts * line - 1) / (parts * line) * line;
    }

    /// How many parts `bytes` are, at least one.
    std::size_t count_in(std::size_t bytes) const {
        return std::max<std::size_t>(bytes / part_, 1);
    }

    /// Empty after the last.
    std::span<const std::byte> next() {
        if (rows_.empty()) return {};
        const std::span part(rows_.front() + at_, std::min(part_, bytes_ - at_));
        at_ += part.size();
        if (at_ == bytes_) {
            at_ = 0;
            rows_ = rows_.subspan(1);
        }
        return part;
    }

  private:
    std::span<const std::byte* const> rows_;
    std::size_t bytes_, part_, at_ = 0;  // at_: in the first row
};

void prefetch(const std::byte* at) {
    constexpr int to_read = 0, second_cache = 2;
    __builtin_prefetch(at, to_read, second_cache);
}

void prefetch(std::span<const std::byte> part) {
    for (std::size_t at = 0; at < part.size(); at += line) prefetch(part.data() + at);
}

// A size that the compiler knows costs no call.
template <std::size_t bytes>
void gather_small(std::span<const std::byte* const> rows, std::byte* to) {
    constexpr std::size_t ahead = 256;
    for (const std::byte* row : rows.first(std::min(ahead, rows.size()))) prefetch(row);
    for (std::size_t i = 0; i < rows.size(); ++i, to += bytes) {
        if (i + ahead < rows.size()) prefetch(rows[i + ahead]);
        std::memcpy(to, rows[i], bytes);
    }
}

}  // namespace

void gather_rows(std::span<const std::byte* const> rows, std::size_t bytes, std::byte* to) {
    switch (bytes) {
        case 1:
            return gather_small<1>(rows, to);
        case 4:
            return gather_small<4>(rows, to);
        case 8:
            return gather_small<8>(rows, to);
        default:
            break;
    }
    Parts far(rows, bytes), near(rows, bytes), here(rows, bytes);
    for (std::size_t i = far.count_in(row_bytes_ahead); i > 0; --i) prefetch(far.next());
    for (std::size_t i = near.count_in(row_bytes_ahead / 2); i > 0; --i) near.next();
    for (auto part = here.next(); !part.empty(); part = here.next()) {
        prefetch(far.next());
        prefetch(near.next());  // again: the processor drops what it has no room for
        std::memcpy(to, part.data(), part.size());
        to += part.size();
    }
}

}  // namespace lockstep
