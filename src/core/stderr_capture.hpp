// SPDX-License-Identifier: Apache-2.0
// What a process and its libraries write to stderr, kept in a file and passed on.
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

/// From construction to destruction stderr is a file, so that a killed process leaves its last
/// words; a thread passes them on to where stderr led before, and a handler does when the process
/// crashes. One at a time.
class StderrCapture {
  public:
    /// Told of each line, and where it ends in the file, from the thread or under drain().
    using Take = std::function<void(std::string_view line, std::uint64_t end)>;

    /// Appends to `file`. `at_crash` is written where stderr led before if the process crashes.
    /// Errors: E401; std::system_error where no thread can be had.
    StderrCapture(const fs::path& file, std::string at_crash, Take take);

    /// Passes on what is left, and removes the file where it is empty.
    ~StderrCapture();
    StderrCapture(const StderrCapture&) = delete;
    StderrCapture& operator=(const StderrCapture&) = delete;

    /// Where stderr led before it was captured, or leads where it is not. Any thread, any time.
    static int before();

    /// Passes on what has been written so far.
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
    std::string line_;         // the beginning of one
    std::uint64_t taken_ = 0;  // bytes of the file
    std::thread thread_;
};

/// Opens `path` for appending; creates it (0600). Errors: E401.
UniqueFd open_append(const fs::path& path);

}  // namespace lockstep
