// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/settings.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/plan/run_length.hpp"

#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Tables refer to what they fill.
std::vector<NamedValue> all_values(TrainSettings settings) {
    return current_values(setting_table(settings));
}

// Before this there was no Lockstep: 2020-01-01.
constexpr std::int64_t first_deadline = 1'577'836'800;

struct Idle {
    std::vector<std::string> settings;
    std::string why, fix;
    bool is_idle = false;
};

// A mistake as such, whoever made it.
struct Misfit {
    std::string what, why, fix;
    bool is_misfit = false;
    bool may_be_recorded = true;  // an existing run may have been created with it
    std::string_view code = "E107";
};

std::string text_of(const TrainSettings& settings, const std::string& name) {
    TrainSettings copy = settings;
    return config_text(find_option(setting_table(copy), name).current());
}

std::vector<Idle> idle_of_tasks(const TrainSettings& s) {
    const TaskKind task = s.task.kind;
    const bool is_regression = task == TaskKind::regression;
    const bool has_classes = task == TaskKind::classification || task == TaskKind::segmentation;
    const bool is_huber = is_regression && s.task.loss == RegressionLoss::huber;
    const std::string other = "--task " + text_of(s, "task") + " has none";
    const std::string classes = "drop it, or use --task classification or segmentation";
    return {{{"loss"}, other, "drop it, or use --task regression", !is_regression},
            {{"huber-delta"}, "the loss has none", "drop it, or use --loss huber", !is_huber},
            {{"scale-targets"}, other, "drop it, or use --task regression", !is_regression},
            {{"label-smoothing", "class-weights"}, other, classes, !has_classes},
            {{"ignore-index"},
             other,
             "drop it, or use --task segmentation",
             task != TaskKind::segmentation}};
}

std::vector<Idle> idle_of_models(const TrainSettings& s) {
    const std::string& name = s.model.name;
    const ModelSource source = source_of(name);
    const bool is_script = source == ModelSource::script || source == ModelSource::program;
    const bool is_own = !is_script && !find_built_in(name), has_layers = name == "gpt" || is_own;
    const bool has_channels = name == "cnn" || name == "cnn-bn" || name == "mlp" || is_own;
    const std::string other = "--model " + name + " has no choice of it";
    const std::string program = "drop it, or use --model FILE.pt2";
    return {
        {{"output"}, other, program, source != ModelSource::program && !is_own},
        {{"model-mode"}, other, program, source != ModelSource::program},
        {{"no-bias"}, other, "drop it", is_script},
        {{"channels"}, other, "drop it, or use --model cnn", !has_channels},
        {{"layers", "heads"}, other, "drop it, or use --model gpt", !has_layers},
        {{"width"}, other, "drop it, or use --model gpt or unet", !has_layers && name != "unet"}};
}

std::vector<Idle> idle_of_optimizers(const TrainSettings& s) {
    const OptimizerKind kind = s.optimizer.kind;
    const bool has_momentum = kind == OptimizerKind::sgd || kind == OptimizerKind::lars;
    const bool finds_rates = kind == OptimizerKind::lars || kind == OptimizerKind::lamb;
    const bool decays_all = kind == OptimizerKind::sgd || kind == OptimizerKind::adam;
    const bool decays_none = kind == OptimizerKind::adamw && s.optimizer.weight_decay == 0;
    const std::string name = "--optimizer " + text_of(s, "optimizer"), other = name + " has none";
    const std::string sgd = "drop it, or use --optimizer sgd";
    const std::string adam = "drop it, or use --optimizer adam";
    const bool still = kind == OptimizerKind::sgd && s.optimizer.momentum == 0;
    return {
        {{"momentum"}, other, sgd, !has_momentum},
        {{"nesterov"},
         still ? "there is no --momentum to look along" : other,
         still ? "drop it, or give a --momentum" : sgd,
         still || kind != OptimizerKind::sgd},
        {{"beta1", "beta2", "epsilon"}, other, adam, has_momentum},
        {{"trust"}, other, "drop it, or use --optimizer lars", kind != OptimizerKind::lars},
        {{"lr-group"}, name + " finds a rate for each tensor", adam, finds_rates},
        {{"decay-all"},
         decays_none ? "--weight-decay is 0" : name + " treats all tensors alike",
         decays_none ? "drop it, or give a --weight-decay" : "drop it, or use --optimizer adamw",
         decays_all || decays_none}};
}

