// SPDX-License-Identifier: Apache-2.0
/// @file
/// Page-locked host memory, from which a device copies by itself.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace lockstep {

/// How a device's library locks pages; any thread. Empty: nothing is locked.
struct PageLock {
    std::function<void(std::span<std::byte>)> lock;    ///< throws if it cannot
    std::function<void(std::span<std::byte>)> unlock;  ///< what lock() was given; does not throw

    explicit operator bool() const { return static_cast<bool>(lock); }  ///< pages are locked
};

/// Locks `pages`, which it does not own, for as long as it lives.
class LockedPages {
  public:
    /// Throws what `how.lock` throws. `pages` outlive this.
    LockedPages(const PageLock& how, std::span<std::byte> pages) : pages_(pages) {
        if (!how || pages.empty()) return;
        how.lock(pages);
        unlock_ = how.unlock;
    }
    LockedPages(const LockedPages&) = delete;
    LockedPages& operator=(const LockedPages&) = delete;
    ~LockedPages() {
        if (unlock_) unlock_(pages_);
    }

  private:
    std::span<std::byte> pages_;
    std::function<void(std::span<std::byte>)> unlock_;
};

}  // namespace lockstep
