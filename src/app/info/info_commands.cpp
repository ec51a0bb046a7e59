// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/gpu_report.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/train/train.hpp"

#include "command.hpp"
#include "config_files.hpp"
#include "manual.hpp"
#include "train/train_options.hpp"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct ShowOptions {
    TrainOptions train;
    bool origin = false;
};

int show(const ShowOptions& options, const Invocation& call) {
    for (const ResolvedOption& option : call.options) {
        if (option.name == "origin") continue;
        const std::string line = fmt::format("{} = {}", option.name, option.text);
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

struct ExitMeaning {
    ExitCode code;
    std::string_view meaning, next_start;
};

// The table of docs/exit-codes.md.
constexpr ExitMeaning exit_meanings[] = {
    {ExitCode::complete, "complete", "is not needed"},
    {ExitCode::usage, "wrong usage: option, value, argument", "would fail again"},
    {ExitCode::bad_data, "bad data or checkpoint", "would fail again"},
    {ExitCode::missing_input, "missing input or program", "would fail again"},
    {ExitCode::service_away,
     "a service is away (SLURM, a download), or a run is in use",
     "perhaps later, by hand"},
    {ExitCode::bug, "a bug of ours", "would fail again"},
    {ExitCode::cannot_create, "an output cannot be made", "would fail again"},
    {ExitCode::io, "input or output error", "would fail again"},
    {ExitCode::saved_please_requeue,
     "saved after a signal or before --deadline: please requeue",
     "goes on"},
    {ExitCode::peer_lost,
     "a rank, node or daemon was lost, or hangs",
     "goes on from the newest checkpoint"},
    {ExitCode::permission, "permission", "would fail again"},
    {ExitCode::config, "configuration", "would fail again"},
    {ExitCode::do_not_requeue,
     "do not requeue: starts without a new checkpoint, or too many restarts",
     "find out why first"},
    {ExitCode::interrupted, "interrupted by hand, saved", "goes on, by hand"}};

std::string errors_that_exit_with(int code) {
    std::string names;
    for (const ErrorEntry& entry : error_catalog())
        if (static_cast<int>(entry.exit_code) == code) names += fmt::format(" {}", entry.code);
    return names.empty() ? names : "its errors:" + names + "\n";
}

int explain_exit(const std::string& word, std::int64_t code) {
    const auto known = std::ranges::find_if(exit_meanings, [&](const ExitMeaning& meaning) {
        return static_cast<int>(meaning.code) == code;
    });
    if (known != std::end(exit_meanings)) {
        print_once(fmt::format("exit code {}: {}\nanother start: {}\n{}",
                               code,
                               known->meaning,
                               known->next_start,
                               errors_that_exit_with(static_cast<int>(code))));
        return 0;
    }
    const int signal = static_cast<int>(code) - 128;
    check(signal > 0 && signal <= SIGRTMAX, [&] {
        return Error("E101",
                     fmt::format("exit code {} is none of Lockstep's", printable(word)),
                     "mpirun's own, 1 or 205, tell of lost daemons; the shell's of no program: 127",
                     "the lines before it say more, or 'lockstep diagnose RUN'");
    });
    print_once(fmt::format(
        "exit code {}: killed by signal {} ({})\nanother start: goes on from the newest "
        "checkpoint\n",
        code,
        signal,
        ::strsignal(signal)));
    return 0;
}

int explain(const std::string& word) {
    if (const auto number = parse_integer(word)) return explain_exit(word, *number);
    std::string code = word;
    for (char& c : code) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const ErrorEntry* entry = find_error(code);
    check(entry != nullptr, [&] {
        return Error("E101",
                     fmt::format("no error has code '{}'", printable(code)),
                     "",
                     "give a code as error messages show it, for example E204, or an exit code");
    });
    print_once(fmt::format("{}: {} (exit code {})\n\n{}\n",
                           entry->code,
                           entry->title,
                           static_cast<int>(entry->exit_code),
                           entry->text));
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
                "~/.config/lockstep/config.toml > /etc/lockstep/config.toml > default.\n",
            .table = std::move(table),
            .run = [options](const Invocation& call) { return show(*options, call); }};
}

Command config_check_command() {
    return {.name = "config check",
            .summary = "check a configuration file",
            .usage = "lockstep config check FILE",
            .text =
                "Reports the first mistake with file, line and column. A file for --config of "
                "train, or\n"
                "a user's or site's, where options stand in tables such as [train].\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return check_file(call.positionals[0]); }};
}

Command explain_command() {
    return {.name = "explain",
            .summary = "explain an error code, or an exit code",
            .usage = "lockstep explain CODE",
            .text =
                "The long text behind a message such as 'error E204: ...', or what it means "
                "that a\ncommand ended with 75.\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return explain(call.positionals[0]); }};
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
                write_manual(all_commands(), call.positionals[0]);
                return 0;
            }};
}

Command version_command() {
    return {.name = "version",
            .summary = "show versions",
            .usage = "lockstep version",
            .text = "Of Lockstep and of what it stands on.\n",
            .run = [](const Invocation&) {
                print_once(fmt::format("lockstep {}\nlibtorch {}\n{}\ngpu {}\n",
                                       version_text(),
                                       torch_version_text(),
                                       MpiSession::library_version(),
                                       describe_gpus()));
                return 0;
            }};
}

std::vector<Command> all_commands() {
    return {
        train_command(),        map_command(),          doctor_command(),
        verify_command(),       data_pack_command(),    data_synth_command(),
        data_inspect_command(), data_reshard_command(), data_stage_command(),
        data_export_command(),  data_verify_command(),  data_ledger_command(),
        submit_command(),       status_command(),       stop_command(),
        save_command(),         diagnose_command(),     ckpt_ls_command(),
        ckpt_verify_command(),  bench_comm_command(),   bench_io_command(),
        slurm_prolog_command(), slurm_epilog_command(), config_show_command(),
        config_check_command(), explain_command(),      generate_command(),
        version_command(),
    };
}

}  // namespace lockstep
