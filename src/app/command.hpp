// SPDX-License-Identifier: Apache-2.0
// From command-line arguments to an exit code: options from words, variables and files, of which
// every value keeps its origin; the commands; and the program that runs one.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/launch/examine.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/report.hpp"
#include "lockstep/train/export_script.hpp"
#include "lockstep/train/infer.hpp"
#include "lockstep/train/profile.hpp"
#include "lockstep/train/prune.hpp"
#include "lockstep/train/train.hpp"

#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The origin of a table's option.
struct ResolvedOption {
    std::string name, text, origin;
    std::vector<GivenValue> overridden;  ///< weaker sources that also gave a value
    OptionKind kind = OptionKind::text;
};

struct ParsedLine {
    std::map<std::string, std::string> options;
    std::vector<std::string> positionals;
    bool wants_help = false;
};

/// Splits `words` by `table`. Errors: E101 unknown option (with the nearest), E104 given twice,
/// E105 value missing.
ParsedLine parse_line(const std::vector<std::string>& words, const OptionTable& table);

/// Assigns every option: command line over LOCKSTEP_* over the file of --config over `standing`
/// (the strongest first; standing_values() makes them) over the default. Errors: E102, E103, E110
/// to E116.
std::vector<ResolvedOption> resolve_options(const OptionTable& table,
                                            const ParsedLine& line,
                                            const Environment& environment,
                                            const std::vector<Config>& standing = {});

/// Returns the options in the form of --help.
std::string options_help(const OptionTable& table);

/// The program that runs a command. Without LibTorch its functions are nullptr.
struct Program {
    decltype(&train_model) train = nullptr;
    decltype(&lockstep::infer) infer = nullptr;
    decltype(&sample_tokens) sample = nullptr;
    decltype(&profile_model) profile = nullptr;
    decltype(&prune_run) prune = nullptr;
    decltype(&lockstep::export_script) export_script = nullptr;
    std::string model;  ///< name of a user's own model, then the default of --model; "": none
    std::string name = "lockstep";
};

/// Returns the program of ranks that compute: this program if it can train, else lockstep-train
/// beside it.
fs::path rank_program(const Program& program);

/// The environment of a command in its process.
struct ProcessContext {
    Program program;
    Communicator ranks;  ///< all ranks of a launcher; one without a launcher
    std::shared_ptr<const RankFacts> facts = std::make_shared<RankFacts>();
};

/// Collective. Runs the command that `words` name. Returns its exit code, or throws Error.
int run_command(const std::vector<std::string>& words, const ProcessContext& process);

/// Calls run_command() and shows errors in the usual form. Under a launcher all ranks end with one
/// exit code, and a common error is shown once. A rank of a command that computes becomes
/// lockstep-train if this program cannot compute, so that all else starts without loading LibTorch.
int run_program(const std::vector<std::string>& words, const Program& program);

/// For a process that is refused its first memory: writes E225 without allocating, and returns its
/// exit code.
int end_without_room() noexcept;

/// Reports why this process cannot even begin, once on each node. Returns the exit code.
int fail_to_start(const std::exception& reason);

/// Writes an error into this start's folder, $LOCKSTEP_RANK_ENDS, which the first that writes
/// creates; does nothing without the variable, which job.sh sets. `ranks`: the ranks that `error`
/// concerns, "" for this one. It is there because a launcher may return the code of a rank that it
/// killed itself, and a start that never held the run writes no state. Never throws, because the
/// user should see the error itself.
void note_rank_end(const Error& error, const std::string& ranks = {}) noexcept;

/// The call of a command.
struct Invocation {
    std::vector<std::string> words;        ///< the program's arguments, as given
    std::vector<std::string> positionals;  ///< arguments after options
    std::vector<std::string> job_words;    ///< arguments after "--", if the command takes them
    std::vector<ResolvedOption> options;
    ProcessContext process;
};

/// A command. It is made anew for each call, because `table`'s closures hold the options' targets.
struct Command {
    std::string name;     ///< "train", "data pack"
    std::string summary;  ///< one line
    std::string usage;    ///< "lockstep train --data DIR --run DIR [options]"
    std::string text;     ///< a paragraph and examples
    OptionTable table;
    std::size_t positionals = 0;           ///< required number
    std::size_t optional_positionals = 0;  ///< further optional ones
    bool takes_job_words = false;          ///< words after "--" are options of a job
    bool is_hidden = false;                ///< not for users: left out of help and manuals
    bool is_about_lockstep = false;        ///< names or starts it: other programs do not have it
    std::function<int(const Invocation&)> run;
};

/// All values of the command line of `train`.
struct TrainOptions {
    TrainSettings settings;
    int np = 0;         ///< 0: not given
    std::string hosts;  ///< "a:4,b:4"; "": this machine
    bool oversubscribe = false, dry_run = false;
    fs::path config, plan;
    fs::path resume;                       ///< run whose settings hold; "": none
    std::vector<std::string> skip_checks;  ///< checks of the doctor; "all" for all
};

