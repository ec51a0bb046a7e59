// SPDX-License-Identifier: Apache-2.0
// Tested: e2e/tasks_test.cpp, e2e/commands_test.cpp, e2e/alone_test.cpp.

#include "lockstep/train/infer.hpp"

#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/run/tensor_files.hpp"
#include "lockstep/run/text_table.hpp"

#include "loop/loop.hpp"
#include "loop/output_file.hpp"
#include "loop/trained_run.hpp"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Functions.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// What a file of outputs has.
struct OutputLayout {
    ElementType element = ElementType::f32;  ///< f32 or i64
    std::vector<std::int64_t> shape;         ///< [samples, ...]
    std::vector<std::string> row_names;      ///< by sample, on rank 0; empty: their numbers
    std::vector<std::string> class_names;    ///< empty: their numbers
    // Of a CSV:
    std::vector<std::string> columns;    ///< titles: of the names of rows, then of each number
    std::vector<std::string> classes{};  ///< of numbers that are classes; empty: numbers
};

// The beginning of a new file at `path`, and where values begin in it. What is left there of one
// that was not finished goes.
std::uint64_t begin_file(const fs::path& path, OutputFormat format, const OutputLayout& layout) {
    if (format == OutputFormat::hdf5) {
        fs::remove(path);
        return create_dataset_file(path,
                                   "predictions",
                                   layout.element,
                                   layout.shape,
                                   {{"names", layout.row_names}, {"classes", layout.class_names}});
    }
    const auto element =
        layout.element == ElementType::f32 ? ExportedElement::f32 : ExportedElement::i64;
    const std::string header =
        format == OutputFormat::npy ? npy_header(element, layout.shape) : std::string();
    write_file_atomically(path, header);
    return header.size();
}

// Those that `layout` has, by what they are names of.
Json names_in(const OutputLayout& layout) {
    Json names = Json::object();
    if (!layout.row_names.empty()) names["names"] = layout.row_names;
    if (!layout.class_names.empty()) names["classes"] = layout.class_names;
    return names;
}

// Where they are, for people, on rank 0; "" if there are none or in a CSV.
std::string names_text(const fs::path& outputs, const OutputLayout& layout) {
    const OutputFormat format = output_format(outputs);
    const Json names = names_in(layout);
    if (names.empty() || format == OutputFormat::csv) return "";
    std::vector<std::string_view> lists;
    for (const JsonMember& list : names.items()) lists.push_back(list.key);
    const std::string all = fmt::format("{}", fmt::join(lists, " and "));
    return format == OutputFormat::npy ? all + " in " + names_file(outputs).string()
                                       : "with " + all;
}

// f32 with as many digits as give the same number again.
std::string csv_number(const OutputLayout& layout,
                       std::span<const std::byte> row,
                       std::size_t index) {
    if (layout.element == ElementType::f32)
        return fmt::format("{}", stored_number<float>(row, index));
    const auto number = stored_number<std::int64_t>(row, index);
    return layout.classes.empty() ? fmt::format("{}", number)
                                  : csv_cell(layout.classes.at(static_cast<std::size_t>(number)));
}

// A file of one row a sample that all ranks write together; beside its place as .NAME.partial
// until it is whole. Rank 0 makes a CSV of the rows at the end.
class OutputFile {
  public:
    /// Errors: E103, as output_format().
    OutputFile(const Communicator& ranks, const fs::path& path, OutputLayout layout)
        : ranks_(ranks),
          path_(path),
          partial_(path.parent_path() / fmt::format(".{}.partial", path.filename().string())),
          format_(output_format(path)),
          layout_(std::move(layout)) {}

    /// On any rank, as the others may be killed before they get here.
    ~OutputFile() {
        std::error_code ignored;
        for (const char* end : {"", ".csv"})  // finish() has moved a whole one
            fs::remove(fs::path(partial_) += end, ignored);
    }
    OutputFile& operator=(OutputFile&&) = delete;

