// SPDX-License-Identifier: Apache-2.0
// Manual pages of the commands, made from their tables, so that they always agree.
#pragma once

#include "command.hpp"

#include <string_view>

namespace lockstep {

/// The meaning of an exit code, for `lockstep explain`, the manual page and docs/reference.md.
struct ExitMeaning {
    ExitCode code;
    std::string_view meaning;     ///< "missing input or program"
    std::string_view next_start;  ///< effect of another start: "would fail again"
};

/// Meanings, sorted by code.
inline constexpr ExitMeaning exit_meanings[] = {
    {ExitCode::complete, "complete", "is not needed"},
    {ExitCode::usage, "wrong usage: option, value, argument", "would fail again"},
    {ExitCode::bad_data, "bad data or checkpoint", "would fail again"},
    {ExitCode::missing_input, "missing input or program", "would fail again"},
    {ExitCode::service_away,
     "a service is away (SLURM, a download), or a run is in use",
     "perhaps later, by hand"},
    {ExitCode::bug, "a bug of ours, or a model that ended the process", "would fail again"},
    {ExitCode::cannot_create, "an output cannot be made", "would fail again"},
    {ExitCode::io, "input or output error", "would fail again"},
    {ExitCode::saved_please_requeue,
     "saved after a signal or before --deadline, or told to end before anything began: please "
     "requeue",
     "goes on"},
    {ExitCode::peer_lost,
     "a rank, node or daemon was lost, or hangs",
     "goes on from the newest checkpoint"},
    {ExitCode::permission, "permission", "would fail again"},
    {ExitCode::config, "configuration", "would fail again"},
    {ExitCode::do_not_requeue,
     "do not requeue: three starts without a new checkpoint, or too many restarts",
     "find out why first"},
    {ExitCode::interrupted, "interrupted by hand, saved", "goes on, by hand"}};

/// Writes the manual page, the shells' completions and reference.md below `folder` in the layout of
/// an installation's share/; returns their paths. Errors: E407 if `folder` holds files, those of
/// writing.
std::vector<std::string> write_manual(std::vector<Command> commands, const fs::path& folder);

}  // namespace lockstep
