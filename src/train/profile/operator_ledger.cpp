// SPDX-License-Identifier: Apache-2.0
#include "profile/operator_ledger.hpp"

#include "lockstep/core/clock.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// "conv1" of "conv1.weight".
std::string module_of(const std::string& parameter) {
    const std::size_t dot = parameter.rfind('.');
    return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

// Where callbacks, which are plain functions, find the ledger: the allocator looks there, too.
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

}  // namespace

OperatorLedger::OperatorLedger(const Model& model) {
    for (const NamedTensor& parameter : model.parameters()) add_parameter(parameter);
}

void OperatorLedger::add_parameter(const NamedTensor& parameter) {
    const std::string name = module_of(parameter.name);
    auto layer = std::ranges::find(layers_, name, &LayerCost::name);
    if (layer == layers_.end()) layer = layers_.insert(layer, {.name = name, .output = {}});
    layer->parameters += parameter.tensor.numel();
    owners_[parameter.tensor.storage().data()] = static_cast<std::size_t>(layer - layers_.begin());
}

void OperatorLedger::begin_step() {
    pass_ = StepPass::forward;
    layer_ = 0;
    blocks_.clear();
    live_bytes_ = 0;
    for (LayerCost& layer : layers_) layer.activation_bytes = 0;
}

void OperatorLedger::begin_backward() {
    pass_ = StepPass::backward;
    for (const auto& [place, block] : blocks_)
        if (block.layer) layers_[*block.layer].activation_bytes += block.bytes;
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

void OperatorLedger::begin_call(const at::RecordFunction& call) {
    if (swallowed_ > 0 || (!calls_.empty() && calls_.back().flops)) {
        ++swallowed_;
        return;
    }
    Call begun{.name = call.name(), .flops = {}, .layer = {}};
    if (calls_.empty() && pass_ == StepPass::forward) begun.layer = layer_of(call.inputs());
    if (begun.layer) layer_ = *begun.layer;
    if (const FlopFormula formula = find_flop_formula(begun.name))
        begun.flops = formula(call.inputs());
    begun.begin_s = now_s();
    calls_.push_back(std::move(begun));
}

void OperatorLedger::end_call(const at::RecordFunction& call) {
    const double end_s = now_s();
    if (swallowed_ > 0) {
        --swallowed_;
        return;
    }
    if (calls_.empty()) return;  // it began before the watch
    const Call ended = std::move(calls_.back());
    calls_.pop_back();
    const double whole_s = end_s - ended.begin_s;
    if (!calls_.empty()) calls_.back().inner_s += whole_s;
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
    if (output.defined() && !layer_of(output)) layers_[layer].output = output.sizes().vec();
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

OperatorWatch::OperatorWatch(std::shared_ptr<OperatorLedger> ledger)
    : info_(c10::DebugInfoKind::PROFILER_STATE, std::move(ledger)),
      callback_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(note_begin, note_end)
              .needsInputs(true)
              .needsOutputs(true)
              .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}))) {}

OperatorWatch::~OperatorWatch() {
    at::removeCallback(callback_);
}

}  // namespace lockstep
