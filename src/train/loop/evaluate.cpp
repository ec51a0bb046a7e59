// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/run/progress.hpp"

#include "loop/loop.hpp"
#include "schedule/blank_step.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

constexpr std::int64_t most_rows = 250;          // limit of a leaf
constexpr std::int64_t most_outputs = 16 << 20;  // limit of a leaf: as floats they take 64 MiB
constexpr std::uint64_t most_bytes = 32 << 20;   // limit of all leaves: some steps are read ahead

// Part of the contract: kernels may depend on it.
std::int64_t rows_of_leaf(const Task& task, std::uint64_t sample_bytes, int virtual_ranks) {
    std::int64_t outputs = 1;
    for (const std::int64_t extent : task.output_shape()) outputs *= extent;
    const std::uint64_t rows =
        most_bytes / (sample_bytes * static_cast<std::uint64_t>(virtual_ranks));
    return std::clamp<std::int64_t>(
        std::min(most_outputs / outputs, static_cast<std::int64_t>(rows)), 1, most_rows);
}

// Puts the model into eval mode and back.
class EvalMode {
  public:
    explicit EvalMode(Model& model) : model_(model) { model_.set_mode(ModelMode::evaluate); }
    ~EvalMode() { model_.set_mode(ModelMode::train); }
    EvalMode& operator=(EvalMode&&) = delete;

  private:
    Model& model_;
    at::NoGradGuard no_grad_;
};

// A model that draws numbers in evaluation, too, draws the same ones for a leaf on any rank.
NamedTensors outputs_here(
    Model& model, const Task& task, const NamedTensors& inputs, std::int64_t step, int leaf) {
    torch::manual_seed((static_cast<std::uint64_t>(step) << 20) + static_cast<std::uint64_t>(leaf));
    return checked_outputs(model, task, inputs);
}

struct BadValue {
    std::size_t row = 0;
    double value = 0;
};

// Returns the first number that is not finite, or else the first that losses overflow if they
// square it; those of larger values do as well.
std::optional<BadValue> first_bad(const Batch& batch, const Field& field, std::size_t place) {
    static const double most = std::sqrt(double{std::numeric_limits<float>::max()});
    const bool is_double = field.type == ElementType::f64;
    const std::size_t rows = batch.sample_ids.size();
    if (rows == 0 || (!is_double && field.type != ElementType::f32)) return {};
    const std::span<const std::byte> bytes = batch.fields[place];
    const std::size_t elements = bytes.size() / element_bytes(field.type);
    std::optional<BadValue> large;
    for (std::size_t i = 0; i < elements; ++i) {
        const BadValue here{
            i / (elements / rows),
            is_double ? stored_number<double>(bytes, i) : double{stored_number<float>(bytes, i)}};
        if (!std::isfinite(here.value)) return here;
        if (!large && std::abs(here.value) > most) large = here;
    }
    return large;
}

// Returns the places of the model's inputs and of its target.
std::vector<std::size_t> used_places(const DatasetIndex& index, const std::string& inputs) {
    std::vector<std::size_t> places = input_places(index, inputs);
    for (std::size_t place = 0; place < index.fields().size(); ++place)
        for (const char* learned : {"labels", "targets"})
            if (index.fields()[place].name == learned) places.push_back(place);
    return places;
}

}  // namespace

Evaluator::Evaluator(std::shared_ptr<const DatasetIndex> index,
                     const DatasetIndex& trained,
                     const Communicator& ranks,
                     LeafRange leaves,
                     const TrainSettings& settings,
                     const Task& task,
                     const SamplePart& part,
                     const InputKernels* kernels)
    : index_(std::move(index)),
      task_(task),
      ranks_(ranks),
      inputs_(settings.inputs),
      input_(evaluation_input(*index_, trained, settings, task)),
      watch_(index_),
      virtual_ranks_(settings.virtual_ranks),
      samples_(static_cast<std::int64_t>(samples_in(index_->blocks(), part))),
      batch_(rows_of_leaf(task, index_->manifest().bytes_per_sample(), virtual_ranks_) *
             virtual_ranks_) {
    if (leaves.size() == 0) return;
    StreamOptions options = stream_options(settings);
    if (kernels != nullptr) options.page_lock = kernels->page_lock;
    options.order = OrderKind::sequential;
    options.batch = batch_;
    options.short_step = ShortStep::keep;
    options.first_leaf = leaves.begin;
    options.last_leaf = leaves.end;
    options.part = part;
    stream_.emplace(index_, options);
    feed_ = make_feed(*stream_, input_, kernels);
}

