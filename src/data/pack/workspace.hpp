// SPDX-License-Identifier: Apache-2.0
// A folder that gets its final name only when its content is complete.
#pragma once

#include "lockstep/core/files.hpp"

#include <filesystem>

namespace lockstep {

/// A hidden folder beside `target`, held by a lock; it keeps the content of an interrupted
/// predecessor. The destructor removes it unless commit() was reached or keep() was called.
class Workspace {
  public:
    /// Takes the folder. Errors: E407 (target exists), E401 (cannot create), E404 (another process
    /// works here).
    explicit Workspace(const std::filesystem::path& target);
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    const std::filesystem::path& path() const { return path_; }

    /// Removes its content. Errors: E401.
    void clear();

    /// Keeps it for a later pack.
    void keep() { is_kept_ = true; }

    /// Flushes the folder and renames it to the target. Errors: E407, E402.
    void commit();

  private:
    void enter();

    std::filesystem::path target_, path_;
    UniqueFd lock_;
    bool is_kept_ = false;
};

}  // namespace lockstep
