// SPDX-License-Identifier: Apache-2.0
// A folder that becomes another one only when everything in it is right.
#pragma once

#include "lockstep/core/files.hpp"

#include <filesystem>

namespace lockstep {

/// A hidden folder beside `target`, held by a lock; it has what an interrupted predecessor left.
/// The destructor removes it unless commit() was reached or keep() was called.
class Workspace {
  public:
    /// Errors: E407 (target exists), E401 (cannot create), E404 (somebody else works here).
    explicit Workspace(const std::filesystem::path& target);
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    const std::filesystem::path& path() const { return path_; }

    /// Removes what is in it. Errors: E401.
    void clear();

    /// Leaves it there for a successor.
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
