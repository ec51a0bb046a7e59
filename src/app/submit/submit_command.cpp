// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/known_faults.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/split.hpp"

#include "command.hpp"
#include "submit/submit_plan.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

namespace lockstep {
namespace {

// The folder that holds slurm/: LOCKSTEP_ROOT, this folder, an installation's or a build's. Errors:
// E539.
fs::path find_root(const Environment& environment) {
    const fs::path program = fs::path(this_executable()).parent_path();
    std::vector<fs::path> candidates = {
        fs::current_path(), program / "../share/lockstep", program / "../../.."};
    if (const auto named = environment.text("LOCKSTEP_ROOT")) candidates = {*named};
    for (const fs::path& folder : candidates)
        if (fs::exists(status_of(folder / "slurm/job.sh"))) return fs::canonical(folder);
    throw Error("E539",
                "the templates were not found",
                fmt::format("'{}' has no slurm/job.sh", candidates.front().string()),
                "LOCKSTEP_ROOT=DIR, the checkout or the installation's share/lockstep");
}

constexpr double patience_s = 15;  // limit of one command; SLURM's own is 9 s for a controller
constexpr int tries = 3;

void check_installed(const std::string& program) {
    check(!find_program(program).empty(),
          "E529",
          fmt::format("there is no SLURM here: '{}' is not on PATH", program),
          "",
          "call it on a login node, or train without SLURM: 'lockstep train --np 4 ...'");
}

ProcessResult run_once(const std::vector<std::string>& argv) {
    try {
        return run_process(argv, {}, patience_s);
    } catch (const Error& error) {
        if (kind_of(error) != ErrorKind::timed_out) throw;
        return {.exit_code = 1, .output = error.what()};
    }
}

// SLURM's programs put their name before warnings; output and warnings come in one stream.
std::string without_warnings(const std::string& output, const std::string& program) {
    std::istringstream lines(output);
    std::string kept;
    for (std::string line; std::getline(lines, line);)
        if (!line.starts_with(program + ": ")) kept += line + "\n";
    return kept;
}

// The job's state, or nothing. What `squeue` does not know makes it fail, like a controller that is
// away.
std::optional<std::string> state_of(const std::string& job) {
    const auto answer = run_once({"squeue", "-h", "-t", "all", "-j", job, "-o", "%T"});
    const auto lines = split(answer.output, '\n');
    std::set<std::string> states(lines.begin(), lines.end());
    states.erase("");
    if (answer.exit_code == 0 && states.empty()) return std::nullopt;
    if (answer.exit_code == 0) return states.size() == 1 ? *states.begin() : "SEVERAL";
    if (answer.output.find("Invalid job id") != answer.output.npos) return std::nullopt;
    throw slurm_failure("squeue", answer.output);
}

/// Runs a command of SLURM, three times if the controller does not answer, and returns its output
/// without its own warnings. Errors: E529 not installed, E530 munge, E511.
std::string ask_slurm(const std::vector<std::string>& argv) {
    check_installed(argv[0]);
    ProcessResult answer;
    for (int attempt = 0; attempt < tries; ++attempt) {
        answer = run_once(argv);
        if (answer.exit_code == 0) return without_warnings(answer.output, argv[0]);
        const Error error = slurm_failure(argv[0], answer.output);
        if (kind_of(error) == ErrorKind::no_authorization) throw error;
    }
    throw slurm_failure(argv[0], answer.output);
}

/// All that `request` is checked against. MPI types are asked for only where srun starts the ranks.
/// Errors: those of ask_slurm().
SlurmFacts query_slurm(const JobRequest& request, Launcher launcher) {
    check_installed("sbatch");
    SlurmFacts facts;
    facts.partitions =
        parse_partitions(ask_slurm({"scontrol", "--all", "show", "partition", "--oneliner"}));
    facts.groups = parse_node_groups(ask_slurm({"sinfo", "--all", "-h", "-o", node_group_format}));
    auto config = parse_slurm_config(ask_slurm({"scontrol", "show", "config"}));
    facts.version = version_number(config["SLURM_VERSION"]);
    facts.topology = config["TopologyPlugin"];
    // SLURM counts the index 0, too.
    if (const auto most = parse_integer(config["MaxArraySize"])) facts.most_array_index = *most - 1;
    facts.has_accounts = config["AccountingStorageType"].ends_with("slurmdbd");
    const passwd* const user = ::getpwuid(::getuid());
    facts.user = user != nullptr ? user->pw_name : std::to_string(::getuid());
    if (facts.has_accounts) {
        const auto rows = parse_associations(ask_slurm({"sacctmgr",
                                                        "-n",
                                                        "-P",
                                                        "show",
                                                        "associations",
                                                        "user=" + facts.user,
                                                        "format=account,qos"}));
        facts.accounts = rows.accounts;
        facts.qos = rows.qos;
    }
    if (launcher == Launcher::srun)
        facts.mpi_types = parse_mpi_types(ask_slurm({"srun", "--mpi=list"}));
    for (const AwaitedJob& awaited : request.awaited_jobs)
        if (const auto state = state_of(awaited.job)) facts.jobs[awaited.job] = *state;
    if (!request.reservation.empty())
        facts.reservations =
            parse_reservations(ask_slurm({"scontrol", "show", "reservation", "--oneliner"}));
    if (!request.licences.empty())
        facts.licences = parse_licences(ask_slurm({"scontrol", "show", "license", "--oneliner"}));
    return facts;
}

// Deleted when sbatch has read it.
class ScriptFile {
  public:
    explicit ScriptFile(const std::string& text) {
        UniqueFd file(::mkstemp(path_.data()));
        check(static_cast<bool>(file), [&] { return system_error("make", path_, errno); });
        write_all(file.value(), std::as_bytes(std::span(text)), path_);
    }
    ScriptFile& operator=(ScriptFile&&) = delete;
    ~ScriptFile() { ::unlink(path_.c_str()); }
    const std::string& path() const { return path_; }

