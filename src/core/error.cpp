// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "lockstep/core/log.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

// File names and values in messages come from anywhere; their escapes must not reach a terminal.
std::string harmless(std::string_view text) {
    std::string clean;
    for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
        clean += printable(text.substr(0, end)) + '\n';
    return clean + printable(text);
}

std::string indented(std::string_view label, const std::string& text) {
    return text.empty() ? "" : fmt::format("\n  {}: {}", label, harmless(text));
}

// Optimal string alignment: insert, delete, replace, swap of neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    std::iota(last.begin(), last.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
        }
        before_last.swap(last);
        last.swap(row);
    }
    return last[b.size()];
}

}  // namespace

Error::Error(std::string_view code, std::string what, std::string why, std::string fix)
    : code_(code), what_(std::move(what)), why_(std::move(why)), fix_(std::move(fix)) {
    const ErrorEntry* entry = find_error(code);
    exit_code_ = entry ? entry->exit_code : ExitCode::bug;
}

std::string Error::text(std::string_view ranks) const {
    std::string head = fmt::format("lockstep: error {}: {}", code_, harmless(what_));
    if (!ranks.empty()) head += fmt::format(" ({})", ranks);
    return head + indented("why", why_) + indented("fix", fix_);
}

void expect(bool ok, std::string_view claim, const char* file, int line, const char* function) {
    if (ok) return;
    throw Error("E700",
                fmt::format("'{}' does not hold in {} ({}:{})", claim, function, file, line),
                "an internal claim failed",
                "please report this message together with the rank's log");
}

Error system_error(std::string_view doing, const std::string& path, int errno_value) {
    const std::string reason = std::strerror(errno_value);
    const std::string what = fmt::format("cannot {} '{}': {}", doing, path, reason);
    switch (errno_value) {
        case ENOENT:
        case ENOTDIR:
            return Error("E201", what, "", "check the path; on a cluster, that this node has it");
        case EACCES:
        case EPERM:
            return Error("E202", what, "", "ask its owner, or use your own copy");
        case EIO:
            return Error("E409", what, "", "the device or the network to it fails: look at dmesg");
        case EMFILE:
        case ENFILE:
            return Error("E402", what, "", "raise the limit of open files: ulimit -n");
        case ENOSPC:
        case EDQUOT:
            return Error("E405", what, "", "free some space or use another folder, then run again");
        default:
            return Error("E402", what, "", "check the file system, then run again");
    }
}

namespace {

// Only the search for a place for temporary files fails without a path.
std::string path_of(const std::filesystem::filesystem_error& error) {
    if (!error.path1().empty()) return error.path1().string();
    const char* place = std::getenv("TMPDIR");
    return fmt::format("{} (TMPDIR)", place ? place : "/tmp");
}

}  // namespace

Error as_error(const std::exception& error) {
    if (const auto* known = dynamic_cast<const Error*>(&error)) return *known;
    if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
        return system_error("work with", path_of(*file), file->code().value());
    return Error("E700",
                 error.what(),
                 "an unexpected exception",
                 "please report this message together with the rank's log");
}

namespace {

// "--virt" is the beginning of a name, whatever the distance to other names; "" if of none.
std::string shortest_with_prefix(std::string_view prefix, std::span<const std::string> candidates) {
    constexpr std::size_t least_letters = 3;
    const std::size_t dashes = std::min(prefix.find_first_not_of('-'), prefix.size());
    if (prefix.size() - dashes < least_letters) return "";
    std::string best;
    for (const std::string& candidate : candidates)
        if (candidate.starts_with(prefix) && (best.empty() || candidate.size() < best.size()))
            best = candidate;
    return best;
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string> candidates) {
    if (const std::string longer = shortest_with_prefix(word, candidates); !longer.empty())
        return longer;
    const std::string* best = nullptr;
    // A short word is near to everything: more than its own length is no typing error.
    std::size_t best_distance =
        std::min(std::max<std::size_t>(3, word.size() / 3 + 1), word.size());
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best = &candidate;
            best_distance = distance;
        }
    }
    return best ? *best : "";
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
    const std::string nearest = nearest_name(word, candidates);
    return nearest.empty() ? "" : fmt::format("did you mean '{}'?", nearest);
}

std::string fold_ranks(std::span<const int> ranks) {
    std::string text;
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t j = i;
        while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
        if (!text.empty()) text += ',';
        text += i == j ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[j]);
        i = j + 1;
    }
    return text;
}

}  // namespace lockstep
