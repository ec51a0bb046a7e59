// SPDX-License-Identifier: Apache-2.0
// Tested: e2e/tasks_test.cpp, e2e/commands_test.cpp.

#include "lockstep/train/infer.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/run/progress.hpp"

#include "loop/evaluate.hpp"
#include "loop/output_file.hpp"
#include "loop/trained_run.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace lockstep {
namespace {

// Samples are cut as the run's own evaluations cut them: kernels may give other bits for another
// number of rows. Ranks beyond its virtual ones have nothing to do.
LeafRange leaves_here(const Communicator& ranks, int virtual_ranks) {
    const int busy = std::min(ranks.size(), virtual_ranks);
    if (ranks.rank() >= busy) return {virtual_ranks, virtual_ranks};
    return leaves_of(ranks.rank(), busy, virtual_ranks);
}

// The samples of a part, of which the outputs are one row after another.
std::vector<std::uint64_t> samples_of(const SamplePart& part, std::uint64_t samples) {
    std::vector<std::uint64_t> held;
    for (std::uint64_t sample = 0; sample < samples; ++sample)
        if (part.holds(sample)) held.push_back(sample);
    return held;
}

constexpr bool has_classes(TaskKind kind) {
    return kind == TaskKind::classification || kind == TaskKind::segmentation ||
           kind == TaskKind::multi_label || kind == TaskKind::next_token;
}

// The axis of classes among the outputs of samples, [n, ...].
std::int64_t class_axis(TaskKind kind) {
    return kind == TaskKind::next_token ? 2 : 1;
}

at::Tensor formed(const at::Tensor& logits, OutputForm form, TaskKind kind) {
    if (form == OutputForm::logits) return logits;
    if (kind == TaskKind::multi_label)
        return form == OutputForm::classes ? logits.gt(0).to(at::kLong) : at::sigmoid(logits);
    const std::int64_t axis = class_axis(kind);
    return form == OutputForm::classes ? at::argmax(logits, axis) : at::softmax(logits, axis);
}

std::vector<std::string> numbers_below(std::int64_t count) {
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
    return names;
}

// The names that the data have for a run's classes; empty: none.
std::vector<std::string> class_names_of(const TrainedRun& trained) {
    const TaskKind kind = trained.run.settings.task.kind;
    for (const Field& field : trained.learned_from->fields())
        if (field.name == (kind == TaskKind::segmentation ? "masks" : "labels") &&
            std::ssize(field.class_names) == trained.task->outputs())
            return field.class_names;
    return {};
}

// Those, or the names of the numbers that it predicts.
std::vector<std::string> names_of_outputs(const TrainedRun& trained) {
    const TaskKind kind = trained.run.settings.task.kind;
    const std::int64_t outputs = trained.task->outputs();
    const std::vector<std::string> given = class_names_of(trained);
    if (!given.empty()) return given;
    for (const Field& field : trained.learned_from->fields())
        if (field.name == "targets" && kind == TaskKind::regression &&
            std::ssize(field.columns) == outputs)
            return field.columns;
    if (has_classes(kind)) return numbers_below(outputs);
    return outputs == 1 ? std::vector<std::string>{"prediction"} : numbers_below(outputs);
}

void check_form(const InferSettings& settings, const TrainedRun& trained) {
    const TaskKind kind = trained.run.settings.task.kind;
    const bool is_formed = settings.form != OutputForm::logits;
    check(!is_formed || has_classes(kind), [&] {
        return Error("E106",
                     "--as probabilities and classes are for runs with classes",
                     fmt::format("run '{}' predicts numbers", settings.run.string()),
                     "drop --as");
    });
    const bool is_list = kind != TaskKind::segmentation && kind != TaskKind::next_token &&
                         trained.task->output_shape().size() <= 1;
    check(output_format(settings.outputs) != OutputFormat::csv || is_list, [&] {
        return Error("E106",
                     "a CSV has no place for outputs of several dimensions",
                     fmt::format("the outputs of a sample are [{}]",
                                 fmt::join(trained.task->output_shape(), ", ")),
                     "use --out NAME.npy or NAME.h5");
    });
}

OutputLayout layout_of(const InferSettings& settings,
                       const TrainedRun& trained,
                       std::uint64_t samples) {
    const TaskKind kind = trained.run.settings.task.kind;
    OutputLayout layout{.shape = trained.task->output_shape(),
                        .row_names = settings.row_names,
                        .class_names = class_names_of(trained),
                        .columns = {settings.row_title}};
    layout.shape.insert(layout.shape.begin(), static_cast<std::int64_t>(samples));
    const std::vector<std::string> names = names_of_outputs(trained);
    const bool is_one_class = settings.form == OutputForm::classes && kind != TaskKind::multi_label;
    if (settings.form == OutputForm::classes) layout.element = ElementType::i64;
    if (is_one_class) {
        layout.shape.erase(layout.shape.begin() + class_axis(kind));
        layout.columns.emplace_back("class");
        layout.classes = names;
    } else {
        layout.columns.insert(layout.columns.end(), names.begin(), names.end());
    }
    return layout;
}

// Collective. Such outputs have a class, too, which looks like any other. `of_rank` is this rank's.
void warn_of(NanOutputs of_rank,
             const InferSettings& settings,
             const Communicator& ranks,
             std::uint64_t samples) {
    ranks.all_reduce_sum(std::span(&of_rank.count, 1));
    std::int64_t last = -of_rank.first;
    ranks.all_reduce_max(std::span(&last, 1));
    if (of_rank.count == 0) return;
    const auto first = static_cast<std::size_t>(-last);
    const bool has_names = first < settings.row_names.size();  // on rank 0, which writes the line
    once(
        Level::warn,
        "the model's outputs are NaN for {} of {} samples, the first of them {}: what '{}' has for "
        "these is no prediction",
        grouped(of_rank.count),
        grouped(samples),
        has_names ? fmt::format("'{}'", printable(settings.row_names[first]))
                  : fmt::format("sample {}", first),
        printable(settings.outputs.string()));
}

// Collective.
void write_outputs(const InferSettings& settings,
                   const Communicator& ranks,
                   const TrainedRun& trained,
                   Evaluator& evaluator,
                   InferResult& result) {
    agree(ranks, [&] { check_form(settings, trained); });
    OutputLayout layout = layout_of(settings, trained, result.samples);
    result.shape = layout.shape;
    result.element = element_name(layout.element);
    const bool has_all = trained.part.side == SamplePart::Side::all;
    std::vector<std::uint64_t> rows;
    if (!has_all) rows = samples_of(trained.part, trained.data->samples());
    if (!has_all && ranks.is_root()) {
        layout.row_names.clear();
        for (const std::uint64_t sample : rows) layout.row_names.push_back(std::to_string(sample));
    }
    result.names = names_text(settings.outputs, layout);
    OutputFile file(ranks, settings.outputs, std::move(layout));
    const TaskKind kind = trained.run.settings.task.kind;
    const NanOutputs nans = evaluator.for_each_output(
        *trained.model,
        [&](const at::Tensor& outputs) {
            return formed(trained.task->in_units(outputs), settings.form, kind);
        },
        [&](std::uint64_t sample, std::span<const std::byte> values) {
            const auto row = std::ranges::lower_bound(rows, sample) - rows.begin();
            file.write(has_all ? sample : static_cast<std::uint64_t>(row), values);
        });
    evaluator.check_files();
    file.finish();
    warn_of(nans, settings, ranks, result.samples);
}

using Tokens = std::vector<std::int64_t>;

// Bytes of a text, or numbers with blanks between.
Tokens tokens_of(const std::string& prompt, const Field& field) {
    Tokens tokens;
    const auto fail = [&](const std::string& what) {
        return Error(
            "E103",
            fmt::format("--prompt has the token {}", what),
            fmt::format("the run's tokens are numbers from 0 to {}", field.classes() - 1),
            field.type == ElementType::u8 ? "give other text" : "give numbers with blanks between");
    };
    if (field.type == ElementType::u8)
        for (const char byte : prompt) tokens.push_back(static_cast<unsigned char>(byte));
    else
        for (const std::string& word : split(prompt, ' ')) {
            const auto number = parse_integer(word);
            check(number.has_value(), [&] { return fail(fmt::format("'{}'", printable(word))); });
            tokens.push_back(*number);
        }
    for (const std::int64_t token : tokens)
        check(token >= 0 && token < field.classes(), [&] { return fail(std::to_string(token)); });
    return tokens;
}

std::string text_of(const Tokens& tokens, const Field& field) {
    std::string text;
    for (const std::int64_t token : tokens)
        if (field.type == ElementType::u8)
            text += static_cast<char>(token);
        else
            text += fmt::format("{}{}", text.empty() ? "" : " ", token);
    return text;
}

// The token of share `at` of the probability of all, or of the `top` most probable ones.
std::int64_t chosen(const at::Tensor& logits, const SampleSettings& settings, double at) {
    if (settings.temperature == 0) return logits.argmax().item<std::int64_t>();
    const std::int64_t kept =
        settings.top > 0 ? std::min(settings.top, logits.numel()) : logits.numel();
    const auto [values, places] = (logits / settings.temperature).topk(kept);
    const at::Tensor sums = values.softmax(0).cumsum(0);
    const std::int64_t place = sums.le(at * sums[-1].item<double>()).sum().item<std::int64_t>();
    return places[std::min(place, kept - 1)].item<std::int64_t>();
}

// The newest tokens that the model's context holds. A file's may be exported for whole contexts
// alone: what follows a token changes nothing before it.
at::Tensor input_of(const Tokens& tokens, const TrainedRun& trained) {
    const std::int64_t context = trained.shape.width;
    const std::int64_t count = std::min<std::int64_t>(std::ssize(tokens), context);
    const bool is_file = source_of(trained.run.settings.model.name) != ModelSource::registered;
    at::Tensor input = torch::zeros({1, is_file ? context : count}, torch::kInt64);
    std::copy(tokens.end() - count, tokens.end(), input.data_ptr<std::int64_t>());
    return input;
}

}  // namespace

