// SPDX-License-Identifier: Apache-2.0
/// @file
/// One log per rank, made of whole lines. Only rank 0 writes to the terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace lockstep {

class Json;

/// Severity of a line.
enum class Level { debug, info, warn, error };
std::string_view level_name(Level level);  ///< the enumerator's name, as in logs

/// Returns the level with that name, or nothing.
std::optional<Level> level_named(std::string_view name);

/// Destination of this process's lines. Before open_log() all lines go to the terminal as rank 0.
struct LogTarget {
    int rank = 0;                        ///< rank of this process
    int world_size = 1;                  ///< number of ranks
    std::int64_t start = 0;              ///< number of this start of the run
    std::string host;                    ///< named in `here` lines that reach the terminal
    std::filesystem::path directory;     ///< rank-NNNNN.log and .jsonl are appended here; "" = none
    Level terminal_level = Level::info;  ///< lines below it are not shown on the terminal
    bool shows_live = true;  ///< false if stdout only looks like a terminal, as below mpirun

    /// If set, everything that other code writes to this process's stderr is saved in
    /// rank-NNNNN.stderr. It also becomes log records "stderr" and goes where stderr pointed
    /// before.
    bool keeps_stderr = false;
};

/// Sends further lines to `target`. Creates the directory (0700). Errors: E220 if it is a link;
/// E401.
void open_log(const LogTarget& target);

/// Writes one line to this rank's files. Terminal escapes and newlines in `text` are neutralised.
/// `once`: rank 0 also shows it. `here`: warnings and errors are shown with rank and host.
enum class Audience { once, here };

/// The function behind once() and here(). A non-empty `alike` is text without this rank's figures
/// that other ranks write as well; log readers fold lines with the same text.
void write_log(Level level, Audience audience, std::string_view text, std::string_view alike = {});

/// Rank 0 writes the line for all ranks, to its file and its terminal. Other ranks write nothing.
template <class... Args>
void once(Level level, fmt::format_string<Args...> format, Args&&... args) {
    write_log(level, Audience::once, fmt::format(format, std::forward<Args>(args)...));
}

/// Writes a line of this rank to its file; from `warn` on also to the terminal, with rank and host.
template <class... Args>
void here(Level level, fmt::format_string<Args...> format, Args&&... args) {
    write_log(level, Audience::here, fmt::format(format, std::forward<Args>(args)...));
}

/// Writes a machine-readable record to this rank's .jsonl only; "t" (seconds, Unix time), "rank",
/// "host" and "start" are added.
void log_event(std::string_view name, Json fields);

/// Any rank: writes printable_lines(text) to the original stderr, after what is there already.
void write_error(std::string_view text);

/// Returns the descriptor of the original stderr, for callers that must not wait for other writers.
int error_descriptor();

/// Rank 0 writes printable_lines(text) to stdout (tables, results) and to its log.
void print_once(std::string_view text);

/// Rank 0 on a terminal: replaces the live line by `text` ("" removes it). Elsewhere: nothing.
void show_live(std::string_view text);

/// Returns true if rank 0's stdout is a terminal on which show_live() is visible: TERM=dumb is not.
bool has_live_terminal();

/// The first character of a text in UTF-8.
struct Character {
    std::size_t bytes = 1;  ///< length; 1 for a byte that is not UTF-8
    char32_t letter = 0;    ///< code point, or the byte itself
    /// True for a character that a terminal obeys instead of showing it: a control character other
    /// than tab and line feed, or one that changes the order of others. Such a character can hide
    /// actions or act as the user.
    bool is_control = false;
};

/// Returns the first character of a `text` that is not empty.
Character first_character(std::string_view text);

/// Returns `text` with each control character replaced by '?' and each line feed by a space: for
/// names and values from outside.
std::string printable(std::string_view text);

/// Does the same but keeps line feeds. All text that a process writes to a terminal goes through
/// it.
std::string printable_lines(std::string_view text);

/// Returns `texts` by printable(), with commas between them; of many the first, and how many more.
std::string listed(const std::vector<std::string>& texts);

/// Returns the words of a training whose stdout takes no more; `reason` is the errno of the write.
std::string lost_stdout_text(int reason);

/// Called at the end of a command that prints its result. Errors: E405, E402 if print_once() could
/// not write everything. A reader that closed the pipe, such as `head`, is no error.
void check_printed();

}  // namespace lockstep
