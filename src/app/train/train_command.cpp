// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/launch/live_placement.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/launch/supervise.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_status.hpp"
#include "lockstep/run/verdict.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::vector<Option> ranks_options(TrainOptions& options) {
    const auto ranks = ranks_section(options.np, options.oversubscribe).options;
    return {
        ranks[0],
        hosts_option(options.hosts),
        ranks[1],
        flag_option("dry-run", options.dry_run, "print the mpirun line of --np and stop"),
        path_option(
            "plan FILE", options.plan, "stop unless ranks run as this plan of 'lockstep map' says"),
        list_option("skip-checks ID[,ID]",
                    options.skip_checks,
                    "checks of 'lockstep doctor' to leave out at the start, or all")};
}

// A launcher has said how many ranks there are.
bool is_told_anew(const std::string& name) {
    constexpr std::array launched{"np", "hosts"};
    return is_of_start(name) ||
           (launched_by_mpi() && std::ranges::find(launched, name) != launched.end());
}

// What another run with these settings does not have: where the first began, and what its ranks
// settled for it.
bool is_of_run(const std::string& name, bool is_default) {
    constexpr std::array origins{"from", "load-weights", "load-skip", "load-prefix"};
    return std::ranges::find(origins, name) != origins.end() ||
           (is_default && std::ranges::find(settled_settings, name) != settled_settings.end());
}

// Of a command that has the option.
std::optional<std::string> given_text(const std::string& name,
                                      const OptionTable& table,
                                      const ParsedLine& line,
                                      const Environment& environment) {
    const auto has_it = [&](const OptionSection& section) {
        return std::ranges::find(section.options, name, &Option::name) != section.options.end();
    };
    if (std::ranges::none_of(table, has_it)) return {};
    const auto given = line.options.find(name);
    if (given != line.options.end()) return given->second;
    const std::string variable = name == "from" ? "LOCKSTEP_FROM" : "LOCKSTEP_RESUME";
    const auto text = environment.text(variable);
    return text && !text->empty() ? text : std::nullopt;
}

ConfigValue typed_value(const Option& option, const std::string& text) {
    if (option.kind == OptionKind::flag) return text == "true";
    if (option.kind == OptionKind::whole)
        if (const auto number = parse_integer(text)) return *number;
    if (option.kind == OptionKind::real)
        if (const auto number = parse_real(text)) return *number;
    return text;
}

// A sanitizer calls _exit() after its report, which would therefore reach only the captured file.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif

constexpr const char* train_help =
    R"(Trains a model with data parallelism over all ranks. The same settings give the same
parameters, bit for bit, on any number of ranks up to the run's virtual ranks.

The run directory keeps everything: settings, checkpoints, one log per rank, metrics.
The same command again resumes the run where its newest whole checkpoint left it, and so does
'lockstep train --resume RUN', which takes all settings from the run.
USR1, USR2, TERM and HUP save and stop with exit code 75, Ctrl-C with 130. From another terminal or host,
'lockstep status RUN' says where it stands, 'lockstep save RUN' and 'lockstep stop RUN' ask it.

Examples:
  lockstep train --np 2 --data D/train --test-data D/test --run runs/a
  lockstep train --resume runs/a
  lockstep train --hosts n1:4,n2:4 --data D/train --run runs/a
  mpirun -np 4 lockstep train --data D/train --run runs/b --epochs 10 --lr 3e-4
  srun --mpi=pmix lockstep train --config train.toml --run runs/c
)";

// The length is that of --max-steps, which the run may have that goes on.
void tell_of_idle_epochs(const TrainSettings& settings) {
    const std::string& steps = settings.origins.at("max-steps").origin;
    const std::string& epochs = settings.origins.at("epochs").origin;
    const bool is_of_run = steps == "run.json" && epochs != "run.json" && epochs != "default";
    const bool are_both_given = steps == "command line" && epochs == "command line";
    if (settings.max_steps > 0 && (is_of_run || are_both_given))
        once(Level::warn,
             "--epochs {} has no effect, because {} --max-steps {}; give --max-steps 0 with it",
             settings.epochs,
             is_of_run ? "the run has" : "there is",
             settings.max_steps);
}

