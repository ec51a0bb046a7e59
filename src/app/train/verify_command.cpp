// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/launch/supervise.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/step_budget.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "train/short_training.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double longest_s = 24 * 3600;

// What each training is told by the command itself, or does without.
constexpr std::string_view own_options =
    "checkpoint-every config dry-run early-stop evaluate-every keep-best max-steps np "
    "oversubscribe run steps test-data virtual-ranks";

constexpr const char* verify_help =
    R"(Runs the same training under mpirun on each of the given numbers of ranks, for a few steps, and
compares the hashes of all parameters. Equal hashes mean equal bits. V is --virtual-ranks,
or the largest of --ranks, rounded up to a power of two.

With --plain, gradients are summed as in ordinary data-parallel training. Then at least one hash
must differ; otherwise the comparison could not detect a difference.

Examples:
  lockstep verify --data D/train --ranks 1,2,4 --steps 50
  lockstep verify --data D/train --ranks 1,2,4 --steps 50 --model cnn-bn
  lockstep verify --data D/train --ranks 1,2,4 --steps 50 --plain
)";

struct VerifyOptions {
    TrainOptions train;
    std::string ranks = "1,2,4";
    std::int64_t steps = 50;
};

std::vector<int> parse_ranks(const std::string& list) {
    std::vector<int> ranks;
    for (const std::string& item : split(list, ',')) {
        const auto number = parse_integer(item);
        check(number && *number >= 1 && *number <= 1024,
              "E103",
              fmt::format("--ranks is '{}'", list),
              "it must be numbers of ranks with commas between",
              "for example --ranks 1,2,4");
        ranks.push_back(static_cast<int>(*number));
    }
    check_fits(std::set(ranks.begin(), ranks.end()).size() > 1,
               fmt::format("--ranks is '{}'", list),
               "a comparison needs at least two numbers of ranks",
               "for example --ranks 1,2,4");
    return ranks;
}

// A model of the user's may be what differs.
Error different(const std::string& model) {
    if (find_built_in(model) == nullptr)
        return Error(
            "E707", "the parameters differ between numbers of ranks", stateful_why, stateful_fix);
    return Error("E703",
                 "the parameters differ between numbers of ranks",
                 "this breaks Lockstep's promise",
                 "please report the table above and the settings");
}

int judge(const std::vector<std::string>& hashes,
          const TrainSettings& settings,
          int virtual_ranks) {
    const bool plain = settings.plain_summation;
    const bool equal = std::ranges::adjacent_find(hashes, std::not_equal_to<>()) == hashes.end();
    if (equal != plain) {
        print_once(plain ? "different, as ordinary summation is expected to be\n"
                         : fmt::format("equal: the same bits for every number of ranks (V = {})\n",
                                       virtual_ranks));
        return 0;
    }
    throw plain ? Error("E704",
                        "ordinary summation gave equal bits",
                        "this comparison could not detect a difference",
                        "compare more ranks: for example --ranks 1,2,4")
                : different(settings.model.name);
}

/// Without mpirun's boxes after an error, which say that a rank ended.
std::string own_words(const std::string& output) {
    const std::size_t box = output.find("\n-----", output.find(": error E"));
    return box == output.npos ? output : output.substr(0, box + 1);
}

/// Trains and returns the hash of the parameters. Errors: also E705, after the training's output.
std::string train_shortly(const ShortTraining& training, const std::function<void()>& meanwhile) {
    const TrainingEnd end = run_training(training, meanwhile);
    check(end.exit_code == 0, [&] {
        print_once(own_words(end.output));
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

/// The steps of the first start of `run`, by the first rank's file of steps, which grows by many at
/// once.
std::int64_t steps_done(const fs::path& run) {
    try {
        const auto steps = read_step_budgets(step_budgets_path(RunPaths{run}.logs(1), 0));
        return steps.empty() ? 0 : steps.back().step;
    } catch (const Error&) {
        return 0;  // not whole yet
    }
}

int run(VerifyOptions& options, const Invocation& call) {
    check_no_launcher(call, "verify");
    const auto ranks = parse_ranks(options.ranks);
    const TrainSettings& settings = options.train.settings;
    const int virtual_ranks = settings.virtual_ranks > 0
                                  ? settings.virtual_ranks
                                  : static_cast<int>(std::bit_ceil(
                                        static_cast<unsigned>(*std::ranges::max_element(ranks))));
    check_given(!settings.data.empty(), "data", "give a data set with --data DIR");
    check_rank_program(rank_program(call.process.program));
    const RemovedFolder scratch = make_scratch_folder(
        fs::temp_directory_path(), "verify", "set TMPDIR to a folder that can be written");
    auto words = words_of_train(call, {"ranks"});
    words.insert(words.end(), {"--max-steps", std::to_string(options.steps)});
    words.insert(words.end(), {"--virtual-ranks", std::to_string(virtual_ranks)});
    std::vector<std::string> hashes;
    print_once("ranks  parameters\n");
    const SignalGuard signals;
    const auto steps = static_cast<std::uint64_t>(options.steps);
    Progress progress("training", steps * ranks.size());
    for (const int np : ranks) {
        const fs::path folder = scratch.path() / fmt::format("np{}", np);
        const auto look = [&] {
            give_up_if_asked("the comparison");
            if (!progress.is_due()) return;
            progress.update(steps * hashes.size() + static_cast<std::uint64_t>(steps_done(folder)),
                            fmt::format("training {} steps on {} rank(s)", steps, np));
        };
        hashes.push_back(train_shortly({words, np, folder}, look));
        print_once(fmt::format("{:5}  {}\n", np, hashes.back()));
    }
    return judge(hashes, settings, virtual_ranks);
}

}  // namespace

std::vector<std::string> words_of_train(const Invocation& call,
                                        const std::vector<std::string>& left_out) {
    const std::vector<std::string> own = split(own_options, ' ');
    std::vector<std::string> words = {"train", "--checkpoint-every", "never"};
    for (const ResolvedOption& option : call.options) {
        const bool is_left_out = std::ranges::count(left_out, option.name) > 0 ||
                                 std::ranges::count(own, option.name) > 0;
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
    const ProcessResult result =
        run_process(mpirun_line({training.np, true, words, folder.path(), this_executable(), {}},
                                Environment()),
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

void give_up_if_asked(const std::string& doing) {
    check(stop_requested() == StopRequest::none,
          "E242",
          fmt::format("{} was interrupted", doing),
          "a signal ended it; its trainings are ended and its files removed",
          "give the same command to begin again");
}

Command verify_command() {
    auto options = std::make_shared<VerifyOptions>();
    OptionTable table = {
        {"Comparison",
         {text_option("ranks LIST", options->ranks, "numbers of ranks to compare"),
          whole_option("steps", options->steps, {1, 1'000'000}, "steps of each training")}}};
    std::ranges::move(train_option_table(options->train), std::back_inserter(table));
    return {
        .name = "verify",
        .summary = "prove that any number of ranks gives the same bits",
        .usage =
            "lockstep verify --data DIR [--ranks 1,2,4] [--steps K] [--plain] [options of train]",
        .text = verify_help,
        .table = std::move(table),
        .run = [options](const Invocation& call) { return run(*options, call); }};
}

}  // namespace lockstep
