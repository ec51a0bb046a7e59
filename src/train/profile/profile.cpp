// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/profile.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/numbers.hpp"

#include "model/model_file.hpp"
#include "profile/operator_ledger.hpp"
#include "replica/numerics.hpp"
#include "schedule/blank_step.hpp"

#include <algorithm>
#include <functional>

#include <ATen/Functions.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>

namespace lockstep {
namespace {

// Returns the floating-point operations of a call by its arguments' shapes: a multiplication and an
// addition count as two.
using FlopFormula = std::uint64_t (*)(OperatorInputs inputs);

std::uint64_t product(at::IntArrayRef sizes) {
    std::uint64_t all = 1;
    for (const std::int64_t size : sizes) all *= static_cast<std::uint64_t>(size);
    return all;
}

at::IntArrayRef sizes_of(OperatorInputs inputs, std::size_t place) {
    return inputs[place].toTensor().sizes();
}

// [..., n, k] by [..., k, m].
template <std::size_t first>
std::uint64_t matrix_product(OperatorInputs inputs) {
    return 2 * product(sizes_of(inputs, first)) *
           static_cast<std::uint64_t>(sizes_of(inputs, first + 1).back());
}

// Weights are [out, in / groups, ...]. Each element that a convolution gives is a sum over one of
// their rows; of a transposed one each that it takes goes into as many.
std::uint64_t kernel_products(at::IntArrayRef elements, at::IntArrayRef weight) {
    return 2 * product(elements) * product(weight.slice(1));
}

// A list of one number is meant for all dimensions.
std::int64_t at_dimension(const std::vector<std::int64_t>& list, std::size_t dimension) {
    return list.size() == 1 ? list[0] : list[dimension];
}

std::uint64_t convolution(OperatorInputs inputs) {
    const at::IntArrayRef input = sizes_of(inputs, 0), weight = sizes_of(inputs, 1);
    if (inputs[6].toBool()) return kernel_products(input, weight);
    const auto stride = inputs[3].toIntVector(), padding = inputs[4].toIntVector(),
               dilation = inputs[5].toIntVector();
    std::vector<std::int64_t> output{input[0], weight[0]};
    for (std::size_t d = 0; d + 2 < weight.size(); ++d) {
        const std::int64_t kernel = at_dimension(dilation, d) * (weight[d + 2] - 1) + 1;
        const std::int64_t padded = input[d + 2] + 2 * at_dimension(padding, d);
        output.push_back((padded - kernel) / at_dimension(stride, d) + 1);
    }
    return kernel_products(output, weight);
}

// The gradients of inputs and of weights, where they are asked for, take as much as forward each.
std::uint64_t convolution_backward(OperatorInputs inputs) {
    const std::size_t elements = inputs[7].toBool() ? 1 : 0;
    const auto wanted = inputs[10].toBoolList();
    return (std::uint64_t{wanted.get(0)} + std::uint64_t{wanted.get(1)}) *
           kernel_products(sizes_of(inputs, elements), sizes_of(inputs, 2));
}

// Returns the products of queries [B, H, L, E], keys [B, H, S, E] and values [B, H, S, F]: some are
// E wide, and some F wide. Masked ones count, too.
template <std::size_t queries, std::uint64_t of_keys, std::uint64_t of_values>
std::uint64_t attention(OperatorInputs inputs) {
    const at::IntArrayRef q = sizes_of(inputs, queries), k = sizes_of(inputs, queries + 1),
                          v = sizes_of(inputs, queries + 2);
    const std::uint64_t pairs = product(q.slice(0, 3)) * static_cast<std::uint64_t>(k[2]);
    return 2 * pairs *
           (of_keys * static_cast<std::uint64_t>(q[3]) +
            of_values * static_cast<std::uint64_t>(v[3]));
}

constexpr std::pair<std::string_view, FlopFormula> formulas[] = {
    {"aten::mm", matrix_product<0>},
    {"aten::bmm", matrix_product<0>},
    {"aten::addmm", matrix_product<1>},
    {"aten::baddbmm", matrix_product<1>},
    {"aten::convolution", convolution},
    {"aten::_convolution", convolution},
    {"aten::convolution_backward", convolution_backward},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", attention<0, 1, 1>},
    // The scores once more, and the gradients of scores, queries, keys and values.
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention<1, 3, 2>}};

// Returns the formula of the operator "aten::addmm" and similar: products of matrices, convolutions
// and attention. nullptr if none is known.
FlopFormula find_flop_formula(std::string_view name) {
    const auto* found =
        std::ranges::find(formulas, name, &std::pair<std::string_view, FlopFormula>::first);
    return found == std::end(formulas) ? nullptr : found->second;
}

// "conv1" of "conv1.weight".
std::string module_of(const std::string& parameter) {
    const std::size_t dot = parameter.rfind('.');
    return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

// Holds the ledger for callbacks, which are plain functions; the allocator reads it, too.
OperatorLedger* watching() {
    return static_cast<OperatorLedger*>(
        c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE));
}

std::unique_ptr<at::ObserverContext> note_begin(const at::RecordFunction& call) {
    if (OperatorLedger* ledger = watching()) ledger->begin_call(call);
    return nullptr;
}

void note_end(const at::RecordFunction& call, at::ObserverContext*) {
    if (OperatorLedger* ledger = watching()) ledger->end_call(call);
}

constexpr int warm_up_steps = 2;

struct StepTimes {
    double forward_s = 0, backward_s = 0;
};

void forget_gradients(const Model& model) {
    for (const auto& [name, parameter] : model.parameters()) parameter.mutable_grad().reset();
}

// Backward begins after `between`, with a gradient of ones.
StepTimes take_step(
    Model& model, const NamedTensors& inputs, const std::function<void()>& between = [] {}) {
    const double begin_s = now_s();
    const at::Tensor output = outputs_of(model, inputs).front().tensor;
    const double middle_s = now_s();
    between();
    const at::Tensor gradient = [&] {
        const at::RecordFunctionGuard unseen(false);
        return at::ones_like(output);
    }();
    const double resumed_s = now_s();
    in_model(model.author(), ModelPlace::backward, [&] { output.backward(gradient); });
    return {middle_s - begin_s, now_s() - resumed_s};
}

// Watched steps and others take turns, so that both meet the machine in the same state.
void take_steps(Model& model,
                const NamedTensors& inputs,
                std::int64_t steps,
                const std::shared_ptr<OperatorLedger>& ledger,
                ModelProfile& profile) {
    std::vector<double> forward_s, backward_s;
    for (std::int64_t i = 0; i < steps; ++i) {
        forget_gradients(model);
        const StepTimes times = take_step(model, inputs);
        forward_s.push_back(times.forward_s);
        backward_s.push_back(times.backward_s);
        forget_gradients(model);
        const OperatorWatch watch(ledger);
        ledger->begin_step();
        take_step(model, inputs, [&] { ledger->begin_backward(); });
    }
    profile.forward_s = median_of(forward_s);
    profile.backward_s = median_of(backward_s);
}

}  // namespace