    /// Collective. Errors: E407 if it exists, E401.
    void begin() {
        const std::string offset = from_root(ranks_, [&] {
            check_new_outputs(path_);
            return std::to_string(begin_file(partial_, format_, layout_));
        });
        data_offset_ = std::stoull(offset);
        agree(ranks_, [&] {
            fd_ = UniqueFd(::open(partial_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
            if (!fd_) throw system_error("open", partial_, errno);
        });
    }

    /// The row of one sample. Errors: E402, E405.
    void write(std::uint64_t sample, std::span<const std::byte> bytes) {
        const std::uint64_t offset = data_offset_ + sample * bytes.size();
        if (const int reason = try_write_at(fd_.value(), bytes, offset))
            throw system_error("write", partial_, reason);
    }

    /// Collective. Every row was written by some rank.
    void finish() {
        agree(ranks_, [&] {
            if (::fsync(fd_.value()) != 0) throw system_error("flush", partial_, errno);
        });
        from_root(ranks_, [&] {
            const Json names = names_in(layout_);
            if (format_ == OutputFormat::npy && !names.empty())
                write_file_atomically(names_file(path_), names.dump() + '\n');
            fs::rename(format_ == OutputFormat::csv ? written_as_csv() : partial_, path_);
            sync_path(path_.parent_path().empty() ? fs::path(".") : path_.parent_path());
            return std::string();
        });
    }

  private:
    fs::path written_as_csv() const {
        constexpr std::size_t most_buffered = 1 << 20;
        const auto samples = static_cast<std::uint64_t>(layout_.shape.front());
        const auto width = static_cast<std::size_t>(std::accumulate(
            layout_.shape.begin() + 1, layout_.shape.end(), std::int64_t{1}, std::multiplies<>()));
        fs::path text = partial_;
        text += ".csv";
        const UniqueFd out(::open(text.c_str(),
                                  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                                  S_IRUSR | S_IWUSR));
        if (!out) throw system_error("create", text, errno);
        std::string lines;
        for (std::size_t c = 0; c < layout_.columns.size(); ++c)
            lines += (c == 0 ? "" : ",") + csv_cell(layout_.columns[c]);
        lines += '\n';
        std::vector<std::byte> row(width * element_bytes(layout_.element));
        for (std::uint64_t sample = 0; sample < samples; ++sample) {
            read_at(fd_.value(), row, sample * row.size(), partial_);
            lines += layout_.row_names.empty() ? std::to_string(sample)
                                               : csv_cell(layout_.row_names.at(sample));
            for (std::size_t i = 0; i < width; ++i) lines += "," + csv_number(layout_, row, i);
            lines += '\n';
            if (lines.size() < most_buffered && sample + 1 < samples) continue;
            write_all(out.value(), std::as_bytes(std::span(lines)), text);
            lines.clear();
        }
        sync_path(text);
        fs::remove(partial_);
        return text;
    }

    Communicator ranks_;
    fs::path path_, partial_;
    OutputFormat format_;
    OutputLayout layout_;
    std::uint64_t data_offset_ = 0;
    UniqueFd fd_;
};

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
    check(!is_formed || has_classes(kind),
          "E106",
          "--as probabilities and classes are for runs with classes",
          fmt::format("run '{}' predicts numbers", settings.run.string()),
          "drop --as");
    const bool is_list = kind != TaskKind::segmentation && kind != TaskKind::next_token &&
                         trained.task->output_shape().size() <= 1;
    check(output_format(settings.outputs) != OutputFormat::csv || is_list,
          "E106",
          "a CSV has no place for outputs of several dimensions",
          fmt::format("the outputs of a sample are [{}]",
                      fmt::join(trained.task->output_shape(), ", ")),
          "use --out NAME.npy or NAME.h5");
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
    const SignalGuard signals;
    OutputFile file(ranks, settings.outputs, std::move(layout));
    file.begin();
    const TaskKind kind = trained.run.settings.task.kind;
    const NanOutputs nans = evaluator.for_each_output(
        *trained.model,
        [&](const at::Tensor& outputs) {
            return formed(trained.task->in_units(outputs), settings.form, kind);
        },
        [&](std::uint64_t sample, std::span<const std::byte> values) {
            check(stop_requested() == StopRequest::none, [] {
                return Error("E242",
                             "the prediction was interrupted",
                             "a signal ended it, as after another rank's error; nothing is kept",
                             "give the same command to begin again");
            });
            const auto row = std::ranges::lower_bound(rows, sample) - rows.begin();
            file.write(has_all ? sample : static_cast<std::uint64_t>(row), values);
        });
    evaluator.check_files();
    file.finish();
    warn_of(nans, settings, ranks, result.samples);
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

}  // namespace lockstep
