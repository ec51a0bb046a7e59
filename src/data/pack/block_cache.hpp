// SPDX-License-Identifier: Apache-2.0
// A cache of the blocks that threads used last; the first thread that needs a block makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {

/// Keeps the `capacity` blocks used last. Any thread.
class BlockCache {
  public:
    using Bytes = std::shared_ptr<const std::vector<std::byte>>;

    explicit BlockCache(std::size_t capacity) : capacity_(capacity) {}

    /// Returns block number `number`; `make` makes its bytes if they are missing. Other threads
    /// that need the same block wait for it, and get its exception if `make` throws.
    Bytes block(std::uint64_t number, const std::function<std::vector<std::byte>()>& make) {
        std::promise<Bytes> promise;
        std::unique_lock lock(mutex_);
        for (auto at = entries_.begin(); at != entries_.end(); ++at)
            if (at->first == number) {
                entries_.splice(entries_.begin(), entries_, at);
                const std::shared_future<Bytes> known = at->second;
                lock.unlock();
                return known.get();
            }
        const std::shared_future<Bytes> made = promise.get_future().share();
        entries_.emplace_front(number, made);
        if (entries_.size() > capacity_) entries_.pop_back();
        lock.unlock();
        try {
            promise.set_value(std::make_shared<const std::vector<std::byte>>(make()));
        } catch (...) {
            promise.set_exception(std::current_exception());
        }
        return made.get();
    }

  private:
    std::size_t capacity_;
    std::mutex mutex_;
    std::list<std::pair<std::uint64_t, std::shared_future<Bytes>>> entries_;
};

}  // namespace lockstep
