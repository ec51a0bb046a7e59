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

    /// Null where the loader fails; `reason` then says why.
    static SharedLibrary open(const std::string& name, std::string& reason);
    /// Null unless the process has it already.
    static SharedLibrary already_loaded(const std::string& name);

    explicit operator bool() const { return handle_ != nullptr; }
    void* symbol(const char* name) const;  ///< null where there is none
    std::string path() const;              ///< the file it came from

  private:
    explicit SharedLibrary(void* handle) : handle_(handle) {}
    void* handle_ = nullptr;
};

/// Files of this process's loaded libraries whose name begins with `prefix`, each once.
std::vector<std::string> loaded_libraries(const std::string& prefix);

}  // namespace lockstep