InferResult infer(const InferSettings& settings, const Communicator& ranks) {
    agree(ranks, [&] {
        if (!settings.outputs.empty()) check_new_outputs(settings.outputs);
    });
    const TrainedRun trained = open_trained_run(settings, ranks);
    const TrainSettings& learned = trained.run.settings;
    Evaluator evaluator(trained.data,
                        *trained.learned_from,
                        ranks,
                        leaves_here(ranks, learned.virtual_ranks),
                        learned,
                        *trained.task,
                        trained.part);
    InferResult result{.step = trained.step,
                       .samples = samples_in(trained.data->blocks(), trained.part)};
    if (settings.outputs.empty()) {
        PhaseClock clock;
        const Evaluation found = evaluator.run(*trained.model, clock);
        result.evaluation = {found.metrics, found.text};
        result.confusion = found.confusion;
        result.by_class = found.by_class;
    } else {
        write_outputs(settings, ranks, trained, evaluator, result);
    }
    return result;
}

std::string sample_tokens(const SampleSettings& settings, const Communicator& ranks) {
    const TrainedRun trained = open_trained_run(settings.from, ranks);
    check(trained.run.settings.task.kind == TaskKind::next_token, [&] {
        return Error("E106",
                     fmt::format("'{}' predicts no tokens", settings.from.run.string()),
                     "sampling is for runs of --task next-token",
                     "use 'lockstep predict'");
    });
    const DatasetIndex& data = *trained.learned_from;
    const Field& field = data.fields()[data.field_position("tokens")];
    Tokens tokens = tokens_of(settings.prompt, field);
    const at::NoGradGuard no_gradients;
    trained.model->set_mode(ModelMode::evaluate);
    CounterRandom random(Purpose::sampling, {static_cast<std::uint64_t>(settings.seed)});
    Progress progress("sampling", static_cast<std::uint64_t>(settings.tokens));
    for (std::int64_t i = 0; i < settings.tokens; ++i) {
        const std::int64_t last =
            std::min<std::int64_t>(std::ssize(tokens), trained.shape.width) - 1;
        const at::Tensor logits =
            only(trained.model->forward({{"tokens", input_of(tokens, trained)}}));
        tokens.push_back(chosen(logits[0][last].to(torch::kFloat64), settings, random.uniform()));
        progress.update(static_cast<std::uint64_t>(i + 1));
    }
    return text_of(tokens, field);
}

}  // namespace lockstep
