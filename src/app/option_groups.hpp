// SPDX-License-Identifier: Apache-2.0
// Options that several commands share, each with one wording.
#pragma once

#include "lockstep/core/options.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/run/progress.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Makes --json. `form`: description of the output.
Option json_option(bool& target, const std::string& form = "one JSON object");

/// Returns the progress output of a command with --json, whose value is `is_json`.
ProgressSink progress_sink(bool is_json);

/// Makes --incarnation. `which`: the start that it names.
Option incarnation_option(std::int64_t& target,
                          const std::string& which = "start of the run to read; 0: the newest");

/// Makes --np and --oversubscribe. `least`: the smallest --np.
std::vector<Option> rank_options(int& np, bool& oversubscribe, int least = 0);

/// Makes --threads of a command that reads a data set.
Option threads_option(int& target);

/// Makes --field and --follow-links. `unset`: the rule without --field.
std::vector<Option> foreign_options(std::string& fields,
                                    bool& follows_links,
                                    const std::string& unset = "");

/// Makes --out, --name, --codec, --level and --shards of a new data set.
std::vector<Option> data_set_options(PackOptions& pack);

/// Returns `options` and then `more`.
std::vector<Option> joined(std::vector<Option> options, std::vector<Option> more);

}  // namespace lockstep
