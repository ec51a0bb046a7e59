// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/launch/launch_folder.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "command.hpp"
#include "scratch_folder.hpp"
#include "train/train_options.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr const char* verify_help =
    R"(Runs the same training under mpirun on each of the given numbers of ranks, for a few steps, and
compares the hashes of all parameters. Equal hashes mean equal bits. V is that of --virtual-ranks,
or the largest of --ranks, rounded up to a power of two.

With --plain, gradients are summed as ranks come, as ordinary data-parallel training does: at
least one hash must differ, or else the comparison has no power.

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
        check(number && *number >= 1 && *number <= 1024, [&] {
            return Error("E103",
                         fmt::format("--ranks is '{}'", list),
                         "it must be numbers of ranks with commas between",
                         "for example --ranks 1,2,4");
        });
        ranks.push_back(static_cast<int>(*number));
    }
    check(std::set(ranks.begin(), ranks.end()).size() > 1, [&] {
        return Error("E106",
                     fmt::format("--ranks is '{}'", list),
                     "one number of ranks has nothing to be compared with",
                     "for example --ranks 1,2,4");
    });
    return ranks;
}

// The words of `train` that reproduce what was given to `verify`.
std::vector<std::string> train_words(const Invocation& call) {
    const std::vector<std::string> own = {"ranks",
                                          "steps",
                                          "np",
                                          "run",
                                          "max-steps",
                                          "virtual-ranks",
                                          "checkpoint-every",
                                          "test-data",
                                          "oversubscribe",
                                          "dry-run",
                                          "config",
                                          "evaluate-every",
                                          "keep-best",
                                          "early-stop"};
    std::vector<std::string> words = {"train"};
    for (const ResolvedOption& option : call.options) {
        const bool is_own = std::ranges::find(own, option.name) != own.end();
        const bool is_flag = option.kind == OptionKind::flag;
        const bool is_unset = is_flag && (option.text == "false" || option.text == "0");
        if (option.origin == "default" || is_own || is_unset) continue;
        words.push_back("--" + option.name);
        if (!is_flag) words.push_back(option.text);
    }
    return words;
}

std::string hash_of_run(const fs::path& run) {
    const auto checkpoints = list_checkpoints(run / "ckpt");
    expect(!checkpoints.empty(), "a finished run has a checkpoint");
    return read_checkpoint_state(checkpoints.back().path).parameter_hash;
}

std::string train_once(const VerifyOptions& options,
                       const fs::path& program,
                       const std::vector<std::string>& common,
                       int np,
                       int virtual_ranks,
                       const fs::path& run) {
    std::vector<std::string> words = common;
    for (const std::string& word : {std::string("--run"),
                                    run.string(),
                                    std::string("--max-steps"),
                                    fmt::format("{}", options.steps),
                                    std::string("--virtual-ranks"),
                                    fmt::format("{}", virtual_ranks),
                                    std::string("--checkpoint-every"),
                                    std::string("never")})
        words.push_back(word);
    const LaunchFolder folder(np);
    const auto result =
        run_process(mpirun_line({np, true, words, folder.path(), program, {}}, Environment()));
    check(result.exit_code == 0, [&] {
        print_once(result.output);
        return Error(
            "E705",
            fmt::format("training on {} rank(s) ended with exit code {}", np, result.exit_code),
            "its own message is above",
            "mend that first");
    });
    return hash_of_run(run);
}

int judge(const std::vector<std::string>& hashes, bool plain, int virtual_ranks) {
    const bool equal = std::ranges::adjacent_find(hashes, std::not_equal_to<>()) == hashes.end();
    if (equal != plain) {
        print_once(plain ? "different, as ordinary summation is expected to be\n"
                         : fmt::format("equal: the same bits for every number of ranks (V = {})\n",
                                       virtual_ranks));
        return 0;
    }
    throw plain ? Error("E704",
                        "ordinary summation gave equal bits",
                        "this comparison has no power: it would not notice a difference",
                        "use more --steps or another --seed")
                : Error("E703",
                        "the parameters differ between numbers of ranks",
                        "this breaks Lockstep's promise",
                        "please report the table above and the settings");
}

int run(VerifyOptions& options, const Invocation& call) {
    const auto ranks = parse_ranks(options.ranks);
    const TrainSettings& settings = options.train.settings;
    const int virtual_ranks = settings.virtual_ranks > 0
                                  ? settings.virtual_ranks
                                  : static_cast<int>(std::bit_ceil(
                                        static_cast<unsigned>(*std::ranges::max_element(ranks))));
    check(!settings.data.empty(),
          [] { return Error("E105", "--data is missing", "", "give a data set with --data DIR"); });
    const auto program = rank_program(call.process.program);
    check_rank_program(program);
    const ScratchFolder scratch(
        fs::temp_directory_path(), "verify", "set TMPDIR to a folder that can be written");
    const auto words = train_words(call);
    std::vector<std::string> hashes;
    print_once("ranks  parameters\n");
    for (const int np : ranks) {
        show_live(fmt::format("training {} steps on {} rank(s) ...", options.steps, np));
        const fs::path folder = scratch.path() / fmt::format("np{}", np);
        hashes.push_back(train_once(options, program, words, np, virtual_ranks, folder));
        print_once(fmt::format("{:5}  {}\n", np, hashes.back()));
    }
    return judge(hashes, settings.plain_summation, virtual_ranks);
}

}  // namespace

Command verify_command() {
    auto options = std::make_shared<VerifyOptions>();
    OptionTable table = {
        {"Comparison",
         {text_option("ranks", "LIST", options->ranks, "numbers of ranks to compare"),
          whole_option("steps", options->steps, 1, 1'000'000, "steps of each training")}}};
    for (OptionSection& section : train_option_table(options->train))
        table.push_back(std::move(section));
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
