// SPDX-License-Identifier: Apache-2.0
#include "schedule/leaf_passes.hpp"

#include "lockstep/core/numbers.hpp"

#include "model/model.hpp"
#include "schedule/blank_step.hpp"

#include <array>
#include <exception>
#include <limits>
#include <numeric>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

// Returns micro-batch `part` of `parts` of a leaf: near-equal, in order.
LeafSamples part_of(const LeafSamples& leaf, int part, int parts) {
    if (parts == 1) return leaf;
    const std::int64_t rows = leaf.inputs.front().tensor.size(0), begin = rows * part / parts;
    return leaf.part(begin, rows * (part + 1) / parts - begin);
}

NamedTensors joined(const std::vector<LeafSamples>& leaves, NamedTensors LeafSamples::*which) {
    NamedTensors all = leaves.front().*which;
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::vector<at::Tensor> parts;
        for (const LeafSamples& leaf : leaves) parts.push_back((leaf.*which)[i].tensor);
        all[i].tensor = LeafCut::whole(parts);
    }
    return all;
}

// From the program's own generators: the CPU's, and the device's.
class DrawnNumbers {
  public:
    explicit DrawnNumbers(at::Device device)
        : generators_{at::globalContext().defaultGenerator(at::kCPU),
                      at::globalContext().defaultGenerator(device)} {
        for (const at::Generator& generator : generators_) states_.push_back(generator.get_state());
    }
    bool have_moved() const {
        const LeafScope::Pause pause;  // it is not the model that compares
        for (std::size_t i = 0; i < states_.size(); ++i)
            if (!at::equal(generators_[i].get_state(), states_[i])) return true;
        return false;
    }

  private:
    std::array<at::Generator, 2> generators_;
    std::vector<at::Tensor> states_;
};

// Models as they are in the middle of training: a weight of zero would hide what depends on it.
class StirredWeights {
  public:
    explicit StirredWeights(std::span<const at::Tensor> parameters) {
        const at::NoGradGuard no_gradients;
        torch::manual_seed(1);
        std::vector<at::Tensor> stirred;  // all, or memory may end with some of them in place
        for (const at::Tensor& parameter : parameters)
            stirred.push_back(parameter + 0.01 * at::randn_like(parameter));
        for (std::size_t i = 0; i < stirred.size(); ++i) {
            kept_.push_back({parameters[i], parameters[i].variable_data()});
            parameters[i].set_data(stirred[i]);
        }
    }
    ~StirredWeights() {
        for (const auto& [parameter, values] : kept_) parameter.set_data(values);
    }
    StirredWeights& operator=(StirredWeights&&) = delete;

  private:
    std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

std::vector<NamedTensors> by_leaf(const NamedTensors& tensors, const LeafCut& cut) {
    std::vector<NamedTensors> leaves(static_cast<std::size_t>(cut.leaves));
    for (const auto& [name, tensor] : tensors) {
        const std::vector<at::Tensor> parts = tensor.split(tensor.size(0) / cut.leaves);
        for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf)
            leaves[leaf].push_back({name, parts[leaf]});
    }
    return leaves;
}

at::Tensor loss_of(const Task& task,
                   const NamedTensors& outputs,
                   const LeafSamples& samples,
                   const LossTerms& terms) {
    const LeafSamples there = samples.with_targets_on(outputs.front().tensor.device());
    return task.loss(outputs, there) / static_cast<double>(terms.samples);
}

// A model that was right in the blank step may return another shape later.
NamedTensors outputs_for(Model& model, const Task& task, const LeafSamples& samples) {
    NamedTensors outputs = checked_outputs(model, task, samples.inputs);
    outputs.erase(outputs.begin() + 1, outputs.end());  // evaluation shows metrics
    return outputs;
}

