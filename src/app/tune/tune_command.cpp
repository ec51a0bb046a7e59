// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/launch/mpirun.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "tune/trials.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr const char* tune_help =
    R"(Tries settings of 'train' that change only its speed, on this machine, with your model and data.
Short trainings take turns (A B A B), so that a disturbance affects all of them. A value is chosen if
it is faster beyond the noise. At the end the chosen settings are compared with the original ones.
Options of train that you give are not changed.

All trainings must give the same parameters, which proves that no bit changes. Threads decide
bits: ranks x threads are tried and reported, but they are only chosen with --allow-bits.

Use the file that it writes with 'lockstep train --config FILE'.

Examples:
  lockstep tune D/train --model cnn
  lockstep tune D/train --np 4 --batch 256 --minutes 20 --knobs transport,io-threads
  lockstep train --config tuned.toml --data D/train --model cnn --run runs/a
)";

struct TuneOptions {
    TrainOptions train;
    double minutes = 5;
    int rounds = 3;
    std::int64_t steps = 0;          ///< steps of each training; 0: by `minutes`
    std::vector<std::string> knobs;  ///< empty: all
    bool allow_bits = false, json = false;
    fs::path out = "tuned.toml";
};

// In their own order: what decides bits comes last.
std::vector<std::string> wanted_knobs(const TuneOptions& options) {
    auto all = knob_names();
    std::erase_if(all, [&](const std::string& name) {
        return !options.knobs.empty() && std::ranges::count(options.knobs, name) == 0;
    });
    return all;
}

void check_tune(TuneOptions& options, const Invocation& call) {
    fs::path& data = options.train.settings.data;
    if (!call.positionals.empty()) {
        check_fits(
            data.empty(), "DATA and --data are both given", "they mean the same", "drop one");
        data = call.positionals[0];
    }
    check(!data.empty(), [] {
        return Error("E105", "the data set is missing", "", "for example: lockstep tune D/train");
    });
    check(fs::exists(data), [&] {
        return Error(
            "E201", fmt::format("'{}' does not exist", data.string()), "", "give a data set");
    });
    check_fits(options.train.hosts.empty(),
               "--hosts is given",
               "tune measures on this machine only",
               "drop it, and start tune on one of the nodes");
    check_output_place(options.out);
    check(!fs::exists(options.out),
          "E407",
          fmt::format("'{}' exists", options.out.string()),
          "nothing is overwritten",
          "give another name with --out, or remove it");
}

std::vector<std::string> common_words(const TuneOptions& options, const Invocation& call) {
    auto words = words_of_train(
        call, split("minutes rounds knobs allow-bits out json data test-field deadline", ' '));
    words.insert(words.end(), {"--data", options.train.settings.data.string(), "--oversubscribe"});
    return words;
}

KnobFacts facts_of(const TuneOptions& options, const Invocation& call) {
    KnobFacts facts{
        .cores = std::max<int>(1, static_cast<int>(read_node_facts().allowed_cpus.size())),
        .np = std::max(options.train.np, 1),
        .threads = options.train.settings.threads};
    for (const ResolvedOption& option : call.options)
        if (option.origin != "default") facts.given.insert(option.name);
    return facts;
}

/// The search, knob by knob.
class Search {
  public:
    Search(const TuneOptions& options, KnobFacts facts, Trials& trials)
        : options_(options), facts_(std::move(facts)), trials_(trials) {}

    Tuning run() {
        const auto names = wanted_knobs(options_);
        tuning_.rounds = options_.rounds;
        plan(rehearse(), names);
        for (const std::string& name : names) try_one(name);
        check_fits(!tuning_.knobs.empty(),
                   "nothing is left to try",
                   fmt::format("{}", fmt::join(tuning_.left, "; ")),
                   "give fewer options of train, or more --knobs");
        if (tuning_.chosen != original_) confirm();
        tuning_.parameters = common_parameters(tuning_.knobs, first_);
        tuning_.trainings = trials_.count;
        return std::move(tuning_);
    }

  private:
    /// A few steps, for how long they take and for V, which stays for all.
    TrialResult rehearse() {
        constexpr std::int64_t few = 20;
        original_ = {{"np", std::to_string(facts_.np)}};
        tuning_.chosen = original_;
        if (const int given = options_.train.settings.virtual_ranks; given > 0)
            trials_.fixed["virtual-ranks"] = std::to_string(given);
        const auto first = trials_.train(original_, few);
        check(first.has_value(), [&] { return trials_.failure(); });
        trials_.fixed["virtual-ranks"] = std::to_string(first->virtual_ranks);
        facts_.virtual_ranks = tuning_.virtual_ranks = first->virtual_ranks;
        return *first;
    }

