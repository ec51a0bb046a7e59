// SPDX-License-Identifier: Apache-2.0
#include "runs/launcher_words.hpp"

#include "lockstep/observe/log_text.hpp"
#include "lockstep/observe/run_directory.hpp"

#include <deque>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::deque<std::string> last_words(const fs::path& run, std::int64_t start) {
    constexpr std::size_t most = 8;
    std::deque<std::string> last;
    std::error_code missing;
    const fs::path folder = RunPaths{run}.logs(start);
    if (!fs::is_directory(folder, missing)) return last;
    LogText text{LogStyle{}};
    LogFold fold({}, [&](const FoldedLine& line) {
        text.append(last.emplace_back(), line, "    ");
        if (last.size() > most) last.pop_front();
    });
    LogMerge merge(folder, {.ranks = std::vector<int>{}, .with_launcher = true});
    while (const LogLine* const line = merge.next()) fold.add(*line);
    merge.take_last_words();
    while (const LogLine* const line = merge.next()) fold.add(*line);
    fold.finish();
    return last;
}

std::string under(const std::string& title, const std::deque<std::string>& lines) {
    std::string text = lines.empty() ? "" : title + "\n";
    for (const std::string& line : lines) text += line;
    return text;
}

}  // namespace

bool has_launcher_words(const fs::path& run, std::int64_t start) {
    return !last_words(run, start).empty();
}

std::string words_of_launch_after(const RunStatus& status, std::int64_t start) {
    if (start < status.incarnation) return {};
    return under("a later launch, whose ranks did not begin, said last:",
                 last_words(status.root, start + 1));
}

std::string words_without_ranks(const RunStatus& status, std::int64_t start) {
    const bool is_told_by_ranks = !read_log_facts(RunPaths{status.root}.logs(start)).empty();
    const std::string own = is_told_by_ranks ? ""
                                             : under("  no rank has a log; the launcher said last:",
                                                     last_words(status.root, start));
    return own + words_of_launch_after(status, start);
}

}  // namespace lockstep
