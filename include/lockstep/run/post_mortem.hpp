// SPDX-License-Identifier: Apache-2.0
/// @file
/// Says which rank was lost, when ranks that this process launched ended without saying so.
#pragma once

#include "lockstep/core/error.hpp"

#include <filesystem>
#include <functional>

namespace lockstep {

/// Where the ranks of a launch leave their records, and who is told of their end.
struct LaunchedRun {
    /// The folder of the newest start's flight records; "" where nothing has started.
    std::function<std::filesystem::path()> newest_flight;

    /// Told why the run has failed, if nobody else could.
    std::function<void(const Error&)> mark_failed;
};

/// Runs `launch` and gives back its exit code; 76 where the ranks have given their verdict. Records
/// of earlier starts are left alone.
/// Errors: E660 naming the rank that is gone without a word; E612 if memory ran out, as files below
/// `root` count it; what `launch` throws otherwise.
int explain_end(const LaunchedRun& run,
                const std::function<int()>& launch,
                const std::filesystem::path& root = "/");

}  // namespace lockstep
