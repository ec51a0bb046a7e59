// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors by meaning, for callers that handle them; codes are for users.
#pragma once

#include "lockstep/core/error.hpp"

#include <string_view>

namespace lockstep {

/// A kind may be several codes. `other`: no caller distinguishes it.
enum class ErrorKind {
    other,
    file_missing,      ///< a file or folder does not exist
    file_forbidden,    ///< it may not be read
    data_damaged,      ///< what was read is not what was written
    value_missing,     ///< it is as it was written, and says of itself that it is no value
    device_failed,     ///< it could not be read at all
    helper_missing,    ///< says nothing about the file that it should read
    interrupted,       ///< a signal asked to stop
    format_newer,      ///< written by a newer version: nothing older will do instead
    no_authorization,  ///< SLURM does not know us: asking again helps nothing
    launch_mismatch,   ///< MPI and its launcher do not fit together
    timed_out,         ///< a child process was ended after its time limit
    rank_absent,       ///< a rank did not arrive
    no_shared_memory,  ///< there are other, slower ways
    gpu_shared,        ///< two ranks on one GPU
    nccl_failed,       ///< CUDA may say why
    aborted,           ///< a communicator, by others
    peer_gave_up,      ///< another rank failed, and says why itself
    peer_lost,         ///< another rank hangs or is gone
    messages_failed,   ///< MPI or NCCL do not get through, of themselves or as a peer is gone
};

/// The kind that its code belongs to.
ErrorKind kind_of(const Error& error);

/// The kind of errors with that code.
ErrorKind kind_of_code(std::string_view code);

/// Whose doing an error is.
enum class Blame {
    own,     ///< of the rank that reports it
    unsure,  ///< of that rank or of another
    peer,    ///< another rank ended or is silent
};

/// Of an error with that code.
Blame blame_of_code(std::string_view code);

}  // namespace lockstep
