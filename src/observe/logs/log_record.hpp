// SPDX-License-Identifier: Apache-2.0
// A line of rank-NNNNN.jsonl as a value.
#pragma once

#include "lockstep/observe/events.hpp"
#include "lockstep/observe/log_merge.hpp"

#include <string>
#include <string_view>

namespace lockstep {

/// What a line is to readers of merged logs.
enum class RecordFate {
    line,     ///< for people
    clock,    ///< ClockEvent
    other,    ///< for programs
    damaged,  ///< not a whole record
};

/// One record, used for line after line.
struct LogRecord {
    LogLine line{};      ///< its time is by the rank's own clock; its rank is the caller's
    ClockEvent clock{};  ///< with RecordFate::clock
    std::uint64_t stderr_end = 0;  ///< StderrEvent::end
    std::string host{}, text{}, alike{}, code{}, why{},
        fix{};  ///< what `line` views where not the file's bytes

    /// From `bytes` without line feed, which `line` may view.
    RecordFate read(std::string_view bytes);

  private:
    bool read_usual(std::string_view bytes);
    RecordFate read_any(std::string_view bytes);
};

}  // namespace lockstep
