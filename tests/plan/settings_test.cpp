// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/settings.hpp"

#include "lockstep/core/split.hpp"
#include "lockstep/plan/contract.hpp"

#include "support/unit.hpp"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::set<std::string> names_of(const std::vector<NamedValue>& values) {
    std::set<std::string> names;
    for (const NamedValue& value : values) names.insert(value.name);
    return names;
}

TEST(SettingTable, HasEachNameOnceAndReadsWhatItWrites) {
    TrainSettings settings;
    const auto values = current_values(setting_table(settings));
    EXPECT_EQ(names_of(values).size(), values.size());
    for (const OptionSection& section : setting_table(settings))
        for (const Option& option : section.options) {
            if (option.default_value.empty()) continue;
            option.assign({option.default_value, "test"});
            EXPECT_EQ(config_text(option.current()), option.default_value) << option.name;
        }
}

TEST(SetSetting, TakesNamesAndWordsOfTheTableOnlyAndShareOfASplitAboveNoneAndBelowAll) {
    TrainSettings settings;
    set_setting(settings, "schedule", "cosine");
    set_setting(settings, "isa", "avx2");
    EXPECT_EQ(settings.schedule.kind, ScheduleKind::cosine);
    EXPECT_EQ(settings.instruction_set, InstructionSet::avx2);
    EXPECT_EQ(caught_text([&] { set_setting(settings, "momentm", "0.5"); }),
              "lockstep: error E101: there is no setting 'momentm'\n"
              "  fix: did you mean 'momentum'?");
    EXPECT_EQ(caught_text([&] { set_setting(settings, "schedule", "cosin"); }),
              "lockstep: error E103: --schedule is 'cosin' (from program)\n"
              "  why: it must be one of constant, step, cosine, linear, polynomial, one-cycle\n"
              "  fix: did you mean 'cosine'?");
    EXPECT_EQ(caught_text([&] { set_setting(settings, "ema", "1"); }),
              "lockstep: error E102: --ema is '1' (from program)\n"
              "  why: it must be 0 to 0.9999999\n"
              "  fix: give a number in that range");
    EXPECT_FALSE(has_test_data(settings));
    for (const char* share : {"0.9", "0.125", "1e-3"}) {
        set_setting(settings, "split", share);
        EXPECT_TRUE(has_test_data(settings));
        EXPECT_GT(settings.split, 0);
        EXPECT_LT(settings.split, 1);
    }
    set_setting(settings, "split", "none");
    EXPECT_EQ(settings.split, 0);
    for (const char* share : {"0", "1", "-0.5", "1.5", "nan", "most", ""})
        EXPECT_THAT(caught_text([&] { set_setting(settings, "split", share); }),
                    HasSubstr("above 0 and below 1"))
            << share;
}

TEST(CheckSettings, FindsWhatAProgramSetsOutOfItsRange) {
    TrainSettings settings;
    EXPECT_EQ(caught_code([&] { check_settings(settings); }), "");
    settings.data_memory = (1u << 20) + 1;
    settings.comm_timeout_s = 0.5;
    EXPECT_EQ(caught_code([&] { check_settings(settings); }), "");
    settings.keep.last = 0;
    EXPECT_EQ(caught_text([&] { check_settings(settings); }),
              "lockstep: error E103: --keep is 'last=0' (from program)\n"
              "  why: 'last=0' is none of last=1 to 1000, best=0 to 1000, and every= with steps or "
              "epochs, each of them once\n"
              "  fix: for example --keep last=3,every=10epochs");
    settings = {};
    settings.order = OrderKind::sequential;
    EXPECT_EQ(caught_code([&] { check_settings(settings); }), "E103");
}

TEST(DecidingSettings, HaveTheLengthOfTheRunWhereTheScheduleEnds) {
    TrainSettings settings;
    EXPECT_FALSE(names_of(deciding_settings(settings)).contains("epochs"));
    EXPECT_TRUE(names_of(shared_settings(settings)).contains("epochs"));
    settings.schedule.kind = ScheduleKind::step;
    EXPECT_FALSE(names_of(deciding_settings(settings)).contains("epochs"));
    for (const char* schedule : {"cosine", "linear", "polynomial", "one-cycle"}) {
        set_setting(settings, "schedule", schedule);
        EXPECT_TRUE(names_of(deciding_settings(settings)).contains("epochs")) << schedule;
        EXPECT_TRUE(names_of(deciding_settings(settings)).contains("max-steps")) << schedule;
    }
}

