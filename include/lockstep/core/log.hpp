// SPDX-License-Identifier: Apache-2.0
/// @file
/// One log per rank, whole lines only; only rank 0 writes to the terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {

class Json;

/// How much a line matters.
enum class Level { debug, info, warn, error };
std::string_view level_name(Level level);  ///< the enumerator's word, as in logs

/// The level of that name, or nothing.
std::optional<Level> level_named(std::string_view name);

/// Where this process's lines go. Before open_log() everything goes to the terminal as rank 0.
struct LogTarget {
    int rank = 0;                        ///< of this process
    int world_size = 1;                  ///< ranks in all
    std::int64_t start = 0;              ///< which start of the run this is
    std::string host;                    ///< named in `here` lines that reach the terminal
    std::filesystem::path directory;     ///< rank-NNNNN.log and .jsonl are appended here; "" = none
    Level terminal_level = Level::info;  ///< lines below it stay away from the terminal
    bool shows_live = true;  ///< false if stdout only looks like a terminal, as below mpirun

    /// What others write to this process's stderr goes into rank-NNNNN.stderr, from there into the
    /// log as records "stderr", and where it would have gone.
    bool keeps_stderr = false;
};

/// Sends further lines to `target`. Creates the directory (0700). Errors: E220 if it is
/// a link; E401.
void open_log(const LogTarget& target);

/// Writes one line to this rank's files. Terminal escapes and newlines in `text` are neutralised.
/// `Everyone`: rank 0 also shows it. `here`: warnings and errors are shown with rank and host.
enum class Audience { once, here };

/// What once() and here() call. `alike`, where it is not "": what other ranks say as well, each
/// with figures of its own, by which readers fold their lines.
void write_log(Level level, Audience audience, std::string_view text, std::string_view alike = {});

/// Rank 0 says it for all: its file and its terminal; other ranks write it nowhere.
template <class... Args>
void once(Level level, fmt::format_string<Args...> format, Args&&... args) {
    write_log(level, Audience::once, fmt::format(format, std::forward<Args>(args)...));
}

/// This rank says it for itself: its own file; from `warn` on also the terminal, with rank and
/// host.
template <class... Args>
void here(Level level, fmt::format_string<Args...> format, Args&&... args) {
    write_log(level, Audience::here, fmt::format(format, std::forward<Args>(args)...));
}

/// A machine-readable record in this rank's .jsonl only; "t" (seconds, Unix time), "rank", "host"
/// and "start" are added.
void log_event(std::string_view name, Json fields);

/// Any rank: printable_lines(text) to where stderr led before it was kept, behind what is there.
void write_error(std::string_view text);

/// For callers that must not wait for other writers: where stderr led before it was kept, or leads.
int error_descriptor();

/// Rank 0: printable_lines(text) on stdout (tables, results), and in its log. Others: nothing.
void print_once(std::string_view text);

/// Rank 0 on a terminal: replaces the live line by `text` ("" removes it). Elsewhere: nothing.
void show_live(std::string_view text);

/// Whether rank 0's stdout is a terminal on which show_live() is seen: not one with TERM=dumb.
bool has_live_terminal();

/// The character that a text begins with, in UTF-8.
struct Character {
    std::size_t bytes = 1;  ///< its length; 1 for a byte that is not UTF-8
    char32_t letter = 0;    ///< its code point, or that byte
    /// What a terminal obeys instead of showing it: a control character but tab and line feed, or
    /// one that changes the order of others. It can hide actions, or act as the user.
    bool is_control = false;
};

/// Of a `text` that is not empty.
Character first_character(std::string_view text);

/// `text` with each control character replaced by '?' and each line feed by a space: for a name or
/// a value of somebody else's.
std::string printable(std::string_view text);

/// The same with line feeds kept. All that a process writes to a terminal goes through it.
std::string printable_lines(std::string_view text);

/// Called at the end of a command that prints its result. Errors: E405, E402 if print_once() could
/// not write everything. A reader that closed the pipe, such as `head`, is no error.
void check_printed();

}  // namespace lockstep