std::vector<Idle> idle_of_schedules(const TrainSettings& s) {
    const ScheduleKind kind = s.schedule.kind;
    const bool is_step = kind == ScheduleKind::step, has_power = kind == ScheduleKind::polynomial;
    const bool is_fixed = s.schedule.scale == RateScale::none;
    const std::string other = "--schedule " + text_of(s, "schedule") + " has none";
    return {
        {{"lr-every", "lr-gamma"}, other, "drop it, or use --schedule step", !is_step},
        {{"lr-power"}, other, "drop it, or use --schedule polynomial", !has_power},
        {{"reference-batch"}, "--lr-scale is none", "drop it, or use --lr-scale linear", is_fixed},
        {{"lr-end"}, other, "drop it, or use --schedule linear", !has_end(kind)}};
}

std::vector<Idle> idle_of_order_and_saves(const TrainSettings& s) {
    return {{{"lanes", "window-blocks"},
             "--order uniform is one permutation of all samples",
             "drop it, or use --order lanes",
             s.order == OrderKind::uniform},
            {{"mtbf", "checkpoint-overhead"},
             "--checkpoint-every is " + text_of(s, "checkpoint-every"),
             "drop it, or use --checkpoint-every auto",
             s.checkpoint_every.unit != Period::Unit::automatic}};
}

std::vector<Idle> idle_of_evaluations(const TrainSettings& s) {
    const bool lacks_data = !has_test_data(s);
    const std::string why = "there is no --test-data to evaluate on";
    const std::string fix = "give --test-data DIR or --split 0.9, or drop it";
    const bool is_last_only = s.evaluate_every.unit == Period::Unit::never;
    return {{{"evaluate-every"}, why, fix, lacks_data && s.evaluate_every != Period{}},
            {{"keep-best"}, why, fix, lacks_data && !s.keep_best.empty()},
            {{"keep"}, why, fix, lacks_data && s.keep.best.value_or(0) > 0},
            {{"early-stop"},
             lacks_data ? why : "the run is evaluated at its end only",
             lacks_data ? fix : "give an --evaluate-every, or drop it",
             s.early_stop > 0 && (lacks_data || is_last_only)}};
}

std::vector<Idle> idle_of_the_rest(const TrainSettings& s) {
    const bool is_cuda = s.device == DeviceKind::cuda;
    const bool is_packed = s.fields.empty(), lacks_weights = s.load_weights.empty();
    const std::string cpu = "drop it, or use --device cpu";
    return {{{"noise-scale-every"},
             "it compares virtual ranks' gradients, and there is one",
             "drop it, or use --virtual-ranks 8",
             s.virtual_ranks == 1 && s.noise_scale_every > 0},
            {{"loss-scale"},
             "--precision " + text_of(s, "precision") + " needs none",
             "drop it, or use --precision fp16",
             s.precision != Precision::fp16},
            {{"accept-data"},
             "packed data are known by their hashes, not by times",
             "drop it",
             is_packed},
            {{"follow-links"},
             "packed data have no links, and no --field is given",
             "drop it",
             is_packed && s.test_fields.empty()},
            {{"transport"}, "between GPUs gradients travel by NCCL", cpu, is_cuda},
            {{"shard-state"},
             "each GPU has its own part of the optimizer's state already",
             cpu,
             is_cuda},
            {{"comm-thread"}, "GPUs need no thread for that", cpu, is_cuda},
            {{"share-gpu"},
             "it is for GPUs, and those are not asked for",
             "drop it, or use --device cuda",
             !is_cuda},
            {{"load-skip"},
             "there is no --load-weights or --from to skip any of",
             "give --load-weights FILE, or drop it",
             lacks_weights && s.from.empty()},
            {{"load-prefix"},
             "there is no --load-weights to take it off",
             "give --load-weights FILE, or drop it",
             lacks_weights}};
}

std::vector<Idle> idle_rows(const TrainSettings& s) {
    std::vector<Idle> rows = idle_of_the_rest(s);
    for (const auto& more : {idle_of_tasks(s),
                             idle_of_models(s),
                             idle_of_optimizers(s),
                             idle_of_schedules(s),
                             idle_of_order_and_saves(s),
                             idle_of_evaluations(s)})
        rows.insert(rows.end(), more.begin(), more.end());
    return rows;
}

bool is_power_of_two(double value) {
    int exponent = 0;
    return std::frexp(value, &exponent) == 0.5;
}

