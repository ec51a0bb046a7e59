// SPDX-License-Identifier: Apache-2.0
// Keeps the stderr of a process and its libraries in a file, and passes it on.
#pragma once

#include "lockstep/core/files.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace lockstep {

/// From construction to destruction stderr is a file, so that the last output of a killed process
/// stays. A thread passes it on to the original stderr, and a handler does when the process
/// crashes. One at a time.
class StderrCapture {
  public:
    /// Receives each line, and its end in the file, from the thread or under drain().
    using Take = std::function<void(std::string_view line, std::uint64_t end)>;

    /// Appends to `file`. `at_crash` is written to the original stderr if the process crashes.
    /// Errors: E401; std::system_error if no thread can be made.
    StderrCapture(const fs::path& file, std::string at_crash, Take take);

    /// Passes on the rest, and removes the file if it is empty.
    ~StderrCapture();
    StderrCapture& operator=(StderrCapture&&) = delete;

    /// Returns the original stderr, captured or not. Any thread, any time.
    static int before();

    /// Passes on all output so far.
    void drain();

  private:
    void watch();
    void take_lines(std::string_view bytes);

    fs::path path_;
    std::string at_crash_;
    Take take_;
    UniqueFd file_, before_;
    std::mutex draining_, sleeping_;
    std::condition_variable wake_;
    bool is_ending_ = false;
    std::string line_;         // begin of a line
    std::uint64_t taken_ = 0;  // bytes of the file
    std::thread thread_;
};

/// Opens `path` for appending; creates it (0600). Errors: E401.
UniqueFd open_append(const fs::path& path);

}  // namespace lockstep