// Each leaf's, of one forward pass over all.
std::vector<at::Tensor> leaf_losses(Model& model,
                                    const Task& task,
                                    const LeafSamples& samples,
                                    const LeafCut& cut,
                                    const LossTerms& terms) {
    const auto outputs = by_leaf(outputs_for(model, task, samples), cut);
    std::vector<at::Tensor> losses;
    for (std::size_t leaf = 0; leaf < outputs.size(); ++leaf) {
        const auto first = static_cast<std::int64_t>(leaf) * cut.rows;
        losses.push_back(loss_of(task, outputs[leaf], samples.part(first, cut.rows), terms));
    }
    return losses;
}

// Returns the seeds of generated leaves.
std::vector<std::uint64_t> numbered_seeds(const LeafCut& cut) {
    std::vector<std::uint64_t> seeds(static_cast<std::size_t>(cut.leaves));
    std::iota(seeds.begin(), seeds.end(), 1);
    return seeds;
}

std::string cannot_take(const std::exception& error) {
    return "the model cannot take them: " + reason_of(error);
}

constexpr const char* shared_numbers = "random numbers of all samples at once";
constexpr const char* read_values = "the model reads values, as item() does";

// Returns the obstacle: a change by a forward pass over all leaves at once that a single leaf would
// not make.
std::string obstacle_of(const LeafScope& scope, const DrawnNumbers& drawn, const Model& model) {
    if (drawn.have_moved()) return shared_numbers;
    if (scope.read().empty()) return "";
    std::set<const void*> alike;  // for all leaves
    for (const NamedTensors& tensors : {model.parameters(), model.buffers(), model.frozen()})
        for (const NamedTensor& one : tensors) alike.insert(one.tensor.storage().data());
    const bool is_alike =
        std::ranges::all_of(scope.read(), [&](const void* from) { return alike.contains(from); });
    return is_alike ? "" : read_values;
}

constexpr double longest_to_time_s = 1;

// Until `device` has done it.
template <class Work>
double seconds_of(at::Device device, Work&& work) {
    const double begin_s = now_s();
    work();
    if (!device.is_cpu())
        c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    return now_s() - begin_s;
}

}  // namespace

double CaptureVerdict::speed(int leaves, int computed_leaves) const {
    if (replayed == 0) return 0;
    return leaves / ((leaves - computed_leaves) / replayed + computed_leaves / computed);
}

LeafSamples joined(const std::vector<LeafSamples>& leaves) {
    LeafSamples all{.inputs = joined(leaves, &LeafSamples::inputs),
                    .targets = joined(leaves, &LeafSamples::targets)};
    if (!leaves.front().weights.defined()) return all;
    std::vector<at::Tensor> weights;
    for (const LeafSamples& leaf : leaves) weights.push_back(leaf.weights);
    all.weights = LeafCut::whole(weights);
    return all;
}

std::string leaves_obstacle(Model& model,
                            const Task& task,
                            const ModelShape& shape,
                            const LeafCut& cut) {
    const KeptBuffers kept(model);
    const at::Device device = device_of(model);
    const DrawnNumbers drawn(device);
    std::vector<at::Tensor> parameters;
    for (const NamedTensor& parameter : model.parameters()) parameters.push_back(parameter.tensor);
    LeafVerdicts verdicts;
    LeafScope scope(cut, numbered_seeds(cut), verdicts, device);
    try {
        const std::vector<at::Tensor> losses =
            leaf_losses(model, task, blank_samples(task, shape, cut.samples()), cut, {});
        const std::string obstacle = obstacle_of(scope, drawn, model);
        if (!obstacle.empty()) return obstacle;
        return LeafGraph(losses, {.parameters = parameters}, cut, &scope).unknown();
    } catch (const std::exception& error) {
        return cannot_take(error);
    }
}

void LeafPasses::compute(const LeafSamples& leaf,
                         int parts,
                         const LossTerms& terms,
                         Capture capture) {
    for (int part = 0; part < parts; ++part) {
        if (part > 0) replica_.next_micro_batch();
        const LeafSamples samples = part_of(leaf, part, parts);
        if (Recording* const known = capture == Capture::yes ? recorded(samples, terms) : nullptr) {
            captured_->replay(*known, samples);
            continue;
        }
        const FailedAllocations failed(device_of(replica_.model()));
        const at::Tensor value = [&] {
            const PhaseScope scope(clock_, Phase::forward);
            return forward(samples, terms);
        }();
        const PhaseScope scope(clock_, Phase::backward);
        backward(value, samples.inputs.front().tensor.size(0), parts);
        failed.check_none();
    }
}

