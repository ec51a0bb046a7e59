// SPDX-License-Identifier: Apache-2.0
/// @file
/// Kinds of errors, for callers that handle them; codes are for users.
#pragma once

#include "lockstep/core/error.hpp"

#include <string_view>

namespace lockstep {

/// A kind may comprise several codes. `other`: no caller distinguishes it.
enum class ErrorKind {
    other,
    file_missing,      ///< a file or folder does not exist
    file_forbidden,    ///< a file or folder may not be read
    data_damaged,      ///< the bytes read differ from those written
    value_missing,     ///< a value is intact, but marked as missing
    device_failed,     ///< the device could not read it
    helper_missing,    ///< a helper program is missing, which says nothing about the file that it
                       ///< should read
    interrupted,       ///< a signal asked to stop
    format_newer,      ///< a newer version wrote it, and an older file does not replace it
    no_authorization,  ///< SLURM does not know this user: another attempt does not help
    launch_mismatch,   ///< MPI and its launcher do not match
    timed_out,         ///< a child process was ended after its time limit
    rank_absent,       ///< a rank did not start in time
    no_shared_memory,  ///< no shared memory; slower ways exist
    gpu_shared,        ///< two ranks use one GPU
    nccl_failed,       ///< NCCL failed; CUDA may know why
    aborted,           ///< another rank aborted a communicator
    peer_gave_up,      ///< another rank failed and reports why itself
    peer_lost,         ///< another rank hangs or is gone
    messages_failed,   ///< MPI or NCCL messages fail, by themselves or because a peer is gone
};

/// Returns the kind of the error's code.
ErrorKind kind_of(const Error& error);

/// The rank that causes an error.
enum class Blame {
    own,     ///< the rank that reports it
    unsure,  ///< that rank or another
    peer,    ///< another rank ended or is silent
};

/// Returns the blame of errors with `code`.
Blame blame_of_code(std::string_view code);

}  // namespace lockstep