// Values that no run can have.
std::vector<Misfit> wrong_values(const TrainSettings& s) {
    using enum Period::Unit;
    const Period::Unit falls = s.schedule.every.unit, comes = s.evaluate_every.unit;
    return {{fmt::format("--deadline is {}", s.deadline),
             "it is seconds since 1970, not from now",
             fmt::format("for example --deadline $(( $(date +%s) + {} ))", s.deadline),
             s.deadline != 0 && s.deadline < first_deadline,
             false,
             "E102"},
            // A rate must not depend on a clock.
            {fmt::format("--lr-every is '{}'", period_text(s.schedule.every)),
             "the learning rate falls after steps or epochs",
             "for example --lr-every 30epochs",
             falls != steps && falls != epochs,
             false,
             "E103"},
            // Nor may what is tested: it tells which checkpoint is the best, and when to stop.
            {fmt::format("--evaluate-every is '{}'", period_text(s.evaluate_every)),
             "evaluations come after steps or epochs, so that they do not depend on time",
             "for example --evaluate-every 500steps",
             comes == seconds || comes == automatic,
             false,
             "E103"}};
}

// With how many samples and steps there are, and with each other in size.
std::vector<Misfit> misfits(const TrainSettings& s, const EffectFacts& facts) {
    const auto samples = static_cast<std::int64_t>(facts.samples);
    const std::int64_t leaf = s.batch / s.virtual_ranks;
    return {{fmt::format("--batch {} is more than the {} samples", s.batch, grouped(facts.samples)),
             "no step would have that many",
             fmt::format("use --batch {} or less", samples / s.virtual_ranks * s.virtual_ranks),
             s.batch > samples},
            {fmt::format("--micro-batches {} of {} samples", s.micro_batches, leaf),
             fmt::format(
                 "each of the {} virtual ranks has {} of a step's samples", s.virtual_ranks, leaf),
             fmt::format("use --micro-batches {} or less", leaf),
             s.micro_batches > leaf},
            {fmt::format("--loss-scale {} does not go with --precision fp16", s.loss_scale),
             "gradients below 6e-8 would be lost; a power of two scales them without rounding",
             "drop it, or use --loss-scale 65536 or another power of two",
             s.precision == Precision::fp16 && !is_power_of_two(s.loss_scale),
             false},
            {fmt::format("--warmup-steps {} is beyond the run's {} steps",
                         s.schedule.warmup_steps,
                         facts.total_steps),
             fmt::format("--schedule {} after it would never begin", text_of(s, "schedule")),
             fmt::format("use fewer --warmup-steps, or more --{}",
                         s.max_steps > 0 ? "max-steps" : "epochs"),
             has_end(s.schedule.kind) && s.schedule.warmup_steps > facts.total_steps},
            {fmt::format("--lr-end {} is above the rate of {:.6g}", s.schedule.end, peak_rate(s)),
             fmt::format("the rate of --schedule {} falls", text_of(s, "schedule")),
             "use a smaller --lr-end",
             has_end(s.schedule.kind) && s.schedule.end > peak_rate(s),
             false}};
}

// Settings of which no run can have both.
std::vector<Misfit> contradictions(const TrainSettings& s) {
    return {
        {"--from does not go with --load-weights",
         "either says which weights the run begins with",
         "drop one of them",
         !s.from.empty() && !s.load_weights.empty(),
         false},
        {"--on-nonfinite rollback does not go with --checkpoint-every " +
             period_text(s.checkpoint_every),
         "which weights it goes back to must not depend on a clock",
         "use --checkpoint-every 1epoch, or a number of steps",
         s.on_nonfinite == NonFinite::rollback && s.checkpoint_every.unit != Period::Unit::steps &&
             s.checkpoint_every.unit != Period::Unit::epochs,
         false},
        {fmt::format("--split {} does not go with {}",
                     s.split,
                     s.test_data.empty() ? "--test-field" : "--test-data"),
         "it takes the test data from --data",
         "drop one of them",
         s.split > 0 && !(s.test_data.empty() && s.test_fields.empty()),
         false},
        {"--order uniform does not go with --data-mode stream",
         "one permutation of all samples needs them in memory",
         "use --data-mode auto, or --order lanes",
         s.order == OrderKind::uniform && s.data_mode == DataMode::stream,
         false}};
}

// Who gave the setting; "" if nobody did. A program that says nothing of origins gave what is not
// the default.
std::string giver(const TrainSettings& settings, const std::string& name) {
    if (settings.origins.empty())
        return text_of(settings, name) == text_of({}, name) ? "" : "program";
    const auto found = settings.origins.find(name);
    const bool is_default = found == settings.origins.end() || found->second.origin == "default";
    return is_default ? "" : found->second.origin;
}

