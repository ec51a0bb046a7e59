// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_figures.hpp"

#include "drill/drill.hpp"

#include <algorithm>
#include <csignal>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// Thrown to end a training that takes too long.
struct TooLong {};

constexpr std::int64_t few_steps = 40;
constexpr int saves = 10;  // saves of a training: the first comes after a tenth of it

pid_t parent_of(pid_t pid) {
    const std::string stat = text_of(fmt::format("/proc/{}/stat", pid));
    const auto name_end = stat.rfind(')');
    if (name_end == stat.npos || name_end + 4 >= stat.size()) return -1;
    return static_cast<pid_t>(std::strtol(stat.c_str() + name_end + 4, nullptr, 10));
}

// Returns the folder of Open MPI's files of this launch: the launcher keeps a lock there open.
fs::path launch_folder_of(pid_t launcher) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", launcher), none)) {
        const fs::path target = fs::read_symlink(entry.path(), none);
        if (target.parent_path().filename().string().starts_with("lockstep-launch-"))
            return target.parent_path();
    }
    return {};
}

std::string last_line(const std::string& text) {
    auto lines = split(text, '\n');
    std::erase(lines, "");
    return lines.empty() ? "" : lines.back();
}

// Enough for a fault to come while it trains, few enough on a machine that is slow or busy.
std::int64_t steps_for(double step_s) {
    constexpr double training_s = 2, least = 60, most = 20'000;
    return static_cast<std::int64_t>(std::clamp(training_s / std::max(step_s, 1e-6), least, most));
}

void check_trained(const Struck& trained) {
    check(trained.exit_code == 0, [&] {
        print_once(trained.output);
        return Error("E705",
                     trained.exit_code < 0
                         ? std::string("the training without a fault did not end in time")
                         : fmt::format("the training without a fault ended with exit code {}",
                                       trained.exit_code),
                     "its output is above",
                     "fix that first")
            .exiting_as(trained.exit_code);
    });
}

std::string hash_of_newest(const fs::path& run) {
    const auto checkpoints = list_checkpoints(RunPaths{run}.checkpoints());
    return checkpoints.empty() ? "no checkpoint"
                               : read_checkpoint_state(checkpoints.back().path).parameter_hash;
}

/// The living processes on this host with `word` on their command line, except this.
std::vector<pid_t> processes_naming(const std::string& word) {
    std::vector<pid_t> found;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator("/proc", none)) {
        const auto pid = parse_integer(entry.path().filename().string());
        const std::string words = '\0' + text_of(entry.path() / "cmdline");
        if (pid && *pid != ::getpid() && words.find('\0' + word + '\0') != words.npos)
            found.push_back(static_cast<pid_t>(*pid));
    }
    return found;
}

// A process that ends has no command line any more before it gives its files, and locks, back.
bool is_held(const fs::path& run) {
    try {
        return status_of_run(run, StatusDepth::now).is_alive();
    } catch (const Error&) {
        return false;
    }
}

/// Runs `lockstep WORDS`; -1 if it takes too long. `meanwhile` is called ten times a second.
Struck run_lockstep(const std::vector<std::string>& words,
                    const std::function<void()>& meanwhile,
                    double limit_s) {
    std::vector<std::string> line = {this_executable()};
    line.insert(line.end(), words.begin(), words.end());
    const double deadline_s = now_s() + limit_s;
    const auto look = [&] {
        if (now_s() > deadline_s) throw TooLong();
        if (meanwhile) meanwhile();
    };
    try {
        const ProcessResult result = run_process(line, {}, 2 * limit_s, look);
        return {.exit_code = result.exit_code, .output = result.output};
    } catch (const TooLong&) {
        return {};
    }
}

std::optional<LiveRun> live_run(const fs::path& run) {
    if (list_checkpoints(RunPaths{run}.checkpoints()).empty()) return {};
    LiveRun live{.family = processes_naming(run.string())};
    try {
        live.traces = read_rank_traces(RunPaths{run}.flight(read_incarnation(run)));
    } catch (const Error&) {
        return {};  // not all are there yet
    }
    for (const pid_t pid : live.family)
        if (parent_of(pid) == ::getpid()) live.launcher = pid;
    return live;
}