// Runs that exist are compared by these names, and values of these types: one that goes or changes
// refuses them all.
TEST(DecidingSettings, AreCalledAsRunsThatExistHaveThem) {
    EXPECT_EQ(fmt::format("{}", fmt::join(names_of(deciding_settings({})), " ")),
              "batch beta1 beta2 channels class-weights clip-norm decay-all device drop-last "
              "ema epsilon freeze heads huber-delta ignore-index inputs isa label-smoothing "
              "lanes layers loss loss-scale lr lr-end lr-every lr-gamma lr-group lr-power "
              "lr-scale micro-batches model model-mode momentum nesterov no-bias normalise "
              "optimizer order output plain precision reference-batch scale-targets schedule "
              "seed split task threads transform trust virtual-ranks warmup-steps "
              "weight-decay width window-blocks");
    const auto value = [](const std::string& name) {
        const auto all = deciding_settings({});
        return std::ranges::find(all, name, &NamedValue::name)->value;
    };
    EXPECT_EQ(value("no-bias"), ConfigValue(false));
    EXPECT_EQ(value("plain"), ConfigValue(false));
    EXPECT_EQ(value("lr"), ConfigValue(1e-3));
    EXPECT_EQ(value("clip-norm"), ConfigValue(0.0));
    EXPECT_EQ(value("warmup-steps"), ConfigValue(std::int64_t{0}));
    EXPECT_EQ(value("seed"), ConfigValue(std::int64_t{1}));
    EXPECT_EQ(value("optimizer"), ConfigValue(std::string("adam")));
    EXPECT_EQ(value("schedule"), ConfigValue(std::string("constant")));
    EXPECT_EQ(value("split"), ConfigValue(std::string("none")));
    EXPECT_EQ(value("order"), ConfigValue(std::string("lanes")));
}

// A run that was made before a setting was there has its default.
TEST(DecidingFacts, LeaveOutWhatAnEarlierVersionDidNotKnow) {
    const Json digests = {{"data-digest", "digest"}};
    TrainSettings settings;
    settings.task.kind = TaskKind::classification;  // as settled before facts are made
    settings.precision = Precision::fp32;           // likewise
    Json recorded = deciding_facts(settings, digests, "2.11.0", Json::object());
    for (const char* name : {"decay-all", "lr", "precision", "task"}) {
        EXPECT_TRUE(recorded.contains(name)) << name;
        recorded.erase(name);
    }
    EXPECT_EQ(deciding_facts(settings, digests, "2.11.0", recorded), recorded);
    settings.optimizer.learning_rate = 0.5;
    EXPECT_EQ(deciding_facts(settings, digests, "2.11.0", recorded).value("lr", Json()), Json(0.5));
    settings.task.kind = TaskKind::regression;  // which no earlier version had
    EXPECT_TRUE(deciding_facts(settings, digests, "2.11.0", recorded).contains("task"));
}

// adamw decayed biases and norms, too, before there was a choice of it: such a run has equal facts
// only while it goes on so.
TEST(DecidingFacts, OfAnEarlierRunOfAdamwHaveDecayForAll) {
    TrainSettings settings;
    settings.optimizer.kind = OptimizerKind::adamw;
    settings.optimizer.weight_decay = 0.01;
    Json recorded = deciding_facts(settings, Json::object(), "2.11.0", Json::object());
    EXPECT_FALSE(decayed_all(recorded));
    recorded.erase("decay-all");
    EXPECT_TRUE(decayed_all(recorded));
    EXPECT_NE(deciding_facts(settings, Json::object(), "2.11.0", recorded), recorded);
    settings.optimizer.decays_all = true;
    EXPECT_EQ(deciding_facts(settings, Json::object(), "2.11.0", recorded), recorded);
    for (const auto& [name, value] :
         std::vector<std::pair<std::string, Json>>{{"optimizer", "adam"}, {"weight-decay", 0.0}}) {
        Json other = recorded;
        other[name] = value;
        EXPECT_FALSE(decayed_all(other)) << name;
    }
    EXPECT_FALSE(decayed_all(Json::object()));
}

TrainSettings settled() {
    TrainSettings settings;
    settings.virtual_ranks = 4;
    return settings;
}

constexpr EffectFacts facts{.samples = 600, .total_steps = 100, .age = RunAge::created};