at::Tensor LeafPasses::forward(const LeafSamples& samples, const LossTerms& terms) {
    const NamedTensors outputs = outputs_for(replica_.model(), task_, samples);
    const at::Tensor sum = loss_of(task_, outputs, samples, terms);
    replica_.add(StepScalar::loss_sum, sum);
    return terms.scale == 1 ? sum : sum * terms.scale;
}

void LeafPasses::backward(const at::Tensor& value, std::int64_t rows, int parts) {
    const auto run = [&] {
        in_model(replica_.model().author(), ModelPlace::backward, [&] { value.backward(); });
    };
    if (parts > 1 || !value.is_cpu()) return run();
    LeafGraph graph({value}, replica_.places(), {.leaves = 1, .rows = rows}, nullptr);
    graph.take(Taking::products, replica_.sums());
    run();
    graph.finish();
}

LeafPasses::Recording* LeafPasses::recorded(const LeafSamples& samples, const LossTerms& terms) {
    if (captured_way_ != CaptureWay::one_by_one) return nullptr;
    at::Tensor value;
    return captured_->find(
        samples,
        terms,
        1,
        {.before = {},
         .forward = [&](Recording& made) { value = forward(made.samples, terms); },
         .backward = [&](Recording&) { value.backward(); }});
}

LeafPasses::Recording* LeafPasses::recorded_together(const JoinedLeaves& leaves) {
    if (captured_way_ != CaptureWay::together) return nullptr;
    const LeafSums sums = replica_.sums_together();
    std::optional<LeafScope> scope;
    std::vector<at::Tensor> losses;
    const auto before = [&](Recording& made) {
        scope.emplace(leaves.cut, leaves.seeds, verdicts_, device_of(replica_.model()));
        made.draws.assign(scope->generators().begin(), scope->generators().end());
    };
    const auto forward = [&](Recording& made) {
        losses = forward_together(made.samples, leaves, made.results);
    };
    const auto backward = [&](Recording& made) {
        ParameterPlaces places = replica_.places();
        places.ready = [&](std::size_t parameter) { made.reached.push_back(parameter); };
        LeafGraph graph(losses, places, leaves.cut, &*scope);
        backward_together(losses, graph, sums);
        made.buffers = std::move(scope->buffers);
    };
    return captured_->find(leaves.samples,
                           leaves.terms,
                           leaves.cut.leaves,
                           {.before = before, .forward = forward, .backward = backward});
}

// Each leaf's, as backward begins with them.
std::vector<at::Tensor> LeafPasses::forward_together(const LeafSamples& samples,
                                                     const JoinedLeaves& leaves,
                                                     std::vector<LeafResult>& results) {
    std::vector<at::Tensor> losses =
        leaf_losses(replica_.model(), task_, samples, leaves.cut, leaves.terms);
    results.resize(losses.size());
    for (std::size_t leaf = 0; leaf < losses.size(); ++leaf) {
        results[leaf].loss = losses[leaf].detach();
        if (leaves.terms.scale != 1) losses[leaf] = losses[leaf] * leaves.terms.scale;
    }
    return losses;
}

void LeafPasses::backward_together(const std::vector<at::Tensor>& losses,
                                   LeafGraph& graph,
                                   const LeafSums& sums) {
    graph.take(Taking::all, sums);
    in_model(replica_.model().author(), ModelPlace::backward, [&] {
        torch::autograd::backward(losses, std::vector<at::Tensor>(losses.size()));
    });
    graph.finish();
}