/// Stores the origin of each setting in `settings.origins`, and logs which values override others.
void keep_origins(TrainSettings& settings, const std::vector<ResolvedOption>& resolved) {
    for (const ResolvedOption& option : resolved) {
        settings.origins[option.name] = {ConfigValue(option.text), option.origin};
        for (const GivenValue& weaker : option.overridden)
            if (weaker.text != option.text && weaker.origin != "default")
                once(Level::info,
                     "{} = {} ({}) overrides {} ({})",
                     option.name,
                     option.text,
                     option.origin,
                     weaker.text,
                     weaker.origin);
    }
    tell_of_idle_epochs(settings);
    if (settings.optimizer.learning_rate == 0)
        once(Level::warn,
             "--lr 0 changes no parameter: the run computes losses and learns nothing");
}

void check_required(const TrainSettings& settings) {
    const bool goes_on = settings.data.empty() && !settings.run.empty() && is_run(settings.run);
    check_given(!settings.data.empty(),
                "data",
                goes_on ? fmt::format("to go on with the run, give --resume {} in place of --run",
                                      shell_word(settings.run.string()))
                        : "make a data set with 'lockstep data pack', then --data DIR");
    check_given(!settings.run.empty(), "run", "name a run directory: --run runs/NAME");
}

// The number of the newest start; 0 for anything that is no run (yet).
std::int64_t newest_start(const fs::path& run) {
    try {
        return read_incarnation(run);
    } catch (const Error&) {
        return 0;
    }
}

// "" where none has begun.
fs::path newest_flight(const fs::path& run) {
    const std::int64_t start = newest_start(run);
    return start > 0 ? RunPaths{run}.flight(start) : fs::path();
}

// A run whose disk is gone keeps its state; the message is what matters.
void mark_failed(const fs::path& run, const Error& error) {
    try {
        write_failed_state(
            run, read_incarnation(run), error.code() + ": " + error.what(), error.exit_code());
    } catch (const Error&) {
    }
}

// Nobody knows whether a crash will happen again.
std::string next_start_text(const fs::path& run) {
    const auto checkpoints = list_checkpoints(RunPaths{run}.checkpoints());
    if (checkpoints.empty())
        return "no checkpoint was written: the same command begins again, and ends so again if the "
               "model or its data are the reason";
    return fmt::format("the same command again goes on from step {}", checkpoints.back().step);
}

// Reports ranks that a signal ended while they began, or a later Ctrl-C killed, by their files.
int tell_early_end(const fs::path& run, ExitCode usual) {
    const RunStatus status = status_of_run(run, StatusDepth::now);
    std::int64_t step = status.step;
    if (status.condition == RunCondition::complete || status.condition == RunCondition::failed)
        return status.exit;                                // and the ranks have said why
    if (status.condition != RunCondition::checkpointed) {  // they were ended before they said so
        step = std::max<std::int64_t>(status.saved_step, 0);
        write_stopped_state(run, status.incarnation, step, usual);
    }
    if (step > 0)
        once(Level::info, "stopped after step {}; the same command goes on from there", step);
    else
        once(Level::info, "stopped before anything was saved; the same command begins again");
    return static_cast<int>(usual);
}