// What a longer run would see.
std::vector<std::string> too_late(const TrainSettings& settings, const EffectFacts& facts) {
    std::vector<std::string> notes;
    const RunLength length = length_of(settings, static_cast<std::int64_t>(facts.samples));
    const std::int64_t period = steps_of(settings.schedule.every, length);
    if (settings.schedule.kind == ScheduleKind::step && period >= facts.total_steps)
        notes.push_back(fmt::format(
            "--schedule step changes the learning rate after {} steps (--lr-every), the run has {}",
            period,
            facts.total_steps));
    if (has_end(settings.schedule.kind) && settings.schedule.warmup_steps == facts.total_steps)
        notes.push_back(fmt::format(
            "--schedule {} begins after {} steps (--warmup-steps), which is the whole run",
            text_of(settings, "schedule"),
            settings.schedule.warmup_steps));
    if (const std::int64_t kept = steps_of(settings.keep.every, length); kept > facts.total_steps)
        notes.push_back(fmt::format("--keep every={} is {} steps, the run has {}",
                                    period_text(settings.keep.every),
                                    kept,
                                    facts.total_steps));
    if (settings.trace.first > facts.total_steps)
        notes.push_back(fmt::format("--trace begins with step {}, the run has {}",
                                    settings.trace.first,
                                    facts.total_steps));
    return notes;
}

}  // namespace

void set_setting(TrainSettings& settings, const std::string& name, const std::string& text) {
    const OptionTable table = setting_table(settings);
    find_option(table, name).assign({text, "program"});
}

void check_settings(const TrainSettings& settings) {
    const auto defaults = all_values({});
    TrainSettings read;
    const auto values = all_values(settings);
    for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i].value != defaults[i].value)
            set_setting(read, values[i].name, config_text(values[i].value));
}

bool has_test_data(const TrainSettings& settings) {
    return !settings.test_data.empty() || !settings.test_fields.empty() || settings.split > 0;
}

bool saves_beside_steps(const TrainSettings& settings) {
    return settings.checkpoint_mode == CheckpointMode::overlapped &&
           settings.checkpoint_every.unit != Period::Unit::never;
}

bool has_end(ScheduleKind kind) {
    return kind != ScheduleKind::constant && kind != ScheduleKind::step;
}

std::vector<NamedValue> deciding_settings(const TrainSettings& settings) {
    const bool length_decides = has_end(settings.schedule.kind);
    const bool rolls_back = settings.on_nonfinite == NonFinite::rollback;
    auto values = all_values(settings);
    std::erase_if(values, [&](const NamedValue& value) {
        const bool is_of_rollback =
            value.name == "on-nonfinite" || value.name == "checkpoint-every";
        return value.scope != OptionScope::decides &&
               !(length_decides && value.scope == OptionScope::decides_length) &&
               !(rolls_back && is_of_rollback);
    });
    return values;
}

std::vector<NamedValue> shared_settings(const TrainSettings& settings) {
    auto values = all_values(settings);
    std::erase_if(values, [](const NamedValue& value) { return value.scope == OptionScope::own; });
    return values;
}

std::vector<std::string> idle_settings(const TrainSettings& settings) {
    std::vector<std::string> names;
    for (const Idle& row : idle_rows(settings))
        if (row.is_idle) names.insert(names.end(), row.settings.begin(), row.settings.end());
    return names;
}

std::vector<std::string> check_effects(const TrainSettings& settings, const EffectFacts& facts) {
    std::vector<std::string> notes;
    std::vector<Misfit> rows = wrong_values(settings);
    for (const auto& more : {misfits(settings, facts), contradictions(settings)})
        rows.insert(rows.end(), more.begin(), more.end());
    for (const Misfit& row : rows) {
        if (!row.is_misfit) continue;
        check(row.may_be_recorded && facts.age == RunAge::resumed,
              [&] { return Error(row.code, row.what, row.why, row.fix); });
        notes.push_back(fmt::format("{}: {}", row.what, row.why));
    }
    for (const Idle& row : idle_rows(settings))
        for (const std::string& setting : row.settings) {
            const std::string from = row.is_idle ? giver(settings, setting) : "";
            if (from.empty()) continue;
            const bool is_for_this_run = from == "command line" || from == "program";
            check(!is_for_this_run || facts.age == RunAge::resumed, [&] {
                return Error("E107", fmt::format("--{} has no effect", setting), row.why, row.fix);
            });
            notes.push_back(fmt::format("{} (from {}) has no effect: {}", setting, from, row.why));
        }
    if (settings.schedule.warmup_steps > facts.total_steps && notes.empty())
        notes.push_back(fmt::format("the learning rate warms up over {} steps, the run has {}",
                                    settings.schedule.warmup_steps,
                                    facts.total_steps));
    for (std::string& note : too_late(settings, facts)) notes.push_back(std::move(note));
    return notes;
}

bool brings_statistics(const std::string& normalise) {
    const bool is_word = normalise == "auto" || normalise == "none" || normalise == "required";
    return normalise == "dataset" || (!is_word && normalise.find('=') == normalise.npos);
}

}  // namespace lockstep
