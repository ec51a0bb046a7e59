// SPDX-License-Identifier: Apache-2.0
// The last few blocks that threads asked for, each made once by the first that needs it.
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

    /// Block number `number`; `make` gives its bytes if they are not here. Others that ask for the
    /// same block meanwhile wait, and get what `make` threw if it did.
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