int launch(const TrainOptions& options, const Invocation& call) {
    check_rank_program(rank_program(call.process.program));
    const fs::path& run = options.settings.run;
    const LaunchedRun launched{[&] { return newest_flight(run); },
                               [&](const Error& error) { mark_failed(run, error); }};
    const fs::path before = newest_flight(run);
    const auto have_begun = [&] {
        const fs::path newest = newest_flight(run);
        return !newest.empty() && newest != before;
    };
    const auto have_given_up = [&] {
        return have_begun() && fs::exists(verdict_path(newest_flight(run)));
    };
    // Of ranks that did not begin, words are kept for whoever begins that start; never in a folder
    // that may be no run.
    const std::int64_t start = newest_start(run) + 1;
    const LauncherLog log{start, [&](LaunchState state) {
                              if (have_begun()) return newest_flight(run).parent_path();
                              const bool has_place = state == LaunchState::over && is_run(run);
                              return has_place ? RunPaths{run}.logs(start) : fs::path();
                          }};
    const auto after_early_signal = [&](ExitCode usual) {
        if (have_begun()) return tell_early_end(run, usual);
        once(Level::info,
             "stopped before the ranks began: nothing was done; the same command does it");
        return static_cast<int>(usual);
    };
    return explain_end(launched, [&] {
        return supervise_ranks(
            {options.np, options.oversubscribe, call.words, {}, this_executable(), options.hosts},
            {.have_begun = have_begun,
             .have_given_up = have_given_up,
             .log = log,
             .tell_next_start = [&] { return next_start_text(run); },
             .tell_early_end = after_early_signal});
    });
}

void show_result(const TrainSettings& settings, const TrainResult& result) {
    if (!result.summary.empty()) print_once(result.summary);
    if (result.end != TrainEnd::complete) return;
    if (!result.test.text.empty()) print_once(fmt::format("test          {}\n", result.test.text));
    print_once(fmt::format("parameters    {}\n", result.parameter_hash));
    print_once(fmt::format("logs          {}\n", (settings.run / "logs").string()));
}

/// "C" skips C2, too.
bool skips(const TrainOptions& options, std::string_view check) {
    return std::ranges::any_of(options.skip_checks, [&](const std::string& skipped) {
        return skipped == "all" || check.starts_with(skipped);
    });
}

// A step of so many threads takes minutes, and a signal is met at its end. Fewer are slow, but a
// run may need the number that it was made with.
void check_threads(const TrainOptions& options) {
    constexpr std::size_t most_per_core = 16;
    const std::size_t cores = read_node_facts().allowed_cpus.size();
    const auto threads = static_cast<std::size_t>(options.settings.threads);
    check(options.oversubscribe || cores == 0 || threads <= most_per_core * cores,
          "E601",
          fmt::format("--threads {} asks for more than {} threads a core", threads, most_per_core),
          fmt::format("this rank may use {} core(s)", cores),
          fmt::format("use --threads {}, or --oversubscribe for a test", cores));
}

/// Collective. Where ranks run, for the first lines of the run. Errors: E609 on all ranks where the
/// launcher gave ranks one core that need not share any.
void settle_ranks(TrainOptions& options, const ProcessContext& process) {
    const DeviceKind device = options.settings.device;
    PlacementRules rules{
        .cores = SharingRule::unless_needed,
        .compute_on = device == DeviceKind::cpu ? ComputeOn::cpus : ComputeOn::gpus};
    // With auto the ranks find out by themselves, and go to CPUs.
    if (device == DeviceKind::automatic || options.settings.shares_gpus)
        rules.gpus = SharingRule::allow;
    if (options.oversubscribe || skips(options, "C2")) rules.cores = SharingRule::allow;
    rules.threads = options.settings.threads;
    LivePlacement live = place_live(process.ranks, *process.facts, rules);
    const RankSeat& own = live.plan.seats[static_cast<std::size_t>(process.ranks.rank())];
    options.settings.gpu = {own.gpu, own.gpu_uuid};
    for (const RdmaPort* port : active_rdma_ports(process.facts->node()))
        options.settings.rdma_ports.push_back(port->name());
    options.settings.rank_table = placement_table({live.reality, {}});
    options.settings.warnings = std::move(live.plan.warnings);
}

void check_job(const TrainOptions& options, const ProcessContext& process) {
    if (skips(options, "all")) return;
    std::vector<std::string> skipped = options.skip_checks;
    // settle_ranks() tells of these, the start of CUDA of G, and NCCL's of settings that must
    // agree.
    skipped.insert(skipped.end(), {"C2", "C4", "G", "F15"});
    const TrainSettings& settings = options.settings;
    run_preflight(process.ranks,
                  *process.facts,
                  {.threads = settings.threads,
                   .uses_gpus = settings.device == DeviceKind::cuda,
                   .run_folder = settings.run.string()},
                  skipped);
}