Evaluation Evaluator::run(Model& model, PhaseClock& clock) {
    const EvalMode mode(model);
    TaskSums leaves = sums_of_leaves(model);
    {
        const PhaseScope scope(clock, Phase::wait);
        check_files();
    }
    ranks_.all_reduce_sum(std::span(leaves.reals));
    ranks_.all_reduce_sum(std::span(leaves.counts));
    expect(leaves.counts.back() == samples_, "evaluation counts every sample once");
    leaves.counts.pop_back();
    TaskSums all = task_.no_sums();
    const std::size_t reals = all.reals.size();
    for (std::size_t i = 0; i < leaves.reals.size(); ++i) all.reals[i % reals] += leaves.reals[i];
    for (double& real : all.reals) real = without_sign_of_nan(real);
    all.counts = std::move(leaves.counts);
    const Evaluation evaluation = task_.evaluation(all, samples_);
    if (const double loss = evaluation.metrics.at("loss"); !std::isfinite(loss)) {
        if (!blamed_) blamed_ = blame();
        once(Level::warn, "the test loss is {}: {}", loss, *blamed_);
    }
    return evaluation;
}

// Collective. Goes through the samples once more, without the model.
std::string Evaluator::blame() {
    std::optional<BadSample> first;
    for (std::int64_t step = 0; step < own_steps(); ++step) {
        const std::optional<BadSample> bad = bad_sample(feed_->next(), *index_, inputs_);
        if (bad && (!first || (first->is_finite && !bad->is_finite))) first = bad;
        feed_->look_ahead();
    }
    // Texts sort by kind, then by sample.
    constexpr std::size_t key = 21;
    std::vector<std::string> all = ranks_.all_gather(
        first ? fmt::format("{:d}{:020}{}", first->is_finite, first->sample, first->text) : "");
    std::erase(all, "");
    if (all.empty())
        return "the samples are finite, so the model's outputs are not, or numbers overflow";
    return std::ranges::min_element(all)->substr(key);
}

void Evaluator::check_files() const {
    agree(ranks_, [&] { watch_.check(); });
}

// Returns the samples of all leaves: rank 0, which shows them, stands for all.
std::uint64_t Evaluator::samples_after(std::int64_t step) const {
    return static_cast<std::uint64_t>(std::min((step + 1) * batch_, samples_));
}

NanOutputs Evaluator::for_each_output(Model& model,
                                      const OutputForming& form,
                                      const OutputSink& sink) {
    const EvalMode mode(model);
    NanOutputs nans;
    Progress progress("predicting", static_cast<std::uint64_t>(samples_));
    for (std::int64_t step = 0; step < own_steps(); ++step) {
        const Batch& part = feed_->next();
        for (const LeafRows& leaf : part.leaves) {
            if (leaf.rows == 0) continue;
            const at::Tensor found =
                outputs_here(model, task_, input_.read_inputs(part, leaf), step, leaf.leaf)
                    .front()
                    .tensor.to(at::kCPU, at::kFloat);
            const at::Tensor has_nan =
                found.reshape({static_cast<std::int64_t>(leaf.rows), -1}).isnan().any(1);
            const at::Tensor outputs = form(found).contiguous(at::MemoryFormat::Contiguous);
            const std::span values(static_cast<const std::byte*>(outputs.const_data_ptr()),
                                   outputs.nbytes());
            const std::size_t width = values.size() / leaf.rows;
            for (std::size_t row = 0; row < leaf.rows; ++row) {
                const std::uint64_t sample = part.sample_ids[leaf.first_row + row];
                sink(sample, values.subspan(row * width, width));
                if (!has_nan.const_data_ptr<bool>()[row]) continue;
                ++nans.count;
                nans.first = std::min(nans.first, static_cast<std::int64_t>(sample));
            }
        }
        progress.update(samples_after(step));
    }
    return nans;
}

