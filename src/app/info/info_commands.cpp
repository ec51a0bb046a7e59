// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/launch/gpu_needs.hpp"
#include "lockstep/launch/supervise.hpp"
#include "lockstep/plan/model_table.hpp"

#include "command.hpp"

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
        if (option.name == "origin" || option.name == "resume") continue;
        const std::string line = toml_line(option);
        print_once(options.origin ? fmt::format("{:<40} # {}\n", line, option.origin)
                                  : line + "\n");
    }
    return 0;
}

// Assigns every key, so that a bad value is found as the commands would find it.
int check_file(const std::string& path) {
    const Environment nothing(std::map<std::string, std::string>{});
    const auto is_in_table = [](const auto& entry) {
        return entry.first.find('.') != std::string::npos;
    };
    // As in a user's or a site's file.
    if (const Config config = read_config(path); std::ranges::any_of(config, is_in_table)) {
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

constexpr const char* models_help =
    R"(Lists the models that train --model can name. Parameters are counted for the inputs and classes shown.
The last columns show which other inputs a model takes, and what its outputs mean. A model for
classification also serves for multi-label and regression. docs/models.md explains how to choose one,
and how to exchange weights with torchvision. For FILE.pt2, a program of
torch.export, the command shows inputs, output, parameters and operators (docs/your-model.md).

Examples:
  lockstep models
  lockstep models resnet18 resnet50
  lockstep models net.pt2
)";

constexpr std::size_t most_names = 64;

const ModelFacts& named_model(const std::string& name) {
    const ModelFacts* found = find_built_in(name);
    check(found != nullptr, [&] {
        std::vector<std::string> names;
        for (const ModelFacts& model : built_in_models()) names.emplace_back(model.name);
        return Error("E103",
                     fmt::format("no model '{}'", printable(name)),
                     "'lockstep models' lists all that are built in",
                     did_you_mean(name, names));
    });
    return *found;
}

std::string input_text(const ModelShape& shape) {
    return shape.vocabulary > 0
               ? fmt::format("{} tokens", shape.width)
               : fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width);
}

std::string model_row(const ModelFacts& model) {
    const ModelShape& shape = model.usual;
    const auto count = static_cast<std::uint64_t>(model.parameters(shape));
    return fmt::format("{:<16} {:>10}  {:<11}  {:>7}  {:<15}  {}\n",
                       model.name,
                       grouped(count),
                       input_text(shape),
                       shape.classes,
                       model.input,
                       model.task);
}

int show_models(const Invocation& call) {
    std::string rows, programs;
    for (const std::string& name : call.positionals)
        if (source_of(name) == ModelSource::program)
            programs += describe_program(name);
        else
            rows += model_row(named_model(name));
    if (call.positionals.empty())
        for (const ModelFacts& model : built_in_models()) rows += model_row(model);
    if (!rows.empty())
        rows.insert(0,
                    fmt::format("{:<16} {:>10}  {:<11}  {:>7}  {:<15}  {}\n",
                                "name",
                                "parameters",
                                "of inputs",
                                "classes",
                                "takes",
                                "task"));
    print_once(rows + programs);
    return 0;
}

std::string errors_that_exit_with(int code) {
    std::string names;
    for (const ErrorEntry& entry : error_catalog())
        if (static_cast<int>(entry.exit_code) == code) names += fmt::format(" {}", entry.code);
    return names.empty() ? names : "its errors:" + names + "\n";
}

int explain_exit(const std::string& word, std::int64_t code) {
    const auto known =
        std::ranges::find(exit_meanings, static_cast<ExitCode>(code), &ExitMeaning::code);
    if (known != std::end(exit_meanings)) {
        print_once(fmt::format("exit code {}: {}\nanother start: {}\n{}",
                               code,
                               known->meaning,
                               known->next_start,
                               errors_that_exit_with(static_cast<int>(code))));
        return 0;
    }
    const int number = code >= 0 && code <= 255 ? static_cast<int>(code) : 0;
    if (const auto meaning = launcher_code(number); !meaning.empty()) {
        print_once(fmt::format("exit code {}: {}\n", code, meaning));
        return 0;
    }
    const int signal = number - 128;
    check(signal > 0 && signal <= SIGRTMAX,
          "E101",
          fmt::format("exit code {} is not one of Lockstep's", printable(word)),
          "a shell gives 127 if it finds no program, and 126 if it may not start it",
          "the lines before it say more, or 'lockstep diagnose RUN'");
    const std::string_view fault = launch_fault(number);
    print_once(fmt::format(
        "exit code {}: killed by signal {} ({})\nanother start: goes on from the newest "
        "checkpoint\n{}",
        code,
        signal,
        ::strsignal(signal),
        fault.empty()
            ? ""
            : fmt::format("or, from mpirun of Open MPI 4.1 before ranks begin: {}\n", fault)));
    return 0;
}

