// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the lost rank when ranks that this process launched ended without an error.
#pragma once

#include "lockstep/core/error.hpp"

#include <filesystem>
#include <functional>

namespace lockstep {

/// The records of a launch's ranks, and the callback for their end.
struct LaunchedRun {
    /// Returns the folder of the newest start's flight records; "" if nothing has started.
    std::function<std::filesystem::path()> newest_flight;

    /// Called with the reason why the run failed, if no rank could report it.
    std::function<void(const Error&)> mark_failed;
};

/// Runs `launch` and returns its exit code; 76 if the ranks have given their verdict. Records of
/// earlier starts are ignored. Errors: E660 naming the rank that ended without an error; E612 if
/// memory ran out, by the kernel's counters below `root`; other errors of `launch`.
int explain_end(const LaunchedRun& run,
                const std::function<int()>& launch,
                const std::filesystem::path& root = "/");

}  // namespace lockstep
