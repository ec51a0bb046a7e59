// SPDX-License-Identifier: Apache-2.0
// A heap of the ranks' logs by the time of their next line; each holds one piece of its file. Logs
// without a further line are set aside until the next search.
#include "lockstep/run/log_merge.hpp"

#include "lockstep/core/error.hpp"

#include "logs/rank_log.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <sys/resource.h>

namespace lockstep {
namespace {

constexpr std::string_view log_extension = ".jsonl";

std::map<int, fs::path> files_of_ranks(const fs::path& folder) {
    std::map<int, fs::path> found;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed))
        if (const auto rank = rank_of_file(entry.path(), log_extension))
            found.emplace(*rank, entry.path());
    if (failed) throw system_error("read", folder, failed.value());
    return found;
}

// Returns the number of files that this process may open besides its own few, after raising its
// limit.
std::size_t openable() {
    constexpr rlim_t reserve = 32;
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return reserve;
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    ::getrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_cur > reserve ? static_cast<std::size_t>(files.rlim_cur - reserve) : 0;
}

bool is_later(const RankLog* a, const RankLog* b) {
    const LogLine& x = a->line();
    const LogLine& y = b->line();
    return x.time_s != y.time_s ? x.time_s > y.time_s : x.rank > y.rank;
}

RankError error_in(const LogLine& line, std::span<const RankLogFacts> facts) {
    RankError error{.ranks = line.failed,
                    .code = std::string(line.code),
                    .what = std::string(line.text),
                    .why = std::string(line.why),
                    .fix = std::string(line.fix),
                    .time_s = line.time_s,
                    .blame = blame_of_code(line.code)};
    if (error.ranks.empty()) error.ranks = {line.rank};
    const auto found = std::ranges::find(facts, error.ranks.front(), &RankLogFacts::rank);
    if (found != facts.end()) error.host = found->host;
    return error;
}

}  // namespace

struct LogMerge::Inside {
    fs::path folder;
    LogChoice choice;
    LogLimits limits;
    std::map<int, RankLog> logs;
    std::map<fs::path, RankLog> launchers;
    std::vector<RankLog*> heap;   // the earliest line first
    std::vector<RankLog*> empty;  // now
    bool is_taken = false;        // the line of the first

    void open_new() {
        auto files = files_of_ranks(folder);
        std::erase_if(files, [&](const auto& file) {
            return logs.contains(file.first) ||
                   (choice.ranks && !std::ranges::binary_search(*choice.ranks, file.first));
        });
        const std::size_t all = std::max<std::size_t>(logs.size() + files.size(), 1);
        for (const auto& [rank, path] : files) {
            const LineLimits line_limits{
                .piece_bytes = std::clamp<std::size_t>(
                    limits.buffer_bytes / all, 4 << 10, std::size_t{256} << 10),
                .longest_line = limits.longest_line,
                .stays_open = logs.size() < limits.most_open};
            const auto [at, is_new] = logs.try_emplace(rank, path, rank, choice, line_limits);
            empty.push_back(&at->second);
        }
        if (choice.with_launcher) open_launchers();
    }

    void open_launchers() {
        std::error_code failed;
        for (const auto& entry : fs::directory_iterator(folder, failed)) {
            const fs::path& path = entry.path();
            if (!is_launcher_file(path)) continue;
            const auto [at, is_new] = launchers.try_emplace(
                path, path, no_rank, choice, LineLimits{.longest_line = std::size_t{256} << 10});
            if (is_new) empty.push_back(&at->second);
        }
        for (auto& [path, launcher] : launchers)
            for (const auto& [rank, log] : logs)
                if (log.facts().host == launcher.facts().host)
                    launcher.set_clock(log.facts().clock_ahead_s);
    }

    template <class Use>
    void for_each_log(const Use& use) {
        for (auto& [rank, log] : logs) use(log);
        for (auto& [path, log] : launchers) use(log);
    }

    void refill() {
        std::erase_if(empty, [&](RankLog* log) {
            if (!log->advance()) return false;
            heap.push_back(log);
            std::ranges::push_heap(heap, is_later);
            return true;
        });
    }

    void go_on() {
        std::ranges::pop_heap(heap, is_later);
        if (heap.back()->advance()) {
            std::ranges::push_heap(heap, is_later);
        } else {
            empty.push_back(heap.back());
            heap.pop_back();
        }
    }
};

LogMerge::LogMerge(const fs::path& folder, LogChoice choice, const LogLimits& limits)
    : inside_(std::make_unique<Inside>()) {
    inside_->folder = folder;
    inside_->choice = std::move(choice);
    inside_->limits = limits;
    if (limits.most_open == 0) inside_->limits.most_open = openable();
    inside_->open_new();
    inside_->refill();
}

LogMerge::LogMerge(LogMerge&&) noexcept = default;
LogMerge::~LogMerge() = default;

const LogLine* LogMerge::next(double until_s) {
    if (std::exchange(inside_->is_taken, false)) inside_->go_on();
    if (inside_->heap.empty()) return nullptr;
    const LogLine& line = inside_->heap.front()->line();
    if (line.time_s > until_s) return nullptr;
    inside_->is_taken = true;
    return &line;
}

void LogMerge::look_again() {
    if (std::exchange(inside_->is_taken, false)) inside_->go_on();
    inside_->open_new();
    inside_->refill();
}

void LogMerge::take_last_words() {
    if (std::exchange(inside_->is_taken, false)) inside_->go_on();
    inside_->for_each_log([](RankLog& log) { log.take_last_words(); });
    inside_->refill();
}

std::uint64_t LogMerge::damaged() const {
    std::uint64_t count = 0;
    inside_->for_each_log([&](const RankLog& log) { count += log.damaged(); });
    return count;
}

std::vector<RankLogFacts> read_log_facts(const fs::path& folder) {
    const LineLimits line_limits{.stays_open = false};
    std::vector<RankLogFacts> facts;
    for (const auto& [rank, path] : files_of_ranks(folder))
        facts.push_back(RankLog(path, rank, {}, line_limits).facts());
    return facts;
}

RankErrors read_errors(LogMerge& logs, std::span<const RankLogFacts> facts) {
    RankErrors errors;
    std::set<int> met, told;
    while (const LogLine* const line = logs.next()) {
        if (line->kind != LogKind::error) continue;
        const RankError error = error_in(*line, facts);
        if (error.blame == Blame::peer) {
            told.insert(line->rank);
            if (!errors.told) errors.told = error;
            continue;
        }
        met.insert(error.ranks.begin(), error.ranks.end());
        const bool is_surer =
            errors.first && errors.first->blame == Blame::unsure && error.blame == Blame::own;
        if (!errors.first || is_surer) errors.first = error;
    }
    std::ranges::set_difference(told, met, std::back_inserter(errors.followers));
    return errors;
}

}  // namespace lockstep