std::vector<std::string> words_for(const DrillBed& bed, const Attack& attack) {
    const std::int64_t period = std::max<std::int64_t>(bed.settings.steps / saves, 1);
    auto words = split(
        "train --oversubscribe --model mlp --batch 24 --virtual-ranks 8 --data-mode stream", ' ');
    if (attack.hosts.empty())
        words.insert(words.end(), {"--np", std::to_string(bed.settings.ranks)});
    else
        words.insert(words.end(), {"--hosts", attack.hosts});
    words.insert(words.end(), {"--data", attack.data.string()});
    words.insert(words.end(), {"--max-steps", std::to_string(bed.settings.steps)});
    words.insert(words.end(), {"--checkpoint-every", fmt::format("{}steps", period)});
    words.insert(words.end(), {"--run", bed.run(attack.name).string()});
    words.insert(words.end(), attack.more.begin(), attack.more.end());
    return words;
}

}  // namespace

bool send_to(const LiveRun& live, std::int64_t pid, int signal) {
    const auto target = static_cast<pid_t>(pid);
    if (std::ranges::find(live.family, target) == live.family.end()) return false;
    return ::kill(target, signal) == 0;
}

void DrillBed::prepare() {
    const Struck made = run_lockstep(
        {"data", "synth", "--samples", "600", "--size", "16", "--out", data().string()}, {}, 300);
    check_trained(made);
    if (settings.steps == 0) {
        settings.steps = few_steps;
        check_trained(train({.name = "first-steps", .data = data()}));
        settings.steps = steps_for(mean_step(read_run_figures(run("first-steps"))).wall_s());
    }
    const Attack undisturbed{.name = "undisturbed", .data = data()};
    check_trained(train(undisturbed));
    settings.parameters = hash_of_newest(run(undisturbed.name));
}

Struck DrillBed::train(const Attack& attack) {
    std::string done;
    const auto meanwhile = [&] {
        look(attack.name);
        if (!attack.strike || !done.empty()) return;
        const auto live = live_run(run(attack.name));
        if (!live) return;
        launch_folder = launch_folder_of(live->launcher);
        done = attack.strike(*live);
    };
    try {
        Struck struck = run_lockstep(words_for(*this, attack), meanwhile, attack.limit_s);
        struck.done = done;
        return struck;
    } catch (...) {
        wait_until_gone(attack);  // a rank would make its folder again after it was removed
        throw;
    }
}

Expectation DrillBed::expect_same_parameters(const Attack& attack) {
    Attack again = attack;
    again.strike = {};
    const Struck struck = train(again);
    const std::string what = "the same command again";
    const std::string expected = "the parameters of the run without a fault";
    if (struck.exit_code != 0)
        return {what,
                expected,
                fmt::format("exit code {}: {}", struck.exit_code, last_line(struck.output)),
                false};
    const std::string hash = hash_of_newest(run(attack.name));
    const bool is_same = hash == settings.parameters;
    return {what, expected, is_same ? expected : "parameters " + hash, is_same};
}

void DrillBed::wait_until_gone(const Attack& attack) const {
    constexpr double patience_s = 20;
    const std::string word = run(attack.name).string();
    const double deadline_s = now_s() + patience_s;
    const auto is_at_work = [&] { return !processes_naming(word).empty() || is_held(word); };
    while (is_at_work() && now_s() < deadline_s) ::usleep(50'000);
}

Expectation DrillBed::expect_nothing_left(const Attack& attack) const {
    const std::string word = run(attack.name).string();
    wait_until_gone(attack);
    std::vector<std::string> left;
    for (const pid_t pid : processes_naming(word)) {
        left.push_back(fmt::format("process {}", pid));
        ::kill(pid, SIGKILL);
    }
    if (!launch_folder.empty() && fs::exists(status_of(launch_folder)))
        left.push_back(launch_folder.string());
    if (left.empty()) left.emplace_back("nothing");
    return expect_text("left behind", "nothing", fmt::format("{}", fmt::join(left, ", ")));
}

}  // namespace lockstep