int run(TrainOptions& options, const Invocation& call) {
    const Communicator& ranks = call.process.ranks;
    const RankFacts& facts = *call.process.facts;
    if (!options.resume.empty()) options.settings.run = options.resume;
    agree(ranks, [&] {
        check_launch(facts.launch(), ranks.rank(), ranks.size());
        check_required(options.settings);
    });
    if (options.dry_run) {
        std::vector<std::string> words = call.words;
        std::erase(words, "--dry-run");
        const auto line = mpirun_line({options.hosts.empty() ? std::max(options.np, 1) : options.np,
                                       options.oversubscribe,
                                       words,
                                       {},
                                       this_executable(),
                                       options.hosts},
                                      Environment());
        print_once(shell_text(line) + "\n");
        return 0;
    }
    check_rank_count(call, options.hosts);
    const bool wants_ranks = options.np > 1 || !options.hosts.empty();
    if (wants_ranks && !launched_by_mpi()) return launch(options, call);
    const Program& program = call.process.program;
    if (program.train == nullptr) become_rank(rank_program(program), call.words, kept_cores());
    if (!options.plan.empty()) check_plan(ranks, facts, options.plan);
    if (const std::string note = binding_note(facts); !note.empty()) once(Level::info, "{}", note);
    options.settings.shows_live = has_live_terminal();
    options.settings.keeps_stderr = !is_sanitized;
    keep_origins(options.settings, call.options);
    agree(ranks, [&] { check_threads(options); });
    settle_ranks(options, call.process);
    check_job(options, call.process);
    const TrainResult result = program.train(options.settings, ranks);
    show_result(options.settings, result);
    constexpr ExitCode codes[] = {
        ExitCode::complete, ExitCode::saved_please_requeue, ExitCode::interrupted};
    return static_cast<int>(codes[static_cast<std::size_t>(result.end)]);
}

}  // namespace

// The settings' sections, the first and the last with what only the command line knows.
OptionTable train_option_table(TrainOptions& options) {
    OptionTable table = setting_table(options.settings);
    table.front().options.push_back(path_option(
        "config FILE", options.config, "TOML file with any of these options as 'name = value'"));
    table.front().options.push_back(
        path_option("resume RUN",
                    options.resume,
                    "run whose settings are taken, and which 'train' goes on with; options that "
                    "are given change them"));
    const auto own = ranks_options(options);
    table.back().options.insert(table.back().options.begin(), own.begin(), own.end());
    return table;
}

std::vector<Config> values_of_run(const OptionTable& table,
                                  const ParsedLine& line,
                                  const Environment& environment) {
    const std::optional<std::string> resumed = given_text("resume", table, line, environment);
    const std::optional<std::string> source = given_text("from", table, line, environment);
    if (!resumed && !source) return {};
    check_fits(!resumed || !(source || line.options.contains("run")),
               fmt::format("--resume and --{} are both given", source ? "from" : "run"),
               "--resume goes on with a run as it is, in its own folder",
               fmt::format("drop --{}", source ? "resume" : "run"));
    const fs::path run = resumed ? fs::path(*resumed) : run_source(*source).run;
    Config config;
    const Json origins = read_run_record(run).config;
    for (const auto& [name, text] : recorded_values(run, table)) {
        const bool is_default =
            origins.value(name, Json::object()).value("origin", "") == "default";
        if (is_told_anew(name) || (source && is_of_run(name, is_default))) continue;
        config[name] = {typed_value(find_option(table, name), text),
                        is_default ? "default" : "run.json"};
    }
    return {config};
}

Command train_command() {
    auto options = std::make_shared<TrainOptions>();
    return {.name = "train",
            .summary = "train a model on all ranks",
            .usage = "lockstep train --data DIR --run DIR [--np N] [options]",
            .text = train_help + std::string("\n--transform takes ") + transform_help(),
            .table = train_option_table(*options),
            .run = [options](const Invocation& call) { return run(*options, call); }};
}

}  // namespace lockstep
