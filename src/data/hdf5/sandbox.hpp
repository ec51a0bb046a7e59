// SPDX-License-Identifier: Apache-2.0
// Lets libhdf5 read untrusted files, in a child process that may crash.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include "file_facts.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <sys/socket.h>
#include <sys/types.h>

namespace lockstep {

/// What is asked for; an answer has the kind of its request, or says why there is none.
enum class FrameKind : std::uint64_t {
    look,     ///< a FileRequest; FileFacts
    list,     ///< a FileRequest that names no data set; one that names all of them
    read,     ///< a RowsRequest; as many bytes as it asks for
    lists,    ///< a RowsRequest of texts or lists of bytes; Lists
    refused,  ///< the reason why libhdf5 cannot read the file, as text
};

/// The head of each answer and of each request.
struct Frame {
    std::uint64_t magic = frame_magic;
    FrameKind kind = FrameKind::look;  ///< of untrusted frames any number
    std::uint64_t bytes = 0;           ///< number of bytes that follow
    std::uint64_t cpu_s = 0;           ///< requests only: CPU seconds that the answer may take

    static constexpr std::uint64_t frame_magic = 0x3465626f'72703568;  // "h5probe4"
};

/// Exit code of the child if memory is refused.
inline constexpr int exit_out_of_memory = 71;

/// Limit of the child's addresses, in bytes.
inline constexpr std::uint64_t most_child_addresses = std::uint64_t{4} << 30;

/// Largest size of a frame.
inline constexpr std::uint64_t most_frame_bytes = std::uint64_t{2} << 30;

/// Limits of the child for one file.
struct SandboxLimits {
    double cpu_s = 3,
           cpu_s_per_gib = 60;  ///< per size of the file, because its chunks are listed one by one
    double cpu_s_per_gib_of_rows = 40;  ///< per GiB of rows read
    double cpu_s_per_chunk = 1e-4;      ///< per chunk from which rows are read, even small ones
    double cpu_s_per_text = 1e-4;
    double wall_s = 120;  ///< also if a file system is slow or hangs
    double wall_s_per_gib_of_rows = 240;
};

/// Owns the child: `lockstep-h5probe`, started on first use by posix_spawn (never fork: this
/// process may have MPI), one for any number of files, ended by the destructor. The child limits
/// its own memory and CPU time, writes no core and loads no plugins. Its answers are checked like
/// any other foreign bytes. Move-only; one thread.
class Sandbox {
  public:
    explicit Sandbox(SandboxLimits limits = {}) : limits_(limits) {}
    Sandbox& operator=(Sandbox&&) = delete;
    ~Sandbox() { end(); }

    /// Does the same as look_at_file(). Errors: E205 (libhdf5 refuses the file), E231 (it crashed),
    /// E232 (it took too long), E233 (no helper, or nonsense); E201, E202.
    FileFacts look(const FileRequest& request);

    /// Sends the same request without waiting: the child works while the caller does something
    /// else. One request at a time.
    void ask(const FileRequest& request);
    FileFacts answer();

    /// Does the same as list_datasets(). Errors: as look().
    FileRequest list(const fs::path& path);

    /// Fills `out`, of request.bytes, with rows that libhdf5 reads from about `chunks` chunks.
    /// Errors: E213 (it refuses); E231, E232, E233; E201, E202.
    void read(const RowsRequest& request, std::span<std::byte> out, double chunks = 1);

    /// Returns the texts or lists of bytes of rows of a data set [n] or [n, 1]; `type` and `bytes`
    /// of the request do not count. Errors: as read().
    Lists read_lists(const RowsRequest& request);

  private:
    void start();
    void send(FrameKind kind,
              const FileRequest& about,
              std::span<const std::byte> request,
              double more_cpu_s = 0);
    Frame receive_head(double wall_s);
    std::vector<std::byte> receive_body(const Frame& frame);
    std::vector<std::byte> receive() { return receive_body(receive_head(limits_.wall_s)); }
    Error refusal(const std::string& reason) const;
    Error nonsense(const std::string& why);
    template <class Parse>
    auto believed(const Parse& parse);
    void fill(std::span<std::byte> out);
    [[noreturn]] void fail();
    int wait_or_end();
    int end();

    SandboxLimits limits_;
    FileRequest asked_;  // its path is also that of the reads
    FrameKind asked_kind_ = FrameKind::look;
    std::uint64_t file_bytes_ = 0;
    double deadline_s_ = 0;  // of the answer that is being received
    pid_t child_ = -1;
    UniqueFd socket_;
};

/// Sends all bytes. Returns false if the other end is closed.
inline bool send_all(int socket, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
}

}  // namespace lockstep
