// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"

#include "format/codec.hpp"
#include "look.hpp"
#include "sandbox.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include <hdf5.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep {
namespace {

// h5py's own filter, lzf, for libhdf5, which only h5py extends by it: data that only the library
// can read (texts, other layouts) may use it.

// H5Z_func_t: expands the data in `*buffer` into a new buffer; returns 0 if that fails, without a
// message. This filter only reads.
std::size_t undo_lzf(unsigned flags,
                     std::size_t,
                     const unsigned*,
                     std::size_t bytes,
                     std::size_t* room,
                     void** buffer) {
    if ((flags & H5Z_FLAG_REVERSE) == 0) return 0;
    const std::span stored(static_cast<const std::byte*>(*buffer), bytes);
    const std::uint64_t size = lzf_bytes(stored);
    if (size == 0 || size > most_chunk_bytes) return 0;
    void* const made = H5allocate_memory(size, false);
    if (made == nullptr) return 0;
    if (!decode_lzf(stored, {static_cast<std::byte*>(made), size})) {
        H5free_memory(made);
        return 0;
    }
    H5free_memory(*buffer);
    *buffer = made;
    *room = size;
    return size;
}

/// For as long as this process lives. Filters whose decoders are libraries of their own are left to
/// plug-ins: lockstep-h5probe is to need libhdf5 alone.
void register_own_filters() {
    const H5Z_class2_t filter{H5Z_CLASS_T_VERS,
                              static_cast<H5Z_filter_t>(FilterKind::lzf),
                              0,
                              1,
                              "lzf",
                              nullptr,
                              nullptr,
                              undo_lzf};
    H5Zregister(&filter);
}

// Sanitizers reserve terabytes of addresses.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool limits_memory = false;
#else
constexpr bool limits_memory = true;
#endif

void limit(int resource, rlim_t value) {
    rlimit now{};
    ::getrlimit(resource, &now);
    now.rlim_cur = now.rlim_max == RLIM_INFINITY ? value : std::min(value, now.rlim_max);
    ::setrlimit(resource, &now);
}

// Before the first byte of a file is looked at.
void confine() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::prctl(PR_SET_DUMPABLE, 0);
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    limit(RLIMIT_CORE, 0);
    if (limits_memory) limit(RLIMIT_AS, most_child_addresses);
    H5PLset_loading_state(0);
}

// The CPU time that this process may have used when the answer is there.
void allow_cpu(std::uint64_t seconds) {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    limit(RLIMIT_CPU,
          static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + seconds + 1);
}

bool receive(int socket, std::span<std::byte> out) {
    while (!out.empty()) {
        const ssize_t got = ::read(socket, out.data(), out.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        out = out.subspan(static_cast<std::size_t>(got));
    }
    return true;
}

bool answer(int socket, FrameKind kind, std::span<const std::byte> bytes) {
    const Frame frame{.kind = kind, .bytes = bytes.size()};
    return send_all(socket, std::as_bytes(std::span(&frame, 1))) && send_all(socket, bytes);
}

std::vector<std::byte> made_for(FrameKind kind,
                                std::span<const std::byte> request,
                                RowReading& rows) {
    switch (kind) {
        case FrameKind::read:
            return rows.read(rows_request_from(request));
        case FrameKind::lists:
            return to_bytes(rows.read_lists(rows_request_from(request)));
        case FrameKind::list:
            return to_bytes(list_datasets(request_from(request).path));
        default:
            return to_bytes(look_at_file(request_from(request)));
    }
}

// Answers with what was asked for, or with why it is not there.
bool serve(int socket, FrameKind kind, std::span<const std::byte> request, RowReading& rows) {
    std::vector<std::byte> bytes;
    std::string refusal;
    try {
        bytes = made_for(kind, request, rows);
    } catch (const Error& error) {
        refusal = error.why().empty() ? error.what() : error.why();
    }
    if (!refusal.empty()) return answer(socket, FrameKind::refused, bytes_of(refusal));
    return answer(socket, kind, bytes);
}

}  // namespace

bool send_all(int socket, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
}

int serve_requests(int socket) try {
    confine();
    register_own_filters();
    RowReading rows;
    Frame frame;
    while (receive(socket, std::as_writable_bytes(std::span(&frame, 1)))) {
        if (frame.magic != Frame::frame_magic || frame.bytes > most_frame_bytes) return 64;
        std::vector<std::byte> bytes(frame.bytes);
        if (!receive(socket, bytes)) return 64;
        allow_cpu(frame.cpu_s);
        if (!serve(socket, frame.kind, bytes, rows)) return 0;
    }
    return 0;
} catch (const std::bad_alloc&) {
    return exit_out_of_memory;
}

}  // namespace lockstep
