// SPDX-License-Identifier: Apache-2.0
// How requests and answers are framed between a program and lockstep-h5probe.
#pragma once

#include <cstdint>

namespace lockstep {

/// Comes before each answer. Requests have the same.
struct Frame {
    std::uint64_t magic = frame_magic;
    std::uint64_t kind = 0;
    std::uint64_t bytes = 0;  ///< that follow
    std::uint64_t cpu_s = 0;  ///< requests only: seconds that the answer may take

    static constexpr std::uint64_t frame_magic = 0x3365626f'72703568;  // "h5probe3"
};

enum class FrameKind : std::uint64_t {
    look,     ///< a FileRequest
    facts,    ///< FileFacts
    refused,  ///< why libhdf5 does not read the file, as text
    read,     ///< a RowsRequest
    rows,     ///< as many bytes as it asked for
    list,     ///< a FileRequest that names no data set
    names,    ///< a FileRequest that names all there are
    text,     ///< a RowsRequest of texts
    texts,    ///< Texts
};

/// What the child ends with where memory is refused.
inline constexpr int exit_out_of_memory = 71;

/// What the child takes at most of addresses, in bytes.
inline constexpr std::uint64_t most_child_addresses = std::uint64_t{4} << 30;

/// No frame has more.
inline constexpr std::uint64_t most_frame_bytes = std::uint64_t{2} << 30;

}  // namespace lockstep
