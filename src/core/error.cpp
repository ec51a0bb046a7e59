// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Values in messages may come from anywhere. Further lines of a value are indented deeper than
// "why" and "fix", so that a line feed in a name cannot imitate such a line.
std::string indented(std::string_view label, const std::string& text) {
    if (text.empty()) return "";
    constexpr std::string_view margin = "    ";
    std::string lines = fmt::format("\n  {}: ", label);
    std::string_view rest(text);
    for (std::size_t end; (end = rest.find('\n')) != rest.npos;) {
        lines += printable(rest.substr(0, end)) + '\n';
        rest.remove_prefix(end + 1);
        if (!rest.starts_with(margin)) lines += margin;
    }
    return lines + printable(rest);
}

// Optimal string alignment: insert, delete, replace, swap of neighbours. Case counts for nothing.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    const auto is_same = [](unsigned char one, unsigned char other) {
        return std::tolower(one) == std::tolower(other);
    };
    std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    std::iota(last.begin(), last.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min(
                {last[j] + 1, row[j - 1] + 1, last[j - 1] + (is_same(a[i - 1], b[j - 1]) ? 0 : 1)});
            const bool swapped =
                i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1]);
            if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
        }
        before_last.swap(last);
        last.swap(row);
    }
    return last[b.size()];
}

// Returns the peak of this process's addresses; 0 if the system does not tell.
std::uint64_t most_addresses() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (std::uint64_t kib = 0; word == "VmPeak:" && status >> kib) return kib << 10;
    return 0;
}

std::string address_limit_text() {
    rlimit addresses{};
    ::getrlimit(RLIMIT_AS, &addresses);
    if (addresses.rlim_cur == RLIM_INFINITY) return "";
    return fmt::format("'ulimit -v' leaves this process {} of addresses, of which it has had {}",
                       bytes_text(addresses.rlim_cur),
                       bytes_text(most_addresses()));
}

// Not of root's.
std::string thread_limit_text() {
    rlimit threads{};
    ::getrlimit(RLIMIT_NPROC, &threads);
    if (threads.rlim_cur == RLIM_INFINITY) return "";
    return fmt::format("'ulimit -u' leaves this user {} processes and threads", threads.rlim_cur);
}

// Returns the size of a thread's stack as text.
std::string stack_text() {
    constexpr rlim_t usual_bytes = rlim_t{2} << 20;  // pthread's, where there is no limit
    rlimit stack{};
    ::getrlimit(RLIMIT_STACK, &stack);
    return fmt::format(": a thread takes {} for its stack",
                       bytes_text(stack.rlim_cur == RLIM_INFINITY ? usual_bytes : stack.rlim_cur));
}

enum class Refused { memory, thread };

std::string limits_text(Refused refused) {
    std::string text = address_limit_text();
    if (const std::string more = thread_limit_text(); refused == Refused::thread && !more.empty())
        text += (text.empty() ? "" : "; ") + more;
    return text.empty() ? "the node, or the job's control group, has no more" : text;
}

Error out_of_memory(std::string_view asked, Refused refused = Refused::memory) {
    return Error("E225",
                 fmt::format("the system refuses this process memory{}{}",
                             refused == Refused::thread ? " or threads" : "",
                             asked),
                 limits_text(refused),
                 fmt::format("raise the limit ('ulimit -v unlimited'{}, Slurm: --mem), or use "
                             "less: a smaller --batch or --data-memory, fewer --threads or ranks "
                             "on a node",
                             refused == Refused::thread ? ", 'ulimit -u'" : ""));
}

// The folder on the way to `path` that lets nobody like this user in, as a sentence, or "".
std::string denial_of(const std::filesystem::path& path) {
    std::filesystem::path folder;
    for (const auto& part : path.parent_path()) {
        folder /= part;
        if (::faccessat(AT_FDCWD, folder.c_str(), X_OK, AT_EACCESS) != 0)
            return fmt::format("user {} may not enter '{}'", ::geteuid(), folder.string());
    }
    return {};
}

// Only the search for a place for temporary files fails without a path.
std::string path_of(const std::filesystem::filesystem_error& error) {
    if (!error.path1().empty()) return error.path1().string();
    const char* place = std::getenv("TMPDIR");
    return fmt::format("{} (TMPDIR)", place ? place : "/tmp");
}

// Refusals, by whom they reach us: new, the start of a thread (its stack), and PyTorch, which has
// a sentence for it, but no type.
std::optional<Error> memory_error(const std::exception& error) {
    if (const auto* sized = dynamic_cast<const RefusedMemory*>(&error))
        return out_of_memory(fmt::format(": {} were asked for", bytes_text(sized->bytes())));
    if (dynamic_cast<const std::bad_alloc*>(&error)) return out_of_memory("");
    const auto* system = dynamic_cast<const std::system_error*>(&error);
    if (system && (system->code() == std::errc::resource_unavailable_try_again ||
                   system->code() == std::errc::not_enough_memory))
        return out_of_memory(stack_text(), Refused::thread);
    constexpr std::string_view torch_says = "can't allocate memory: you tried to allocate ";
    const std::string_view text = error.what();
    const std::size_t at = text.find(torch_says);
    if (at == text.npos) return {};
    const std::string_view bytes = text.substr(at + torch_says.size());
    return out_of_memory(
        fmt::format(": {} bytes were asked for", bytes.substr(0, bytes.find(' '))));
}

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