OperatorLedger::OperatorLedger(const Model& model) {
    for (const NamedTensor& parameter : model.parameters()) {
        const std::size_t layer = layer_named(module_of(parameter.name));
        layers_[layer].cost.parameters += parameter.tensor.numel();
        owners_[parameter.tensor.storage().data()] = layer;
    }
}

std::size_t OperatorLedger::layer_named(const std::string& name) {
    const auto [place, is_new] = places_.try_emplace(name, layers_.size());
    if (is_new) layers_.push_back({.cost = {.name = name, .output = {}}, .first_use = {}});
    return place->second;
}

void OperatorLedger::begin_step() {
    pass_ = StepPass::forward;
    layer_ = 0;
    blocks_.clear();
    live_bytes_ = 0;
    sequence_.clear();
    for (Layer& layer : layers_) layer.cost.activation_bytes = 0;
}

void OperatorLedger::begin_backward() {
    pass_ = StepPass::backward;
    for (const auto& [place, block] : blocks_)
        if (block.layer) layers_[*block.layer].cost.activation_bytes += block.bytes;
}

std::optional<std::size_t> OperatorLedger::layer_of(const at::Tensor& tensor) const {
    if (!tensor.defined() || !tensor.has_storage()) return std::nullopt;
    const auto owner = owners_.find(tensor.storage().data());
    return owner == owners_.end() ? std::nullopt : std::optional(owner->second);
}

std::optional<std::size_t> OperatorLedger::layer_of(OperatorInputs inputs) const {
    for (const c10::IValue& input : inputs) {
        if (input.isTensor())
            if (const auto layer = layer_of(input.toTensor())) return layer;
        if (input.isTensorList())
            for (const at::Tensor& tensor : input.toTensorVector())
                if (const auto layer = layer_of(tensor)) return layer;
    }
    return std::nullopt;
}

// The engine's own calls around a node, and those that add up gradients, have no number.
void OperatorLedger::begin_node(const at::RecordFunction& call) {
    const auto made = std::ranges::upper_bound(
        sequence_, call.seqNr(), {}, [](const auto& one) { return std::int64_t(one.first); });
    if (made != sequence_.begin()) layer_ = std::prev(made)->second;
}

void OperatorLedger::begin_outermost(const at::RecordFunction& call, Call& begun) {
    begun.layer = scopes_.empty() ? layer_of(call.inputs()) : std::optional(scopes_.back());
    if (begun.layer) layer_ = *begun.layer;
    if (!layers_[layer_].first_use) layers_[layer_].first_use = used_++;
    sequence_.emplace_back(at::sequence_number::peek(), layer_);
}

void OperatorLedger::begin_call(const at::RecordFunction& call) {
    if (call.scope() == at::RecordScope::USER_SCOPE) {
        scopes_.push_back(layer_named(call.name()));
        return;
    }
    if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) begin_node(call);
    if (swallowed_ > 0 || (!calls_.empty() && calls_.back().flops)) {
        ++swallowed_;
        return;
    }
    Call begun{.name = call.name(), .flops = {}, .layer = {}};
    if (calls_.empty() && pass_ == StepPass::forward) begin_outermost(call, begun);
    if (const FlopFormula formula = find_flop_formula(begun.name))
        begun.flops = formula(call.inputs());
    begun.begin_s = now_s();
    calls_.push_back(std::move(begun));
}

