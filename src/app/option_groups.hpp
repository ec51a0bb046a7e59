// SPDX-License-Identifier: Apache-2.0
// The table of option groups: options that several commands take, each with one wording.
#pragma once

#include "lockstep/cluster/requeue_rule.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/run/progress.hpp"

#include "command.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// The headings of sections that are the same in all commands that take them, in the order of the
/// reference, which shows each once.
inline constexpr std::array<std::string_view, 12> group_titles = {
    "Output form",
    "Start of the run",
    "HDF5 files that others wrote",
    "New data set",
    "Rows of a new data set",
    "Samples to compute",
    "Checkpoint of a run",
    "Weights of a run",
    "Waiting for a run",
    "Run, and when to give up (exit code 93)",
    "Rehearsal",
    "Text of a table"};

/// Errors: E105 that --`option` is missing, unless `is_given`.
void check_given(bool is_given, const std::string& option, const std::string& fix = "see --help");

/// Checks options that exclude each other, or values that do not fit. Errors: E106 with these
/// words, unless it `fits`.
void check_fits(bool fits,
                const std::string& what,
                const std::string& why,
                const std::string& fix = "drop one of them");

/// Checks the folder of `file`. Errors: E401 if this user may not write to it, or if `file` is a
/// folder itself.
void check_output_place(const fs::path& file);

/// Makes `parent`/lockstep-`purpose`-XXXXXX. Errors: E401 with `fix`.
RemovedFolder make_scratch_folder(const fs::path& parent,
                                  const std::string& purpose,
                                  const std::string& fix);

/// Collective. Errors: E106 if a launcher started several ranks of the command `name`, `as` it
/// needs one process.
void check_one_process(const Invocation& call, const std::string& name, const std::string& as);

/// Collective. Errors: E106 if mpirun or srun started the command `name`, which starts ranks
/// itself.
void check_no_launcher(const Invocation& call, const std::string& name);

/// Rows of `settings`' table that another command takes as `train` has them.
OptionSection train_rows(const std::string& title,
                         TrainSettings& settings,
                         const std::vector<std::string>& names);

/// --json.
OptionSection json_group(bool& target);

/// Returns the progress output of a command with --json, whose value is `is_json`.
ProgressSink progress_sink(bool is_json);

/// --dry-run of a command that changes a run.
OptionSection rehearsal_group(bool& target);

/// --incarnation.
OptionSection start_group(std::int64_t& target);

/// Checks that the run has this start. Errors: E102.
void check_start(std::int64_t start, std::int64_t newest);

/// --np and --oversubscribe, as `train` has them, too.
OptionSection ranks_section(int& np, bool& oversubscribe);

/// --hosts, as `train` has it, too.
Option hosts_option(std::string& target);

/// Makes --threads of a command that reads a data set.
Option threads_option(int& target);

/// --field and --follow-links.
OptionSection foreign_group(std::string& fields, bool& follows_links);

/// --out, --name, --codec, --level, --shards, --threads and --restart of a data set that is
/// written.
OptionSection data_set_group(PackOptions& pack, bool& restart);

/// --step of a command that uses a run's checkpoint.
OptionSection checkpoint_group(std::string& step);

/// --weights and --train-data.
OptionSection weights_group(fs::path& weights, fs::path& train_data);

/// --timeout.
OptionSection waiting_group(double& seconds);

/// --run, --max-restarts and --max-idle-starts.
OptionSection giving_up_group(fs::path& run, RequeueLimits& limits);

/// Collective. Below a launcher, --np and --hosts start nothing. Errors: E604 on all ranks if they
/// ask for another number of ranks than the launcher started.
void check_rank_count(const Invocation& call, const std::string& hosts = {});

}  // namespace lockstep
