// SPDX-License-Identifier: Apache-2.0
// Options that several commands take, each with one wording.
#pragma once

#include "lockstep/core/options.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/run/progress.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// --json. `form`: what is printed.
Option json_option(bool& target, const std::string& form = "one JSON object");

/// Where a command with --json, whose value is `is_json`, shows its progress.
ProgressSink progress_sink(bool is_json);

/// --incarnation. `which`: the start that it names.
Option incarnation_option(std::int64_t& target,
                          const std::string& which = "start of the run to read; 0: the newest");

/// --np and --oversubscribe. `least`: the smallest --np.
std::vector<Option> rank_options(int& np, bool& oversubscribe, int least = 0);

/// --threads of a command that goes through a data set.
Option threads_option(int& target);

/// --field and --follow-links. `unset`: what holds without --field.
std::vector<Option> foreign_options(std::string& fields,
                                    bool& follows_links,
                                    const std::string& unset = "");

/// --out, --name, --codec, --level and --shards of a data set that is written.
std::vector<Option> data_set_options(PackOptions& pack);

/// `options` and then `more`.
std::vector<Option> joined(std::vector<Option> options, std::vector<Option> more);

}  // namespace lockstep
