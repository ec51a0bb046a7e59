// SPDX-License-Identifier: Apache-2.0
#include "train/short_training.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/launch/supervise.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/step_budget.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double longest_s = 24 * 3600;

// What each training is told by the command itself, or does without.
constexpr std::array own_options{"checkpoint-every",
                                 "config",
                                 "dry-run",
                                 "early-stop",
                                 "evaluate-every",
                                 "keep-best",
                                 "max-steps",
                                 "np",
                                 "oversubscribe",
                                 "run",
                                 "steps",
                                 "test-data",
                                 "virtual-ranks"};

}  // namespace

std::vector<std::string> words_of_train(const Invocation& call,
                                        const std::vector<std::string>& left_out) {
    std::vector<std::string> words = {"train", "--checkpoint-every", "never"};
    for (const ResolvedOption& option : call.options) {
        const bool is_left_out = std::ranges::count(left_out, option.name) > 0 ||
                                 std::ranges::count(own_options, option.name) > 0;
        const bool is_flag = option.kind == OptionKind::flag;
        const bool is_unset = is_flag && (option.text == "false" || option.text == "0");
        if (option.origin == "default" || is_left_out || is_unset) continue;
        words.push_back("--" + option.name);
        if (!is_flag) words.push_back(option.text);
    }
    return words;
}

TrainingEnd run_training(const ShortTraining& training, const std::function<void()>& meanwhile) {
    std::vector<std::string> words = training.words;
    words.insert(words.end(), {"--run", training.run.string()});
    const LaunchFolder folder(training.np);
    const ProcessResult result = run_process(
        mpirun_line({training.np, true, words, folder.path(), training.program, {}}, Environment()),
        {},
        longest_s,
        meanwhile);
    if (result.exit_code != 0) return {.exit_code = result.exit_code, .output = result.output};
    const auto checkpoints = list_checkpoints(RunPaths{training.run}.checkpoints());
    expect(!checkpoints.empty(), "a finished run has a checkpoint");
    const CheckpointState state = read_checkpoint_state(checkpoints.back().path);
    return {.output = result.output,
            .parameters = state.parameter_hash,
            .virtual_ranks = state.virtual_ranks};
}

std::string train_shortly(const ShortTraining& training, const std::function<void()>& meanwhile) {
    const TrainingEnd end = run_training(training, meanwhile);
    check(end.exit_code == 0, [&] {
        print_once(end.output);
        return Error("E705",
                     fmt::format("training on {} rank(s) ended with exit code {}",
                                 training.np,
                                 end.exit_code),
                     "its own message is above",
                     "fix that first")
            .exiting_as(end.exit_code);
    });
    return end.parameters;
}

std::int64_t steps_done(const fs::path& run) {
    try {
        const auto steps = read_step_budgets(step_budgets_path(RunPaths{run}.logs(1), 0));
        return steps.empty() ? 0 : steps.back().step;
    } catch (const Error&) {
        return 0;  // not whole yet
    }
}

void give_up_if_asked(const std::string& doing) {
    check(stop_requested() == StopRequest::none, [&] {
        return Error("E242",
                     fmt::format("{} was interrupted", doing),
                     "a signal ended it; its trainings are ended and its files removed",
                     "give the same command to begin again");
    });
}

}  // namespace lockstep
