// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors that tell a user what happened, why, and what to do next.
#pragma once

#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Exit codes of every Lockstep process. They follow sysexits.h where it has a fitting code.
enum class ExitCode : int {
    complete = 0,
    usage = 64,
    bad_data = 65,
    missing_input = 66,
    service_away = 69,
    bug = 70,
    cannot_create = 73,
    io = 74,
    saved_please_requeue = 75,
    peer_lost = 76,
    permission = 77,
    config = 78,
    do_not_requeue = 93,
    interrupted = 130,
};

/// One row of the catalogue behind `lockstep explain CODE`.
struct ErrorEntry {
    std::string_view code;   ///< "E204"; never reused for another meaning
    ExitCode exit_code;      ///< exit code of the process
    std::string_view title;  ///< one line
    std::string_view text;   ///< the long explanation
};

/// The whole catalogue, ordered by code.
std::span<const ErrorEntry> error_catalog();

/// Returns the entry of `code`, or nullptr.
const ErrorEntry* find_error(std::string_view code);

/// An error in four parts: what went wrong, with the actual value and its origin; why; what to do;
/// and a code. The exit code comes from the catalogue, or from a child process. An unknown code is
/// a bug and exits with 70.
class Error : public std::exception {
  public:
    /// `code` must be in the catalogue.
    Error(std::string_view code, std::string what, std::string why = {}, std::string fix = {});

    /// Returns what happened, without code, why and fix.
    const char* what() const noexcept override { return what_.c_str(); }
    const std::string& code() const { return code_; }  ///< "E204"
    const std::string& why() const { return why_; }    ///< "" if nothing is known
    const std::string& fix() const { return fix_; }    ///< what to do; "" if nothing helps
    ExitCode exit_code() const { return exit_code_; }  ///< exit code of the process

    /// Returns the same error with the exit code of the child process that caused it. Keeps its own
    /// code if `child_exit` is not the exit code of an error.
    Error exiting_as(int child_exit) &&;

    /// Returns the form that users see: "lockstep: error E204: ...", "  why: ...", "  fix: ...".
    /// `ranks` ("same on ranks 1-3") is appended to the first line when not empty.
    std::string text(std::string_view ranks = {}) const;

  private:
    std::string code_, what_, why_, fix_;
    ExitCode exit_code_;
};

/// The exception of operator new in Lockstep's programs (src/app/operator_new.cpp), because the
/// standard's holds no number. It becomes E225, as every std::bad_alloc does.
class RefusedMemory : public std::bad_alloc {
  public:
    /// `bytes` is the size that was asked for.
    explicit RefusedMemory(std::size_t bytes) : bytes_(bytes) {}

    /// Returns the size that was asked for.
    std::size_t bytes() const { return bytes_; }

  private:
    std::size_t bytes_;
};

/// Throws the Error of `make_error()` unless `ok`. For everything that users, files and machines
/// can cause.
template <class MakeError>
void check(bool ok, MakeError&& make_error) {
    if (!ok) throw make_error();
}

/// Throws the Error of these texts unless `ok`. They are made in any case: what runs often, or has
/// texts only for what is wrong, gives a function.
void check(
    bool ok, std::string_view code, std::string what, std::string why = {}, std::string fix = {});

/// Throws Error E700 naming `claim` and the caller's place, unless `ok`. For what only a bug can
/// cause. (clang 14 with this library has no std::source_location.)
void expect(bool ok,
            std::string_view claim,
            const char* file = __builtin_FILE(),
            int line = __builtin_LINE(),
            const char* function = __builtin_FUNCTION());

/// Returns the Error for a failed system call on `path`. errno decides the code (EACCES -> 77,
/// ENOENT -> 66 ...).
Error system_error(std::string_view doing, const std::string& path, int errno_value);

/// Returns `error` as an Error: itself if it is one, a file system error by its errno, else E700.
Error as_error(const std::exception& error);

/// Returns the candidate nearest to `word` by edit distance, or "" if none is near enough.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

/// Returns "did you mean '--batch-size'?", or `otherwise` when no candidate is near.
std::string did_you_mean(std::string_view word,
                         std::span<const std::string> candidates,
                         std::string_view otherwise = {});

/// Returns "0-2,5" for {0,1,2,5}.
std::string fold_ranks(std::span<const int> ranks);

/// Returns "rank 3" or "ranks 0-2,5".
inline std::string ranks_text(std::span<const int> ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + fold_ranks(ranks);
}

}  // namespace lockstep