    /// So many steps that all trainings together take the time that there is.
    void plan(const TrialResult& rehearsed, const std::vector<std::string>& names) {
        tuning_.steps = options_.steps;
        if (options_.steps > 0) return;
        constexpr double longest_trial_s = 60;
        constexpr std::int64_t least = 10;
        const Variant most = {{"np", std::to_string(facts_.cores)}};
        std::size_t trainings = 2 * static_cast<std::size_t>(turns());
        for (const std::string& name : names)
            trainings += static_cast<std::size_t>(options_.rounds) *
                         knob_of(name, facts_, most).variants.size();
        const double start_s =
            std::max(rehearsed.wall_s - 20 * rehearsed.step_s, 0.1 * rehearsed.wall_s);
        const double each_s = 60 * options_.minutes / static_cast<double>(trainings);
        const double steps = std::min(each_s - start_s, longest_trial_s) / rehearsed.step_s;
        check(steps >= least, [&] {
            const double need_s =
                static_cast<double>(trainings) * (start_s + least * rehearsed.step_s);
            return Error(
                "E742",
                fmt::format(
                    "--minutes {:g} is too little for {} trainings", options_.minutes, trainings),
                fmt::format("each takes {} to start and {} for {} steps",
                            duration_text(start_s),
                            duration_text(least * rehearsed.step_s),
                            least),
                fmt::format("use --minutes {:.1f}, or fewer --knobs or --rounds",
                            std::ceil(need_s / 6) / 10));
        });
        tuning_.steps = static_cast<std::int64_t>(std::min(steps, 1e6));
    }

    void try_one(const std::string& name) {
        const Knob knob = knob_of(name, facts_, tuning_.chosen);
        if (knob.variants.size() < 2) {
            tuning_.left.push_back(
                name + (facts_.given.contains(name) ? ": it is given" : ": it has one value here"));
            return;
        }
        KnobResult result = try_knob(trials_, knob, tuning_.steps, options_.rounds);
        if (first_.empty()) first_ = result.parameters[0];
        if (result.quickest > 0 && (!knob.decides_bits || options_.allow_bits)) {
            tuning_.chosen = knob.variants[result.quickest];
            tuning_.changes_bits = tuning_.changes_bits || knob.decides_bits;
        }
        if (!options_.json) print_once(knob_text(result));
        tuning_.knobs.push_back(std::move(result));
    }

    int turns() const { return options_.rounds + 2; }

    /// The best of several values looks better than it is, so it is measured again.
    void confirm() {
        const Knob both{.name = "confirmed", .variants = {original_, tuning_.chosen}};
        const KnobResult result = try_knob(trials_, both, tuning_.steps, turns());
        check(result.why_not[1].empty(), [&] {
            return Error(
                "E705", "the training fails with the chosen settings together", result.why_not[1]);
        });
        tuning_.turns = turns();
        tuning_.confirmed = speed_up(result.step_s[0], result.step_s[1]);
        if (!tuning_.changes_bits) tuning_.knobs.push_back(result);
    }

    const TuneOptions& options_;
    KnobFacts facts_;
    Trials& trials_;
    Variant original_;
    std::string first_;  ///< parameters of the first training that counts
    Tuning tuning_;
};

int run(TuneOptions& options, const Invocation& call) {
    check_no_launcher(call, "tune");
    check_tune(options, call);
    check_rank_program(rank_program(call.process.program));
    const RemovedFolder scratch = make_scratch_folder(
        fs::temp_directory_path(), "tune", "set TMPDIR to a folder that can be written");
    const SignalGuard signals;
    const double begin_s = now_s();
    const double budget_s = options.steps > 0 ? 0 : std::ceil(60 * options.minutes);
    std::optional<Progress> progress(std::in_place,
                                     "tune",
                                     static_cast<std::uint64_t>(budget_s),
                                     ProgressUnit::count,
                                     progress_sink(options.json));
    Trials trials{scratch.path(), common_words(options, call), [&](const std::string& what) {
                      give_up_if_asked("tuning");
                      progress->update(static_cast<std::uint64_t>(now_s() - begin_s),
                                       "trying " + what);
                  }};
    const Tuning tuning = Search(options, facts_of(options, call), trials).run();
    progress.reset();
    write_named_file(options.out, config_of(tuning, utc_text(unix_time_s())));
    if (options.json) {
        print_once(tuning_json(tuning).dump() + "\n");
        return 0;
    }
    print_once(verdict_text(tuning));
    print_once(fmt::format("written: {}\n", options.out.string()));
    return 0;
}

}  // namespace

Command tune_command() {
    auto options = std::make_shared<TuneOptions>();
    OptionTable table = {
        {"Tuning",
         {real_option("minutes",
                      options->minutes,
                      {0.01, 10'000},
                      "approximate time of the whole command, in minutes"),
          whole_option("steps",
                       options->steps,
                       {0, 1'000'000},
                       "steps of each training; 0: as many as --minutes allows"),
          whole_option(
              "rounds", options->rounds, {2, 100}, "trainings of each value; values take turns"),
          some_option("knobs",
                      options->knobs,
                      knob_names(),
                      fmt::format("settings to try; unset: {}", fmt::join(knob_names(), ", "))),
          flag_option("allow-bits",
                      options->allow_bits,
                      "also choose settings that change the bits of the model: threads"),
          path_option("out FILE", options->out, "TOML file for train --config")}},
        json_group(options->json)};
    std::ranges::move(train_option_table(options->train), std::back_inserter(table));
    return {.name = "tune",
            .summary = "find settings that make a training faster on this machine",
            .usage = "lockstep tune DATA [--minutes M] [--out FILE] [options of train]",
            .text = tune_help,
            .table = std::move(table),
            .optional_positionals = 1,
            .run = [options](const Invocation& call) { return run(*options, call); }};
}

}  // namespace lockstep