int explain_check(const DoctorCheck& check) {
    print_once(fmt::format("{}: {} ({} of 'lockstep doctor')\n\n{}\nfix: {}\n",
                           check.id,
                           check.title,
                           severity_name(check.severity),
                           check.why,
                           check.fix));
    return 0;
}

int explain(const std::string& word) {
    if (const auto number = parse_integer(word)) return explain_exit(word, *number);
    std::string code = word;
    for (char& c : code) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const auto checks = doctor_checks();
    const auto found = std::ranges::find(checks, code, &DoctorCheck::id);
    if (found != checks.end()) return explain_check(*found);
    const ErrorEntry* entry = find_error(code);
    check(entry != nullptr,
          "E101",
          fmt::format("no error has code '{}'", printable(code)),
          "",
          "give a code as messages show it, for example E204 or C2, or an exit code");
    print_once(fmt::format("{}: {} (exit code {})\n\n{}\n",
                           entry->code,
                           entry->title,
                           static_cast<int>(entry->exit_code),
                           entry->text));
    return 0;
}

Command config_show_command() {
    auto options = std::make_shared<ShowOptions>();
    OptionTable table = {
        {"Output", {flag_option("origin", options->origin, "say where each value comes from")}}};
    std::ranges::move(train_option_table(options->train), std::back_inserter(table));
    return {.name = "config show",
            .summary = "show the settings that 'train' would use",
            .usage = "lockstep config show [--origin] [options of train]",
            .text =
                "Values come from: command line > LOCKSTEP_* variables > --config file >\n"
                "run of --resume > ~/.config/lockstep/config.toml > /etc/lockstep/config.toml > "
                "default.\n"
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
    return {.name = "generate-manual",
            .summary = "write the manual page, completions and reference",
            .usage = "lockstep generate-manual DIR",
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

constexpr const char* export_script_help =
    R"(Prints lockstep_export.py, a program for Python that needs PyTorch 2.9 or later and nothing else. It exports
a model in training mode with a free number of samples, and compares the file with the model for two
numbers of samples. If the model cannot be exported, it names the line of your code and what to change
there (docs/your-model.md). --help of the script shows its options. The installed copy is
PREFIX/share/lockstep/lockstep_export.py.

Examples:
  lockstep export-script > lockstep_export.py
  python lockstep_export.py my.module:make_net --input image=f32[3,224,224] --out net.pt2
)";

constexpr const char* export_script_text =
#include "export_script.inc"
    ;

Command models_command() {
    return {.name = "models",
            .summary = "list the built-in models, or show what a program of torch.export holds",
            .usage = "lockstep models [NAME|FILE.pt2...]",
            .text = models_help,
            .optional_positionals = most_names,
            .run = show_models};
}

Command explain_command() {
    return {.name = "explain",
            .summary = "explain an error code, or an exit code",
            .usage = "lockstep explain CODE",
            .text =
                "The long text behind a message such as 'error E204: ...', what a check of the\n"
                "doctor is for, such as C2, or what it means that a command ended with 75.\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return explain(call.positionals[0]); }};
}

Command export_script_command() {
    return {.name = "export-script",
            .summary = "print a Python program that exports PyTorch models for 'train --model'",
            .usage = "lockstep export-script > lockstep_export.py",
            .text = export_script_help,
            .run = [](const Invocation&) {
                print_once(export_script_text);
                return 0;
            }};
}

}  // namespace

std::vector<Command> all_commands() {
    return {
        train_command(),        map_command(),           doctor_command(),
        verify_command(),       data_pack_command(),     data_synth_command(),
        data_inspect_command(), data_reshard_command(),  data_stage_command(),
        data_export_command(),  data_verify_command(),   data_ledger_command(),
        submit_command(),       status_command(),        compare_command(),
        scale_command(),        logs_command(),          report_command(),
        metrics_command(),      trace_merge_command(),   stop_command(),
        save_command(),         diagnose_command(),      ckpt_ls_command(),
        ckpt_inspect_command(), ckpt_diff_command(),     ckpt_verify_command(),
        ckpt_rm_command(),      eval_command(),          predict_command(),
        sample_command(),       profile_command(),       prune_command(),
        export_command(),       export_script_command(), drill_command(),
        tune_command(),         bench_comm_command(),    bench_io_command(),
        slurm_prolog_command(), slurm_epilog_command(),  config_show_command(),
        config_check_command(), models_command(),        explain_command(),
        generate_command(),     version_command(),
    };
}

}  // namespace lockstep
