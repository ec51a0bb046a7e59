// SPDX-License-Identifier: Apache-2.0
/// @file
/// What callers do something about: errors by meaning, where their codes are for people.
#pragma once

#include "lockstep/core/error.hpp"

namespace lockstep {

/// A kind may be several codes. `other`: nobody tells it from the rest.
enum class ErrorKind {
    other,
    file_missing,      ///< a file or folder does not exist
    file_forbidden,    ///< it may not be read
    data_damaged,      ///< what was read is not what was written
    device_failed,     ///< it could not be read at all
    helper_missing,    ///< nothing is said about the file that it was to look at
    interrupted,       ///< a signal asked to stop
    format_newer,      ///< written by a newer version: nothing older will do instead
    no_authorization,  ///< SLURM does not know us: asking again helps nothing
    launch_mismatch,   ///< MPI and its launcher do not fit together
    timed_out,         ///< a child process was ended after its time limit
    rank_absent,       ///< a rank did not arrive
    no_shared_memory,  ///< there are other, slower ways
    gpu_shared,        ///< two ranks on one GPU
    aborted,           ///< a communicator, by others
    peer_gave_up,      ///< another rank failed, and says why itself
};

/// The kind that its code belongs to.
ErrorKind kind_of(const Error& error);

}  // namespace lockstep