/// Returns the table that fills `options`, which must outlive it.
OptionTable train_option_table(TrainOptions& options);

/// Returns what the run of --resume or --from was made with, for options of `table`; nothing
/// without them. What belongs to one start alone (its ranks below a launcher, its deadline) is left
/// out, and for --from what is that run's own. Errors: E106 for --resume with --run or --from;
/// those of recorded_values().
std::vector<Config> values_of_run(const OptionTable& table,
                                  const ParsedLine& line,
                                  const Environment& environment);

/// Returns the command that continues `run` with `changed` options, as words for a shell. If "run"
/// is among them, the one that made it, from the origins of its options in run.json, for another
/// run; "" if they are unknown. `program`: "lockstep", or a user's own. It works from any folder.
std::string resume_command(const fs::path& run,
                           const std::string& program,
                           const ChangedSettings& changed = {});

/// Returns the same if the newest start is `start` and ended before the run was complete; else "".
std::string resumption(const RunStatus& status, std::int64_t start, const std::string& program);

Command train_command();
Command map_command();
Command predict_command();
Command sample_command();
Command profile_command();
Command prune_command();
Command verify_command();
Command data_pack_command();
Command data_synth_command();
Command data_export_command();
Command data_inspect_command();
Command data_reshard_command();
Command data_stage_command();
Command data_verify_command();
Command data_ledger_command();
Command diagnose_command();
Command doctor_command();
Command drill_command();
Command logs_command();
Command report_command();
Command metrics_command();
Command trace_merge_command();
Command status_command();
Command compare_command();
Command scale_command();
Command stop_command();
Command save_command();
Command ckpt_ls_command();
Command ckpt_inspect_command();
Command ckpt_diff_command();
Command ckpt_verify_command();
Command ckpt_rm_command();
Command eval_command();
Command export_command();
Command bench_comm_command();
Command bench_io_command();
Command slurm_epilog_command();
Command slurm_prolog_command();
Command submit_command();
Command tune_command();

std::vector<Command> all_commands();

/// A variable LOCKSTEP_* that nothing reads, and the one that may be meant.
struct UnreadVariable {
    std::string name, meant;
};

/// Returns the variables whose names are near to one that an option of `commands`, a script or a
/// library reads, but none of these. Other names are left to those who set them.
std::vector<UnreadVariable> unread_variables(const std::vector<Command>& commands,
                                             const Environment& environment);

/// Returns the values for the options of `command`, and those of train if it also takes them, of
/// the user's file (~/.config/lockstep/config.toml, or below $XDG_CONFIG_HOME), then of the site's
/// (/etc/lockstep/config.toml, or $LOCKSTEP_SITE_CONFIG; none if that is empty), if they exist.
/// Nothing if it has no options. Errors: E110 to E116; E111 also for an option outside the table
/// with its command's name: [train], [bench.comm].
std::vector<Config> standing_values(const Command& command,
                                    const std::vector<Command>& commands,
                                    const Environment& environment);

/// The meaning of an exit code, for `lockstep explain`, the manual page and docs/reference.md.
struct ExitMeaning {
    ExitCode code;
    std::string_view meaning;     ///< "missing input or program"
    std::string_view next_start;  ///< effect of another start: "would fail again"
};

/// Meanings, sorted by code.
inline constexpr ExitMeaning exit_meanings[] = {
    {ExitCode::complete, "complete", "is not needed"},
    {ExitCode::usage, "wrong usage: option, value, argument", "would fail again"},
    {ExitCode::bad_data, "bad data or checkpoint", "would fail again"},
    {ExitCode::missing_input, "missing input or program", "would fail again"},
    {ExitCode::service_away,
     "a service is away (SLURM, a download), or a run is in use",
     "perhaps later, by hand"},
    {ExitCode::bug, "a bug of ours, or a model that ended the process", "would fail again"},
    {ExitCode::cannot_create, "an output cannot be made", "would fail again"},
    {ExitCode::io, "input or output error", "would fail again"},
    {ExitCode::saved_please_requeue,
     "saved after a signal or before --deadline, or told to end before anything began: please "
     "requeue",
     "goes on"},
    {ExitCode::peer_lost,
     "a rank, node or daemon was lost, or hangs",
     "goes on from the newest checkpoint"},
    {ExitCode::permission, "permission", "would fail again"},
    {ExitCode::config, "configuration", "would fail again"},
    {ExitCode::do_not_requeue,
     "do not requeue: three starts without a new checkpoint, or too many restarts",
     "find out why first"},
    {ExitCode::interrupted, "interrupted by hand, saved", "goes on, by hand"}};

/// Writes the manual page, the shells' completions and reference.md below `folder` in the layout of
/// an installation's share/; returns their paths. Errors: E407 if `folder` holds files, those of
/// writing.
std::vector<std::string> write_manual(std::vector<Command> commands, const fs::path& folder);

}  // namespace lockstep
