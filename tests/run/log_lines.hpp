// SPDX-License-Identifier: Apache-2.0
// Logs of ranks as files, line by line, for tests of what reads them.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/run/log_merge.hpp"

#include "support/temp_dir.hpp"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep::test {

/// A folder of logs of one start.
class LogFolder {
  public:
    const fs::path& path() const { return folder_.path(); }

    static std::string record(int rank, double time_s, Json fields) {
        fields["t"] = time_s;
        fields["rank"] = rank;
        fields["host"] = rank < 2 ? "n1" : "n2";
        fields["start"] = 1;
        fields.sort_keys();
        return fields.dump() + "\n";
    }

    LogFolder& bytes(int rank, const std::string& text) {
        std::ofstream(folder_ / fmt::format("rank-{:05}.jsonl", rank), std::ios::app) << text;
        return *this;
    }
    LogFolder& event(int rank, double time_s, Json fields) {
        return bytes(rank, record(rank, time_s, std::move(fields)));
    }
    LogFolder& line(int rank, double time_s, const std::string& text, const char* level = "info") {
        return event(rank, time_s, {{"event", "log"}, {"level", level}, {"text", text}});
    }
    LogFolder& clock(int rank, double ahead_s, double error_s = 0) {
        return event(rank, 0, {{"event", "clock"}, {"ahead_s", ahead_s}, {"error_s", error_s}});
    }
    LogFolder& error(int rank, double time_s, const char* code, const char* what) {
        return event(rank, time_s, {{"event", "error"}, {"code", code}, {"what", what}});
    }
    LogFolder& launcher(double time_s, const std::string& text, const std::string& host = "login") {
        Json record = {{"event", "launcher"}, {"host", host}, {"rank", nullptr}};
        record["start"] = 1;
        record["t"] = time_s;
        record["text"] = text;
        std::ofstream(folder_ / fmt::format("launcher-{}.jsonl", host), std::ios::app)
            << record.dump() << "\n";
        return *this;
    }

  private:
    TempDir folder_;
};

/// "3 text" for each line that there is now.
inline std::vector<std::string> lines_now(LogMerge& merge) {
    std::vector<std::string> lines;
    while (const LogLine* const line = merge.next())
        lines.push_back(fmt::format("{} {}", line->rank, line->text));
    return lines;
}

inline std::vector<std::string> merged(const LogFolder& logs,
                                       const LogChoice& choice = {},
                                       const LogLimits& limits = {}) {
    LogMerge merge(logs.path(), choice, limits);
    return lines_now(merge);
}

}  // namespace lockstep::test
