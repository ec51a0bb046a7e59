// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pages of host memory: of its own, or page-locked, which a device can read and write directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace lockstep {

/// Anonymous pages of this process, large ones where the kernel has them. They cost nothing until
/// they are touched. Outside the heap they go back as a whole, and leave its free room to others.
/// Null state: empty. Move-only.
class Pages {
  public:
    Pages() = default;
    /// Errors: E225.
    explicit Pages(std::uint64_t bytes);
    Pages(Pages&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    Pages& operator=(Pages&& other) noexcept;
    ~Pages();

    /// Returns the memory, aligned to a page.
    std::span<std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

/// Functions of a device's library that lock pages. They may be called on any thread. Empty:
/// nothing is locked.
struct PageLock {
    std::function<void(std::span<std::byte>)> lock;  ///< throws on failure
    std::function<void(std::span<std::byte>)>
        unlock;  ///< takes what lock() was given; does not throw

    explicit operator bool() const {
        return static_cast<bool>(lock);
    }  ///< true if pages are locked
};

/// Locks `pages`, which it does not own, during its lifetime.
class LockedPages {
  public:
    /// Throws what `how.lock` throws. `pages` must outlive this.
    LockedPages(const PageLock& how, std::span<std::byte> pages) : pages_(pages) {
        if (!how || pages.empty()) return;
        how.lock(pages);
        unlock_ = how.unlock;
    }
    LockedPages& operator=(LockedPages&&) = delete;
    ~LockedPages() {
        if (unlock_) unlock_(pages_);
    }

  private:
    std::span<std::byte> pages_;
    std::function<void(std::span<std::byte>)> unlock_;
};

}  // namespace lockstep