void OperatorLedger::end_call(const at::RecordFunction& call) {
    const double end_s = now_s();
    if (call.scope() == at::RecordScope::USER_SCOPE) {
        if (!scopes_.empty()) scopes_.pop_back();
        return;
    }
    if (swallowed_ > 0) {
        --swallowed_;
        return;
    }
    if (calls_.empty()) return;  // it began before the watch
    const Call ended = std::move(calls_.back());
    calls_.pop_back();
    const double whole_s = end_s - ended.begin_s;
    LayerCost& cost = layers_[layer_].cost;
    double& of_layer = pass_ == StepPass::forward ? cost.forward_s : cost.backward_s;
    (calls_.empty() ? of_layer : calls_.back().inner_s) += whole_s;
    Tally& tally = tallies_[{pass_, ended.name}];
    ++tally.calls;
    tally.self_s += whole_s - ended.inner_s;
    tally.flops += ended.flops.value_or(0);
    tally.has_flops = tally.has_flops || ended.flops;
    if (ended.layer) note_output(*ended.layer, call.outputs());
}

// A view of a parameter is not what its layer gives.
void OperatorLedger::note_output(std::size_t layer, const std::vector<c10::IValue>& outputs) {
    if (outputs.empty() || !outputs[0].isTensor()) return;
    const at::Tensor& output = outputs[0].toTensor();
    if (output.defined() && !layer_of(output)) layers_[layer].cost.output = output.sizes().vec();
}

void OperatorLedger::reportMemoryUsage(
    void* place, std::int64_t bytes, std::size_t, std::size_t, c10::Device) {
    if (bytes > 0) {
        const auto taken = static_cast<std::uint64_t>(bytes);
        blocks_[place] = {taken, pass_ == StepPass::forward ? std::optional(layer_) : std::nullopt};
        live_bytes_ += taken;
        peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    } else if (const auto block = blocks_.find(place); block != blocks_.end()) {
        live_bytes_ -= block->second.bytes;
        blocks_.erase(block);
    }
}

std::vector<OperatorCost> OperatorLedger::operators(std::int64_t steps) const {
    std::vector<OperatorCost> costs;
    for (const auto& [key, tally] : tallies_) {
        OperatorCost cost{.pass = key.first, .name = key.second, .flops = {}};
        cost.calls = static_cast<double>(tally.calls) / static_cast<double>(steps);
        cost.self_s = tally.self_s / static_cast<double>(steps);
        if (tally.has_flops) cost.flops = tally.flops / static_cast<std::uint64_t>(steps);
        costs.push_back(std::move(cost));
    }
    std::ranges::stable_sort(costs, std::ranges::greater(), &OperatorCost::self_s);
    return costs;
}

std::vector<LayerCost> OperatorLedger::layers(std::int64_t steps) const {
    std::vector<Layer> sorted = layers_;
    std::ranges::stable_sort(
        sorted, {}, [](const Layer& one) { return one.first_use.value_or(SIZE_MAX); });
    std::vector<LayerCost> costs;
    for (Layer& layer : sorted) {
        layer.cost.forward_s /= static_cast<double>(steps);
        layer.cost.backward_s /= static_cast<double>(steps);
        costs.push_back(std::move(layer.cost));
    }
    return costs;
}

OperatorWatch::OperatorWatch(std::shared_ptr<OperatorLedger> ledger)
    : info_(c10::DebugInfoKind::PROFILER_STATE, std::move(ledger)),
      callback_(at::addThreadLocalCallback(at::RecordFunctionCallback(note_begin, note_end)
                                               .needsInputs(true)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION,
                                                        at::RecordScope::BACKWARD_FUNCTION,
                                                        at::RecordScope::USER_SCOPE}))) {}

OperatorWatch::~OperatorWatch() {
    at::removeCallback(callback_);
}

ModelProfile profile_model(const ProfileSettings& settings) {
    TrainSettings arithmetic;
    arithmetic.threads = settings.threads;
    arithmetic.instruction_set = settings.instruction_set;
    settle_arithmetic(Communicator(), read_node_facts().instruction_set, arithmetic);
    const auto model = open_model(settings.model, settings.shape, 1);
    const NamedTensors inputs = blank_inputs(settings.shape, settings.batch);
    model->set_mode(ModelMode::train);
    ModelProfile profile{.output = outputs_of(*model, inputs).front().tensor.sizes().vec()};
    for (const NamedTensor& one : inputs) profile.inputs.push_back(one.tensor.sizes().vec());
    for (int i = 0; i < warm_up_steps; ++i) take_step(*model, inputs);
    const auto ledger = std::make_shared<OperatorLedger>(*model);
    take_steps(*model, inputs, settings.steps, ledger, profile);
    profile.operators = ledger->operators(settings.steps);
    profile.layers = ledger->layers(settings.steps);
    profile.peak_bytes = ledger->peak_bytes();
    return profile;
}

}  // namespace lockstep