constexpr std::pair<std::string_view, ErrorKind> kinds[] = {
    {"E201", ErrorKind::file_missing},     {"E202", ErrorKind::file_forbidden},
    {"E204", ErrorKind::data_damaged},     {"E210", ErrorKind::data_damaged},
    {"E213", ErrorKind::data_damaged},     {"E233", ErrorKind::helper_missing},
    {"E236", ErrorKind::value_missing},    {"E242", ErrorKind::interrupted},
    {"E305", ErrorKind::format_newer},     {"E409", ErrorKind::device_failed},
    {"E530", ErrorKind::no_authorization}, {"E604", ErrorKind::launch_mismatch},
    {"E611", ErrorKind::timed_out},        {"E630", ErrorKind::rank_absent},
    {"E632", ErrorKind::no_shared_memory}, {"E673", ErrorKind::gpu_shared},
    {"E677", ErrorKind::nccl_failed},      {"E680", ErrorKind::aborted},
    {"E682", ErrorKind::peer_gave_up},     {"E660", ErrorKind::peer_lost},
    {"E620", ErrorKind::messages_failed},  {"E676", ErrorKind::messages_failed},
    {"E678", ErrorKind::messages_failed},  {"E692", ErrorKind::messages_failed},
};

ErrorKind kind_of_code(std::string_view code) {
    for (const auto& [known, kind] : kinds)
        if (known == code) return kind;
    return ErrorKind::other;
}

}  // namespace

Error::Error(std::string_view code, std::string what, std::string why, std::string fix)
    : code_(code), what_(std::move(what)), why_(std::move(why)), fix_(std::move(fix)) {
    const ErrorEntry* entry = find_error(code);
    exit_code_ = entry ? entry->exit_code : ExitCode::bug;
}

Error Error::exiting_as(int child_exit) && {
    const auto is_child = [&](const ErrorEntry& entry) {
        return static_cast<int>(entry.exit_code) == child_exit;
    };
    if (std::ranges::any_of(error_catalog(), is_child))
        exit_code_ = static_cast<ExitCode>(child_exit);
    return std::move(*this);
}

std::string Error::text(std::string_view ranks) const {
    std::string head = fmt::format("lockstep: error {}: {}", code_, printable(what_));
    if (!ranks.empty()) head += fmt::format(" ({})", ranks);
    return head + indented("why", why_) + indented("fix", fix_);
}

void check(bool ok, std::string_view code, std::string what, std::string why, std::string fix) {
    if (!ok) throw Error(code, std::move(what), std::move(why), std::move(fix));
}

void expect(bool ok, std::string_view claim, const char* file, int line, const char* function) {
    if (ok) return;
    throw Error("E700",
                fmt::format("'{}' does not hold in {} ({}:{})", claim, function, file, line),
                "Lockstep has a bug, or a program calls its library against what the header says",
                "please report this message together with the rank's log");
}

Error system_error(std::string_view doing, const std::string& path, int errno_value) {
    const std::string reason = std::strerror(errno_value);
    const std::string what = fmt::format("cannot {} '{}': {}", doing, path, reason);
    switch (errno_value) {
        case ENOMEM:
            return out_of_memory(fmt::format(": it cannot {} '{}'", doing, path));
        case ENOENT:
        case ENOTDIR:
            return Error("E201", what, "", "check the path; on a cluster, that this node has it");
        case EACCES:
        case EPERM:
            return Error("E202", what, denial_of(path), "ask its owner, or use your own copy");
        case EIO:
            return Error("E409", what, "", "the device or the network to it fails: see dmesg");
        case ENXIO:
            return Error("E206",
                         fmt::format("cannot {} '{}': it is a pipe or a device", doing, path),
                         "",
                         "remove it");
        case EMFILE:
        case ENFILE:
            return Error("E402", what, "", "raise the limit of open files: ulimit -n");
        case EFBIG:
            return Error("E402", what, "", "raise the limit of a file's size: ulimit -f unlimited");
        case ENOSPC:
        case EDQUOT:
            return Error("E405", what, "", "free some space or use another folder, then run again");
        default:
            return Error("E402", what, "", "check the file system, then run again");
    }
}

Error as_error(const std::exception& error) {
    if (const auto* known = dynamic_cast<const Error*>(&error)) return *known;
    if (const auto refusal = memory_error(error)) return *refusal;
    if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
        return system_error("work with", path_of(*file), file->code().value());
    const std::string text = error.what();
    const std::size_t end = std::min(text.find('\n'), text.size());
    return Error("E700",
                 text.substr(0, end),
                 "an unexpected exception" + text.substr(end),
                 "please report this message together with the rank's log");
}

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

std::string did_you_mean(std::string_view word,
                         std::span<const std::string> candidates,
                         std::string_view otherwise) {
    const std::string nearest = nearest_name(word, candidates);
    return nearest.empty() ? std::string(otherwise) : fmt::format("did you mean '{}'?", nearest);
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

ErrorKind kind_of(const Error& error) {
    return kind_of_code(error.code());
}

Blame blame_of_code(std::string_view code) {
    using enum ErrorKind;
    const ErrorKind kind = kind_of_code(code);
    if (kind == aborted || kind == peer_gave_up || kind == peer_lost || kind == rank_absent)
        return Blame::peer;
    return kind == messages_failed || kind == nccl_failed ? Blame::unsure : Blame::own;
}

}  // namespace lockstep