std::string LeafPasses::compute_together(const JoinedLeaves& leaves,
                                         const LeafScalars& wishes,
                                         Capture capture) {
    if (Recording* const known = capture == Capture::yes ? recorded_together(leaves) : nullptr) {
        replica_.begin_together();
        captured_->replay(*known, leaves.samples, leaves.seeds);
        known->results.front().wishes = wishes;
        replica_.end_together(known->buffers, known->results);
        return "";
    }
    const at::Device device = device_of(replica_.model());
    const FailedAllocations failed(device);
    const DrawnNumbers drawn(device);
    LeafScope scope(leaves.cut, leaves.seeds, verdicts_, device);
    std::vector<LeafResult> results;
    const std::vector<at::Tensor> losses = [&] {
        const PhaseScope phase(clock_, Phase::forward);
        return forward_together(leaves.samples, leaves, results);
    }();
    results.front().wishes = wishes;
    if (const std::string why = obstacle_of(scope, drawn, replica_.model()); !why.empty())
        return why;
    {
        const PhaseScope phase(clock_, Phase::backward);
        LeafGraph graph(losses, replica_.places(), leaves.cut, &scope);
        if (walk_ == Walk::counts && !graph.unknown().empty()) return graph.unknown();
        replica_.begin_together();
        backward_together(losses, graph, replica_.sums());
        failed.check_none();
    }
    replica_.end_together(scope.buffers, results);
    return "";
}

JoinedLeaves LeafPasses::blank_leaves(const LeafCut& cut, const LossTerms& terms) const {
    return {blank_samples(task_, shape_, cut.samples()), cut, numbered_seeds(cut), terms};
}

// Returns the peak memory of tensors of one leaf.
std::uint64_t LeafPasses::rehearse_one_by_one(const JoinedLeaves& leaves) {
    const PeakMemory memory;
    replica_.begin_rehearsal();
    for (std::int64_t leaf = 0; leaf < leaves.cut.leaves; ++leaf) {
        replica_.begin_leaf(1);
        torch::manual_seed(leaves.seeds[static_cast<std::size_t>(leaf)]);
        compute(leaves.samples.part(leaf * leaves.cut.rows, leaves.cut.rows), 1, leaves.terms);
        replica_.end_leaf();
    }
    return memory.bytes();
}

std::string LeafPasses::rehearse_together(const JoinedLeaves& leaves, Capture capture) {
    replica_.begin_rehearsal();
    try {
        return compute_together(leaves, {}, capture);
    } catch (const c10::OutOfMemoryError&) {
        throw;
    } catch (const std::exception& error) {
        throw_if_known(error);
        return cannot_take(error);
    }
}

std::string LeafPasses::leaf_hash(std::int64_t rows, const LossTerms& terms) {
    const StirredWeights stirred(replica_.places().parameters);
    static_cast<void>(rehearse_one_by_one(blank_leaves({.leaves = 1, .rows = rows}, terms)));
    std::string hash = replica_.sums_hash();
    replica_.end_rehearsal();
    return hash;
}

std::optional<LeafSpeed> LeafPasses::speed(const LeafCut& cut, const LossTerms& terms) {
    if (together_s_ > longest_to_time_s) return {};
    const at::Device device = device_of(replica_.model());
    const JoinedLeaves leaves = blank_leaves(cut, terms);
    double together_s = std::numeric_limits<double>::infinity(), as_one_s = together_s;
    const auto as_one = [&] { compute(leaves.samples, 1, terms); };
    const auto together = [&] { static_cast<void>(rehearse_together(leaves)); };
    try {
        for (int pass = 0; pass < 2; ++pass) {  // the first of one leaf prepares kernels
            together_s = std::min(together_s, seconds_of(device, together));
            replica_.begin_rehearsal();
            replica_.begin_leaf(1);
            as_one_s = std::min(as_one_s, seconds_of(device, as_one));
            replica_.end_leaf();
        }
    } catch (const c10::OutOfMemoryError&) {  // of one leaf, which no step computes
        replica_.end_rehearsal();
        return {};
    }
    replica_.end_rehearsal();
    const auto count = static_cast<double>(cut.samples());
    return LeafSpeed{.together = count / together_s, .as_one = count / as_one_s};
}

