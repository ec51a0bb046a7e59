// SPDX-License-Identifier: Apache-2.0
// A subcommand: its words, its table of options, its function.
#pragma once

#include "options.hpp"
#include "program.hpp"

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

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
    bool is_about_lockstep =
        false;  ///< names or starts that program: other programs do not have it
    std::function<int(const Invocation&)> run;
};

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

}  // namespace lockstep