struct NoEffect {
    const char* given;  // names and values
    const char* text;   // a part of the message
    const char* code = "E107";
};

constexpr NoEffect without_effect[] = {
    {"momentum 0.5",
     "--momentum has no effect\n  why: --optimizer adam has none\n  fix: drop it, or use "
     "--optimizer sgd"},
    {"optimizer sgd beta1 0.5", "--beta1 has no effect"},
    {"optimizer lars beta2 0.5", "--beta2 has no effect\n  why: --optimizer lars has none"},
    {"nesterov true",
     "--nesterov has no effect\n  why: --optimizer adam has none\n  fix: drop it, or use "
     "--optimizer sgd"},
    {"optimizer sgd momentum 0 nesterov true",
     "--nesterov has no effect\n  why: there is no --momentum to look along"},
    {"share-gpu true",
     "--share-gpu has no effect\n  why: it is for GPUs, and those are not asked for\n  fix: drop "
     "it, or use --device cuda"},
    {"device cuda shard-state node",
     "--shard-state has no effect\n  why: each GPU has its own part of the optimizer's state "
     "already\n  fix: drop it, or use --device cpu"},
    {"optimizer lamb trust 0.1", "--trust has no effect\n  why: --optimizer lamb has none"},
    {"optimizer lamb lr-group fc.*=0.1",
     "--lr-group has no effect\n  why: --optimizer lamb finds a rate for each tensor\n  fix: drop "
     "it, or use --optimizer adam"},
    {"model-mode as-exported",
     "--model-mode has no effect\n  why: --model cnn has no choice of it\n  fix: drop it, or use "
     "--model FILE.pt2"},
    {"load-prefix module.",
     "--load-prefix has no effect\n  why: there is no --load-weights to take it off"},
    {"optimizer sgd decay-all true",
     "--decay-all has no effect\n  why: --optimizer sgd treats all tensors alike\n  fix: drop it, "
     "or use --optimizer adamw"},
    {"optimizer adamw decay-all true", "--decay-all has no effect\n  why: --weight-decay is 0"},
    {"schedule cosine lr-every 5steps",
     "--lr-every has no effect\n  why: --schedule cosine has none\n  fix: drop it, or use "
     "--schedule step"},
    {"lr-gamma 0.5", "--lr-gamma has no effect\n  why: --schedule constant has none"},
    {"schedule linear lr-power 3", "--lr-power has no effect\n  why: --schedule linear has none"},
    {"precision bf16 loss-scale 128",
     "--loss-scale has no effect\n  why: --precision bf16 needs none"},
    {"reference-batch 64", "--reference-batch has no effect\n  why: --lr-scale is none"},
    {"schedule step lr-end 1e-5", "--lr-end has no effect\n  why: --schedule step has none"},
    {"order uniform lanes 8", "--lanes has no effect"},
    {"evaluate-every 5steps", "--evaluate-every has no effect\n  why: there is no --test-data"},
    {"keep-best loss", "--keep-best has no effect\n  why: there is no --test-data"},
    {"early-stop 3", "--early-stop has no effect\n  why: there is no --test-data"},
    {"accept-data true",
     "--accept-data has no effect\n  why: packed data are known by their hashes"},
    {"follow-links true", "--follow-links has no effect\n  why: packed data have no links"},
    {"early-stop 3 test-data D evaluate-every never",
     "--early-stop has no effect\n  why: the run is evaluated at its end only"},
    {"batch 604",
     "--batch 604 is more than the 600 samples\n  why: no step would have that many\n  fix: use "
     "--batch 600 or less"},
    {"micro-batches 33", "use --micro-batches 32 or less"},
    {"schedule cosine warmup-steps 101", "--warmup-steps 101 is beyond the run's 100 steps"},
    {"schedule linear lr-end 0.5",
     "--lr-end 0.5 is above the rate of 0.001\n  why: the rate of --schedule linear falls\n  fix: "
     "use a smaller --lr-end"},
    {"schedule step lr-every 10m",
     "--lr-every is '10m'\n  why: the learning rate falls after steps or epochs\n  fix: for "
     "example --lr-every 30epochs",
     "E103"},
    {"test-data t evaluate-every 10m",
     "--evaluate-every is '10m'\n  why: evaluations come after steps or epochs, so that they do "
     "not depend on time\n  fix: for example --evaluate-every 500steps",
     "E103"},
    {"on-nonfinite rollback checkpoint-every 10m",
     "--on-nonfinite rollback does not go with --checkpoint-every 10m"},
    {"order uniform data-mode stream", "--order uniform does not go with --data-mode stream"},
    {"deadline 3600",
     "--deadline is 3600\n  why: it is seconds since 1970, not from now\n  fix: for example "
     "--deadline $(( $(date +%s) + 3600 ))",
     "E102"},
};