  private:
    std::string path_ = (fs::temp_directory_path() / "lockstep-submit-XXXXXX").string();
};

ParsedLine parse_job_words(const std::vector<std::string>& words, const OptionTable& table) {
    try {
        return parse_line(words, table);
    } catch (const Error& error) {
        if (error.fix().find("--help") == std::string::npos) throw;
        throw Error(error.code(), error.what(), error.why(), "see 'lockstep train --help'");
    }
}

// Returns the settings of `train`, read in its own way, so that a mistake is found now, not in the
// queue.
TrainSettings train_settings(const fs::path& data, const SubmitPlan& plan) {
    TrainOptions train;
    const OptionTable table = train_option_table(train);
    std::vector<std::string> words = plan.settings.words;
    for (std::string& word : words)
        if (const auto at = word.find("%a"); at != word.npos) word.replace(at, 2, "0");
    const ParsedLine line = parse_job_words(words, table);
    const auto refuse = [&](const char* name, const char* why, const char* fix) {
        check(!line.options.contains(name),
              [&] { return Error("E104", fmt::format("--{} is given after --", name), why, fix); });
    };
    for (const char* launch : {"np", "hosts"})
        refuse(launch,
               "the job's launcher starts the ranks",
               "give --nodes and --ntasks-per-node before --");
    for (const char* own : {"data", "test-data", "run", "resume"})
        refuse(own, "the template gives it already", "give --data and --run before --");
    check(line.positionals.empty(), [&] {
        return Error("E101",
                     fmt::format("'train' takes no word '{}'", printable(line.positionals[0])),
                     "",
                     "words after -- are options of 'lockstep train'");
    });
    for (const ResolvedOption& option :
         resolve_options(table,
                         line,
                         Environment(),
                         standing_values(train_command(), all_commands(), Environment())))
        train.settings.origins[option.name] = {option.text, option.origin};
    if (!data.empty()) train.settings.data = data / "train";
    return train.settings;
}

// Of --data or, as the templates of slurm/ say, of the environment or the quickstart; else "".
fs::path data_folder(const SubmitOptions& options, const SubmitPlan& plan, const fs::path& root) {
    const bool has_default = plan.script.body.find("${DATA:-") != std::string::npos;
    if (!options.data.empty() || !has_default) return options.data;
    const std::string exported = Environment().text("DATA").value_or("");
    return exported.empty() ? root / "build/data/fashion-mnist" : fs::path(exported);
}

void say_missing_data(const fs::path& data) {
    if (!data.empty() && !fs::exists(status_of(data)))
        once(Level::warn,
             "--data is not given, and '{}', which the job would train on, is not visible from "
             "here; fix: give --data DIR, with train/ and test/ in it",
             printable(data.string()));
}

void check_launcher(const SubmitPlan& plan, const SlurmFacts& facts) {
    const bool has_pmix = std::ranges::any_of(
        facts.mpi_types, [](const std::string& type) { return type.starts_with("pmix"); });
    check(plan.launcher != Launcher::srun || has_pmix,
          "E537",
          "srun cannot start MPI ranks on this cluster",
          "'srun --mpi=list' shows no pmix",
          "--launcher mpirun");
    if (plan.launcher != Launcher::srun) return;
    for (const KnownFault& fault :
         known_faults({.pmix = loaded_pmix_version(), .slurm = facts.version}))
        once(Level::warn, "{}: {} ({})", fault.what, fault.fix, fault.source);
}

void say_notes(const SubmitPlan& plan, const std::vector<std::string>& notes) {
    for (const std::string& text : notes) once(Level::warn, "{}", text);
    const auto signal = value_of(plan.script.parts.front(), "signal").value_or("");
    const auto at = signal.find('@');
    const auto lead_s = at == signal.npos ? std::nullopt : parse_integer(signal.substr(at + 1));
    const auto& seconds = plan.request.parts.front().seconds;
    if (lead_s && seconds && *seconds <= *lead_s + 60)
        once(Level::warn,
             "SLURM sends its signal {} s before the limit, up to a minute early: hardly anything "
             "is left of --time {}",
             *lead_s,
             slurm_time_text(*seconds));
    const bool tasks_differ = plan.script.body.find("SLURM_ARRAY_TASK_ID") != std::string::npos ||
                              std::ranges::any_of(plan.settings.words, [](const std::string& word) {
                                  return word.find("%a") != word.npos;
                              });
    const std::string tasks = value_of(plan.script.parts.front(), "array").value_or("");
    if (tasks.find_first_of(",-") != tasks.npos && trains(plan.script) && !tasks_differ)
        once(Level::warn,
             "all tasks of --array train the same, with the same result; fix: give words with %a, "
             "such as -- --seed %a");
}

Error refused(const std::string& words_of_slurm) {
    return Error("E540",
                 "SLURM refused the job",
                 printable(words_of_slurm),
                 "change what SLURM names; no further job was submitted");
}

std::string submit_once(const std::string& path) {
    const auto answer = run_process({"sbatch", "--parsable", path}, {}, 60);
    const std::string job = answer.output.substr(0, answer.output.find_first_of("\n;"));
    const bool is_job = !job.empty() && job.find_first_not_of("0123456789") == job.npos;
    check(answer.exit_code == 0 && is_job, [&] { return refused(answer.output); });
    return job;
}

// A rehearsal is all that a dry run does; else the submission itself tells.
enum class Submission { rehearsed, real };

// Returns SLURM's expected start, in its own words; "" if it does not tell. Errors: E540 if sbatch
// itself refuses what it reads. The controller may refuse only while nodes are down.
std::string expected_start(const std::string& script, Submission submission) {
    const ScriptFile file(script);
    const auto answer = run_process({"sbatch", "--test-only", file.path()}, {}, 60);
    const bool is_refused = answer.exit_code != 0;
    if (is_refused && submission == Submission::rehearsed) {
        const bool is_of_controller = answer.output.find("allocation failure") != std::string::npos;
        check(is_of_controller, [&] { return refused(answer.output); });
        once(Level::warn,
             "SLURM refuses it, permanently or while nodes are down: {}",
             printable(answer.output));
    }
    constexpr std::string_view mark = " to start at ";
    const auto at = answer.output.find(mark);
    if (is_refused || at == answer.output.npos) return "";
    const std::string rest = answer.output.substr(at + mark.size());
    return printable(rest.substr(0, rest.find(' ')));
}

// Returns the place of the job's output, for people: SLURM's own patterns stay (%a, %N).
std::string log_of(const SubmitPlan& plan, const std::string& job) {
    const SbatchOptions& first = plan.script.parts.front();
    std::string name = value_of(first, "output").value_or("slurm-%j.out");
    for (const auto& [mark, value] :
         {std::pair<std::string, std::string>{"%x", plan.request.job_name},
          {"%A", job},
          {"%j", plan.request.last_task ? "%j" : job}})
        if (const auto at = name.find(mark); at != name.npos) name.replace(at, mark.size(), value);
    return fs::absolute(name).string();
}

void submit_all(const SubmitPlan& plan, const std::string& script, std::int64_t chain) {
    const std::string start = expected_start(script, Submission::real);
    const ScriptFile file(script);
    for (std::int64_t i = 0; i < chain; ++i) {
        const std::string job = submit_once(file.path());
        print_once(fmt::format("submitted job {}\n", job));
        print_once(fmt::format("  it writes     {}\n", printable(log_of(plan, job))));
        if (i == 0 && !start.empty())
            print_once(fmt::format("  it may start  {}, as SLURM expects now\n", start));
    }
}

std::string dry_run_text(const SubmitPlan& plan,
                         const SubmitOptions& options,
                         const std::optional<TrainSettings>& settings,
                         const SlurmFacts& facts,
                         const std::string& start) {
    std::string text;
    if (settings) {
        text += job_map_text(plan.request, facts, settings->threads);
        text += estimate_text(
            estimate_job(*settings, plan.request.parts.front(), options.parameters), *settings);
    }
    if (options.chain > 1)
        text += fmt::format("# {} such jobs, one after the other\n", options.chain);
    if (!start.empty()) text += fmt::format("# SLURM would start it at {}\n", start);
    return text + "# nothing was submitted\n";
}

int submit(const SubmitOptions& options, const Invocation& call) {
    const fs::path root = find_root(Environment());
    const SubmitPlan plan = plan_submit(options, call, root);
    check_output_folders(plan.script);
    const fs::path data = data_folder(options, plan, root);
    const auto settings =
        trains(plan.script) ? std::optional(train_settings(data, plan)) : std::nullopt;
    const std::string script = render_script(plan.script, plan.settings);
    const SlurmFacts facts = query_slurm(plan.request, plan.launcher);
    const auto notes = check_request(plan.request, facts);
    check_launcher(plan, facts);
    if (settings) check_ranks_will_run(options, plan.request, *settings);
    say_notes(plan, notes);
    if (settings && options.data.empty()) say_missing_data(settings->data);
    if (options.dry_run)
        print_once(
            script +
            dry_run_text(
                plan, options, settings, facts, expected_start(script, Submission::rehearsed)));
    else
        submit_all(plan, script, options.chain);
    return 0;
}

}  // namespace

Command submit_command() {
    const auto options = std::make_shared<SubmitOptions>();
    return {
        .name = "submit",
        .summary = "submit a job to SLURM, or explain why it could never start",
        .usage = "lockstep submit [options] [-- options of train]",
        .text =
            "Fills in a template of slurm/ and passes it to sbatch. First it asks SLURM for its\n"
            "resources, and refuses a job that would wait for ever, with the nearest request\n"
            "that would not. Words after -- replace the template's settings. See docs/slurm.md.\n"
            "  lockstep submit -N 2 --ntasks-per-node 4 -t 4:00:00 --data D -- --epochs 20\n"
            "  lockstep submit -p gpu,debug --dry-run\n"
            "  lockstep submit --array 1-5 -- --seed %a\n",
        .table = submit_option_table(*options),
        .takes_job_words = true,
        .is_about_lockstep = true,
        .run = [options](const Invocation& call) { return submit(*options, call); }};
}

}  // namespace lockstep
