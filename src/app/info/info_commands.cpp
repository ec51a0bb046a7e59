// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/gpu_report.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/launch/gpu_needs.hpp"
#include "lockstep/train/train.hpp"

#include "command.hpp"
#include "config_files.hpp"
#include "manual.hpp"
#include "train/train_options.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct ShowOptions {
    TrainOptions train;
    bool origin = false;
};

// For a file, which names no other file; what is unset there is left out.
std::string toml_line(const ResolvedOption& option) {
    const bool is_bare = option.kind == OptionKind::flag || option.kind == OptionKind::whole ||
                         option.kind == OptionKind::real;
    const std::string value = is_bare ? option.text : Json(option.text).dump();
    const bool is_left_out = option.text.empty() || option.name == "config";
    return fmt::format("{}{} = {}", is_left_out ? "# " : "", option.name, value);
}

int show(const ShowOptions& options, const Invocation& call) {
    for (const ResolvedOption& option : call.options) {
        if (option.name == "origin") continue;
        const std::string line = toml_line(option);
        print_once(options.origin ? fmt::format("{:<40} # {}\n", line, option.origin)
                                  : line + "\n");
    }
    return 0;
}

// Whether a file's options stand in tables, as a user's or site's do.
bool has_sections(const Config& config) {
    return std::ranges::any_of(
        config, [](const auto& entry) { return entry.first.find('.') != std::string::npos; });
}

// Assigns every key, so that a bad value is found as the commands would find it.
int check_file(const std::string& path) {
    const Environment nothing(std::map<std::string, std::string>{});
    if (const Config config = read_config(path); has_sections(config)) {
        const Environment site({{"LOCKSTEP_SITE_CONFIG", path}});
        const auto commands = all_commands();
        for (const Command& command : commands)
            resolve_options(command.table, {}, nothing, standing_values(command, commands, site));
    } else {
        TrainOptions options;
        ParsedLine line;
        line.options["config"] = path;
        resolve_options(train_option_table(options), line, nothing);
    }
    print_once(fmt::format("'{}' is fine\n", path));
    return 0;
}

int show_versions(const Invocation& call) {
    const GpuNeedFacts gpus =
        read_gpu_needs(read_topology({"/", nullptr}), rank_program(call.process.program), false);
    print_once(fmt::format("lockstep {}\nlibtorch {}\n{}\ngpu {}\n{}",
                           version_text(),
                           torch_version_text(),
                           MpiSession::library_version(),
                           describe_gpus(gpus.torch_nccl),
                           gpu_needs_text(gpus)));
    return 0;
}

}  // namespace

Command config_show_command() {
    auto options = std::make_shared<ShowOptions>();
    OptionTable table = {
        {"Output", {flag_option("origin", options->origin, "say where each value comes from")}}};
    for (OptionSection& section : train_option_table(options->train))
        table.push_back(std::move(section));
    return {.name = "config show",
            .summary = "show the settings that 'train' would use",
            .usage = "lockstep config show [--origin] [options of train]",
            .text =
                "Values come from: command line > LOCKSTEP_* variables > --config file >\n"
                "~/.config/lockstep/config.toml > /etc/lockstep/config.toml > default.\n"
                "The output is a file for --config; lines with # are unset.\n",
            .table = std::move(table),
            .run = [options](const Invocation& call) { return show(*options, call); }};
}

Command config_check_command() {
    return {.name = "config check",
            .summary = "check a configuration file",
            .usage = "lockstep config check FILE",
            .text =
                "Reports the first mistake with file, line and column. FILE is one for train "
                "--config,\n"
                "or a user's or site's file, which has a table such as [train] for each command.\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return check_file(call.positionals[0]); }};
}

Command generate_command() {
    return {.name = "generate",
            .summary = "write the manual page, completions and reference",
            .usage = "lockstep generate DIR",
            .text = "For installations and docs/reference.md: made from the tables of options.\n",
            .positionals = 1,
            .is_hidden = true,
            .is_about_lockstep = true,
            .run = [](const Invocation& call) {
                for (const std::string& path : write_manual(all_commands(), call.positionals[0]))
                    print_once(fmt::format("wrote {}\n", path));
                return 0;
            }};
}

Command version_command() {
    return {.name = "version",
            .summary = "show versions",
            .usage = "lockstep version",
            .text =
                "Shows the versions of Lockstep and its libraries. On a node with GPUs it also "
                "names what\ntraining on them lacks, with the command that installs it.\n",
            .run = show_versions};
}

std::vector<Command> all_commands() {
    return {
        train_command(),         map_command(),          doctor_command(),
        verify_command(),        data_pack_command(),    data_synth_command(),
        data_inspect_command(),  data_reshard_command(), data_stage_command(),
        data_export_command(),   data_verify_command(),  data_ledger_command(),
        submit_command(),        status_command(),       compare_command(),
        scale_command(),         logs_command(),         report_command(),
        metrics_command(),       trace_merge_command(),  stop_command(),
        save_command(),          diagnose_command(),     ckpt_ls_command(),
        ckpt_verify_command(),   eval_command(),         predict_command(),
        profile_command(),       prune_command(),        export_command(),
        export_script_command(), drill_command(),        tune_command(),
        bench_comm_command(),    bench_io_command(),     slurm_prolog_command(),
        slurm_epilog_command(),  config_show_command(),  config_check_command(),
        models_command(),        explain_command(),      generate_command(),
        version_command(),
    };
}

}  // namespace lockstep