TEST(CheckEffects, RefusesInANewRunWhatHasNoEffect) {
    for (const NoEffect& one : without_effect) {
        TrainSettings settings = settled();
        const std::vector<std::string> words = split(one.given, ' ');
        for (std::size_t i = 0; i < words.size(); i += 2)
            set_setting(settings, words[i], words[i + 1]);
        EXPECT_THAT(caught_text([&] { check_effects(settings, facts); }),
                    has(std::string("error ") + one.code, one.text))
            << one.given;
    }
}

TEST(CheckEffects, LikesTheDefaultsAndWhatIsUsed) {
    TrainSettings settings = settled();
    EXPECT_THAT(check_effects(settings, facts), IsEmpty());
    settings.evaluate_every = {};  // never: true without test data
    settings.schedule = {ScheduleKind::cosine, 99};
    settings.micro_batches = 32;
    settings.batch = 600;
    settings.optimizer = {.kind = OptimizerKind::lamb, .decays_all = true};
    EXPECT_THAT(check_effects(settings, facts), ElementsAre());
}

TEST(CheckEffects, JudgesADefaultThatWasGivenLikeAnyOtherAndWarnsOfWhatServesOtherRunsToo) {
    TrainSettings settings = settled();
    settings.origins["momentum"] = {std::string("0.9"), "command line"};
    EXPECT_EQ(caught_code([&] { check_effects(settings, facts); }), "E107");
    settings.origins["momentum"].origin = "default";
    EXPECT_THAT(check_effects(settings, facts), IsEmpty());
    settings.optimizer.momentum = 0.5;
    settings.origins["momentum"] = {std::string("0.5"), "train.toml:1:1"};
    EXPECT_THAT(check_effects(settings, facts),
                ElementsAre("momentum (from train.toml:1:1) has no effect: --optimizer adam has "
                            "none"));
}

TEST(CheckEffects, WarnsWhereARunExistsAndMustGoOn) {
    TrainSettings settings = settled();
    settings.batch = 604;
    settings.optimizer.momentum = 0.5;
    const EffectFacts resumed{.samples = 600, .total_steps = 100, .age = RunAge::resumed};
    EXPECT_THAT(check_effects(settings, resumed),
                ElementsAre(HasSubstr("--batch 604 is more than the 600 samples"),
                            HasSubstr("momentum (from program) has no effect")));
}

TEST(CheckEffects, WarnsOfAWarmUpThatALongerRunWouldFinishOrThatIsTheWholeRun) {
    TrainSettings settings = settled();
    settings.schedule.warmup_steps = 101;
    EXPECT_THAT(check_effects(settings, facts),
                ElementsAre("the learning rate warms up over 101 steps, the run has 100"));
    settings.schedule = {ScheduleKind::cosine, 100};
    EXPECT_THAT(check_effects(settings, facts),
                ElementsAre("--schedule cosine begins after 100 steps (--warmup-steps), which is "
                            "the whole run"));
}

TEST(CheckEffects, WarnsOfWhatOnlyALongerRunWouldSee) {
    TrainSettings settings = settled();
    settings.batch = 60;  // 10 steps an epoch
    settings.schedule.kind = ScheduleKind::step;
    settings.schedule.every = {Period::Unit::epochs, 10};
    settings.trace = {101, 110};
    settings.keep.every = {Period::Unit::epochs, 11};
    EXPECT_THAT(check_effects(settings, facts),
                ElementsAre("--schedule step changes the learning rate after 100 steps "
                            "(--lr-every), the run has 100",
                            "--keep every=11epochs is 110 steps, the run has 100",
                            "--trace begins with step 101, the run has 100"));
    settings.schedule.every = {Period::Unit::epochs, 9};
    settings.trace = {100, 110};
    settings.keep.every = {Period::Unit::epochs, 10};
    EXPECT_THAT(check_effects(settings, facts), IsEmpty());
}

}  // namespace
}  // namespace lockstep