// Adds the leaves that have samples; all on the model's device, which may still compute.
void Evaluator::add(SampleSums& all, Model& model, const Batch& batch, std::int64_t step) {
    for (const LeafRows& leaf : batch.leaves) {
        if (leaf.rows == 0) continue;
        const LeafSamples samples = feed_->read(leaf);
        const NamedTensors outputs = outputs_here(model, task_, samples.inputs, step, leaf.leaf);
        const SampleSums found =
            task_.sums(outputs, samples.with_targets_on(outputs.front().tensor.device()));
        all.reals[step * virtual_ranks_ + leaf.leaf].copy_(found.reals);
        all.counts.add_(found.counts);
    }
}

// Reals of each leaf of each step, filled by one rank, so that their sum over ranks is exact;
// counts of this rank, samples last.
TaskSums Evaluator::sums_of_leaves(Model& model) {
    const TaskSums none = task_.no_sums();
    const at::TensorOptions there(device_of(model));
    SampleSums all{torch::zeros({steps() * virtual_ranks_, std::ssize(none.reals)},
                                there.dtype(torch::kFloat64)),
                   torch::zeros({std::ssize(none.counts)}, there.dtype(torch::kInt64))};
    std::int64_t samples = 0;
    const FailedAllocations failed(there.device());
    Progress progress("evaluating", static_cast<std::uint64_t>(samples_));
    for (std::int64_t step = 0; step < own_steps(); ++step) {
        const Batch& batch = feed_->next();
        add(all, model, batch, step);
        for (const LeafRows& leaf : batch.leaves) samples += static_cast<std::int64_t>(leaf.rows);
        feed_->look_ahead();
        progress.update(samples_after(step));
    }
    TaskSums sums = all.on_host();
    failed.check_none();
    sums.counts.push_back(samples);
    return sums;
}

std::optional<BadSample> bad_sample(const Batch& batch,
                                    const DatasetIndex& index,
                                    const std::string& inputs) {
    std::optional<BadSample> large;
    for (const std::size_t place : used_places(index, inputs)) {
        const Field& field = index.fields()[place];
        const std::optional<BadValue> bad = first_bad(batch, field, place);
        if (!bad) continue;
        const bool is_finite = std::isfinite(bad->value);
        if (large && is_finite) continue;
        const std::uint64_t sample = batch.sample_ids[bad->row];
        BadSample found{.sample = sample,
                        .text = fmt::format("'{}' of sample {} has {}: {}",
                                            field.name,
                                            grouped(sample),
                                            bad->value,
                                            row_text(index, field, sample)),
                        .field = field.name,
                        .is_finite = is_finite};
        if (!is_finite) return found;
        large = std::move(found);
    }
    return large;
}

std::optional<Error> sample_error(double loss,
                                  std::int64_t step,
                                  const Batch& batch,
                                  const DatasetIndex& index,
                                  const TrainSettings& settings) {
    const std::optional<BadSample> bad = bad_sample(batch, index, settings.inputs);
    if (!bad) return {};
    const std::string what = fmt::format("the loss is {} at step {}", loss, step);
    const bool is_target = bad->is_finite && bad->field == "targets";
    if (is_target && settings.task.scales_targets) return {};  // they are about 1 in the loss
    if (!bad->is_finite)
        return Error("E701",
                     what,
                     bad->text,
                     "the same command with --on-nonfinite skip goes on from the last "
                     "checkpoint, and leaves out steps with such samples");
    return Error(
        "E701",
        what,
        bad->text + "; its square is beyond f32's 3.4e+38",
        is_target && !index.field("targets").mean.empty()
            ? "begin a new run with --scale-targets"
            : fmt::format("scale '{}' to numbers around 1, and begin a new run", bad->field));
}

}  // namespace lockstep