std::string LeafPasses::compare_ways(const JoinedLeaves& leaves, std::uint64_t most_bytes) {
    const std::uint64_t all =
        rehearse_one_by_one(leaves) * static_cast<std::uint64_t>(leaves.cut.leaves);
    const std::string one_by_one = replica_.sums_hash();
    if (all > most_bytes)
        return fmt::format("{} samples at once would take {}",
                           grouped(static_cast<std::uint64_t>(leaves.cut.samples())),
                           bytes_text(all));
    std::string why;
    together_s_ = seconds_of(device_of(replica_.model()), [&] { why = rehearse_together(leaves); });
    if (why.empty() && replica_.sums_hash() != one_by_one) why = "bits differ";
    return why;
}

// A rehearsal, of which the replica keeps nothing.
std::string LeafPasses::rehearsed(const std::function<std::string()>& work) {
    std::string why;
    try {
        const StirredWeights stirred(replica_.places().parameters);
        why = work();
    } catch (const c10::OutOfMemoryError&) {  // training by itself may fit
        why = "comparing takes more than the GPU's memory";
    }
    replica_.end_rehearsal();
    return why;
}

std::string LeafPasses::rehearse(const LeafCut& cut,
                                 const LossTerms& terms,
                                 std::uint64_t most_bytes,
                                 Walk walk) {
    walk_ = walk;
    return rehearsed([&] { return compare_ways(blank_leaves(cut, terms), most_bytes); });
}

// Two sets of other samples and other random numbers, each computed and then replayed: what a
// recording keeps of the first one would show in the second.
std::string LeafPasses::compare_captured(const RehearsedPass& pass) {
    const auto hash_of = [&](std::size_t which, Capture capture) {
        pass(which, capture);
        return replica_.sums_hash();
    };
    const std::array computed{hash_of(0, Capture::no), hash_of(1, Capture::no)};
    static_cast<void>(hash_of(0, Capture::yes));  // the first time of its shapes
    for (const std::size_t which : {0, 1, 0}) {
        const std::string replayed = hash_of(which, Capture::yes);
        if (!captured_->why_not().empty()) return captured_->why_not();
        if (replayed != computed[which]) return "bits differ";
    }
    return "";
}

CaptureVerdict LeafPasses::rehearse_capture(const MakeDeviceGraph& make,
                                            CaptureWay way,
                                            const LeafCut& cut,
                                            int parts,
                                            const LossTerms& terms) {
    make_graph_ = make;
    choose_capture(way);
    const bool is_together = way == CaptureWay::together;
    const std::int64_t rows = is_together ? cut.samples() : cut.rows;
    CaptureVerdict verdict;
    verdict.why_not = rehearsed([&] {
        const at::Device device = device_of(replica_.model());
        LeafSamples samples = blank_samples(task_, shape_, 2 * rows).with_targets_on(device);
        samples.inputs = moved_to(device, std::move(samples.inputs));
        const std::array sets{samples.part(0, rows), samples.part(rows, rows)};
        const auto pass = [&](std::size_t which, Capture capture) {
            if (is_together) {
                JoinedLeaves leaves{sets[which], cut, numbered_seeds(cut), terms};
                for (std::uint64_t& seed : leaves.seeds) seed += which * leaves.seeds.size();
                static_cast<void>(rehearse_together(leaves, capture));
                return;
            }
            replica_.begin_rehearsal();
            replica_.begin_leaf(parts);
            torch::manual_seed(which + 1);
            compute(sets[which], parts, terms, capture);
            replica_.end_leaf();
        };
        const auto speed = [&](Capture capture) {
            const auto again = [&] { pass(0, capture); };
            const double first_s = seconds_of(device, again), second_s = seconds_of(device, again);
            return static_cast<double>(rows) / std::min(first_s, second_s);
        };
        std::string why = compare_captured(pass);
        if (why.empty())
            verdict = {.computed = speed(Capture::no), .replayed = speed(Capture::yes)};
        return why;
    });
    choose_capture({});
    return verdict;
}

void LeafPasses::choose_capture(std::optional<CaptureWay> way) {
    if (captured_) captured_->forget();
    captured_way_ = way;
    captured_ = way ? std::make_unique<CapturedPasses>(replica_, clock_, make_graph_) : nullptr;
}

}  // namespace lockstep
