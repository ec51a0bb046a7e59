// SPDX-License-Identifier: Apache-2.0
#include "rank_ends.hpp"

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/record.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {

static void describe(Record& record, RankEnd& end) {
    record.field("who", end.who);
    record.field("exit", end.exit);
    record.field("error", end.error);
}

void note_rank_end(const Error& error, const std::string& ranks) noexcept {
    try {
        const Environment environment;
        const auto folder = environment.text("LOCKSTEP_RANK_ENDS");
        if (!folder || folder->empty()) return;
        const std::int64_t rank = read_launch_facts(environment).rank.value_or(0);
        RankEnd end{.who = ranks.empty() ? fmt::format("rank {} on {}", rank, host_name()) : ranks,
                    .exit = static_cast<int>(error.exit_code()),
                    .error = fmt::format("{}: {}", error.code(), error.what())};
        make_directories(*folder);
        write_file_atomically(fs::path(*folder) / fmt::format("rank-{:05}.json", rank),
                              json_of_record(end).dump() + "\n");
    } catch (const std::exception&) {
        // Then the launcher's exit code decides.
    }
}

std::vector<RankEnd> read_rank_ends(const fs::path& folder) {
    std::vector<fs::path> files;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    std::ranges::sort(files);
    std::vector<RankEnd> ends;
    for (const fs::path& file : files) {
        try {
            ends.push_back(record_from_json<RankEnd>(read_json(file, 1 << 16), file.string()));
        } catch (const Error&) {
            // Its writer died over it.
        }
    }
    return ends;
}

}  // namespace lockstep
