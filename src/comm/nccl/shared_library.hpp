// SPDX-License-Identifier: Apache-2.0
// A library loaded at run time.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Owns a dlopen handle. Null state: not loaded. Move-only.
class SharedLibrary {
  public:
    SharedLibrary() = default;
    SharedLibrary(SharedLibrary&& other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)) {}
    SharedLibrary& operator=(SharedLibrary&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~SharedLibrary();

    /// Returns null if the loader fails; `reason` then holds the cause.
    static SharedLibrary open(const std::string& name, std::string& reason);
    /// Returns null unless the process has loaded it already.
    static SharedLibrary already_loaded(const std::string& name);

    explicit operator bool() const { return handle_ != nullptr; }
    void* symbol(const char* name) const;  ///< null if there is none
    std::string path() const;              ///< file of the library

  private:
    explicit SharedLibrary(void* handle) : handle_(handle) {}
    void* handle_ = nullptr;
};

/// Returns the files of this process's loaded libraries whose name begins with `prefix`, each once.
std::vector<std::string> loaded_libraries(const std::string& prefix);

}  // namespace lockstep
