// SPDX-License-Identifier: Apache-2.0
// A model's tensors are objects for the model; for all code that moves or updates numbers they are
// one vector:
//
//     | parameters, as backward finishes them | float buffers | counters | step's scalars |
//       each at a 64-byte line, in buckets      the state bucket, averaged or summed
//
//     values    what all ranks see; parameters are views of it, so that publish() updates the model
//     slot      one leaf's (or partial sum's) gradients; .grad() of each parameter is a view of it
//
// No gradient is copied into a bucket or out of it: autograd adds directly into the slot, and a
// hook notifies the reducer. Each rank updates the stripes that it owns, and has only their
// optimizer state.
//
// Integer buffers (batch counters) travel as the float increment of a leaf, not as numbers:
// increments are small and exact in a float, and their mean over the leaves is the increment of a
// single leaf.
//
// A parameter that no leaf of a step reaches has no gradient, which differs from a gradient of
// zeros: the parameter stays, and so does its optimizer state. Each leaf that does not reach it
// fills its place with -0. A gradient that autograd adds to zeros is never -0, x + -0 is x, and -0
// + -0 is -0. So the owner of a part of the sum sees there whether no leaf of any rank has reached
// it.
//
// What must never happen:
// - Autograd puts a gradient elsewhere. It replaces .grad() in some cases instead of adding to it;
//   the slot would keep zeros, and training would go on, wrong and without a sign: ready() looks.
// - A leaf begins with what the leaf before it left in the buffers: running statistics start each
//   leaf from the step's start.
// - A step begins while values and their average are exchanged: the average would be trained.
// - A step that is skipped leaves a trace: counters and buffers, too, stay as at its start.
// - The host waits for what the sums of a step decide before it has asked for the update.
// - A norm counts parameters twice: nodes hold equal copies, and only the first copy is added.
// - Whether a parameter has a gradient depends on how leaves are spread over ranks, or costs a
//   message.
//
// Tested: train/replica/replica_test.cpp (views keep values, gradients equal autograd's own,
// buffers and counters of several leaves, tensors and hash), e2e/verify_test.cpp,
// simcuda/update_test.cpp (updates on GPUs: one CPU's bits, no trace of a skipped step, waits).

#include "replica/replica.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

namespace lockstep {
namespace {

constexpr std::size_t decision_floats = sizeof(UpdateDecision) / sizeof(float);

// Returns the name of a checkpoint's counter besides the model's.
std::string missed_name(const FlatTensor& parameter) {
    return "optimizer.missed." + parameter.name;
}

FloatRange common(FloatRange a, FloatRange b) {
    const std::size_t begin = std::max(a.begin, b.begin);
    return {begin, std::max(begin, std::min(a.end, b.end))};
}

double sum_of_squares(std::span<const float> values) {
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value) * value;
    return sum;
}

// A square may be too large where its root is not: measuring it must not make a step one to skip.
float finite_float(double value) {
    return static_cast<float>(
        std::min(value, static_cast<double>(std::numeric_limits<float>::max()) / 65536));
}

// The part of `tensor`'s elements that lies in `part` of the flat vector.
void copy_part(FlatMemory& memory,
               const at::Tensor& tensor,
               const FlatTensor& place,
               float* values,
               FloatRange part) {
    const FloatRange range = common(place.range, part);
    if (range.size() == 0) return;
    const at::Tensor dense = tensor.detach().contiguous();
    memory.copy(values + range.begin,
                dense.const_data_ptr<float>() + (range.begin - place.range.begin),
                range.size());
}

c10::Stream current_stream(at::Device device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// The part of the newest tensor, at `place`, that lies in `stripe`, whose values are `data`.
void add_piece(ReplicaTensors& all, const FlatTensor& place, FloatRange stripe, float* data) {
    const FloatRange range = common(place.range, stripe);
    if (range.size() == 0) return;
    all.pieces.push_back({all.metas.size() - 1,
                          range.begin - place.range.begin,
                          range.size(),
                          data + (range.begin - stripe.begin)});
}

// Only this hooks a parameter; leaf_graph.cpp hooks operators.
struct GradientHook : torch::autograd::PostAccumulateGradHook {
    explicit GradientHook(std::function<void(const at::Tensor&)> told) : ready(std::move(told)) {}
    void operator()(const at::Tensor& complete) override { ready(complete); }

    std::function<void(const at::Tensor&)> ready;
};

}  // namespace

void on_gradient(const at::Tensor& parameter, std::function<void(const at::Tensor&)> ready) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameter, std::make_unique<GradientHook>(std::move(ready)));
}

Replica::Replica(Parts parts)
    : parts_(std::move(parts)),
      memory_(parts_.exchange->memory()),
      values_(parts_.exchange->values()),
      reducer_(parts_.layout->flat(),
               parts_.plan,
               parts_.ranks.rank(),
               *parts_.exchange,
               parts_.progress) {
    for (const auto& [name, tensor] : parts_.model->parameters()) parameters_.push_back(tensor);
    for (const auto& [name, tensor] : parts_.model->buffers()) {
        (tensor.is_floating_point() ? buffers_ : counters_).push_back(tensor);
        if (!tensor.is_floating_point()) at_start_.push_back(tensor.item<std::int64_t>());
    }
    for (std::size_t bucket = 0; bucket < parts_.layout->flat().state_bucket(); ++bucket) {
        stripes_.push_back({parts_.exchange->own_stripe(bucket), owned_});
        owned_ += stripes_.back().range.size();
    }
    const auto floats = at::TensorOptions(at::kFloat).device(parts_.device);
    for (std::size_t k = 0; k < state_names(parts_.optimizer).size(); ++k)
        state_.push_back(torch::zeros({static_cast<std::int64_t>(owned_)}, floats));
    missed_leaves_.assign(parameters_.size(), 0);
    missed_.assign(parameters_.size(), 0);
    cut_pieces();
    const std::size_t told = decision_floats + told_state().size() + pieces_.size();
    told_ = torch::zeros({static_cast<std::int64_t>(told)},
                         at::TensorOptions(at::kFloat).pinned_memory(!is_on_host()));
    const auto counters = static_cast<std::int64_t>(counters_.size());
    const at::TensorOptions longs(at::kLong);
    host_starts_ = torch::zeros({counters}, longs.pinned_memory(!is_on_host()));
    all_starts_ = torch::zeros({counters}, longs.device(parts_.device));
    for (std::int64_t i = 0; i < counters; ++i)
        starts_.push_back(
            all_starts_.narrow(0, i, 1).view(counters_[static_cast<std::size_t>(i)].sizes()));
    take_initial_weights();
    install_hooks();
}

// Makes the pieces of each tensor that this rank owns.
void Replica::cut_pieces() {
    for (std::size_t bucket = 0; bucket < stripes_.size(); ++bucket)
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            const FlatTensor& place = parts_.layout->parameters()[i];
            const auto& [stripe, first] = stripes_[bucket];
            const FloatRange range = common(place.range, stripe);
            if (range.size() == 0) continue;
            const std::size_t offset = range.begin - stripe.begin;
            std::vector<float*> state;
            for (const at::Tensor& vector : state_)
                state.push_back(vector.data_ptr<float>() + first + offset);
            pieces_.push_back(
                {.tensor = i,
                 .dimensions = place.shape.size(),
                 .rate_factor = parts_.rate_factors.empty() ? 1 : parts_.rate_factors[i],
                 .count = range.size(),
                 .values = values_ + range.begin,
                 .state = std::move(state)});
            gradients_.push_back({bucket, offset});
        }
}

void Replica::take_initial_weights() {
    const ModelLayout& layout = *parts_.layout;
    for (std::size_t bucket = 0; bucket < layout.flat().bucket_count(); ++bucket) {
        const FloatRange stripe = parts_.exchange->own_stripe(bucket);
        for (std::size_t i = 0; i < parameters_.size(); ++i)
            copy_part(memory_, parameters_[i], layout.parameters()[i], values_, stripe);
        for (std::size_t i = 0; i < buffers_.size(); ++i)
            copy_part(memory_, buffers_[i], layout.buffers()[i], values_, stripe);
    }
    if (!keeps_average()) return;
    // The average begins with the initial weights, because the first step may be skipped.
    for (const ParameterPiece& piece : pieces_)
        memory_.copy(piece.state.back(), piece.values, piece.count);
}

void Replica::install_hooks() {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        on_gradient(parameters_[i], [this, i](const at::Tensor& parameter) {
            const void* const place = slot_ + parts_.layout->parameters()[i].range.begin;
            expect(parameter.numel() == 0 || parameter.grad().const_data_ptr() == place,
                   "gradients stay in their flat vector");
            if (held_ == nullptr) return ready(i);
            held_->push_back(i);
        });
}

void Replica::ready(std::size_t parameter) {
    // Before anything is added to the leaf's gradient.
    if (norms_ == LeafNorms::measure && passes_left_ == 1)
        squares_[parameter] = squares_of(parameter);
    reducer_.add(parameter);
}

double Replica::squares_of(std::size_t parameter) const {
    const FloatRange range = parts_.layout->parameters()[parameter].range;
    return sum_of_squares(on_host(slot_ + range.begin, range.size()));
}

at::Tensor Replica::view_of(float* flat, const FlatTensor& place) const {
    return at::for_blob(flat + place.range.begin, place.shape)
        .options(at::TensorOptions(at::kFloat).device(parts_.device))
        .target_device(parts_.device)
        .make_tensor();
}

// Valid until the next call.
std::span<const float> Replica::on_host(const float* from, std::size_t count) const {
    if (is_on_host()) return {from, count};
    seen_.resize(count);
    memory_.wait();
    memory_.copy(seen_.data(), from, count);
    memory_.wait();
    return seen_;
}

const Replica::Views& Replica::views_of(float* flat) {
    const auto [at, is_new] = views_.try_emplace(flat);
    Views& views = at->second;
    if (!is_new) return views;
    const ModelLayout& layout = *parts_.layout;
    for (const FlatTensor& one : layout.parameters())
        views.parameters.push_back(view_of(flat, one));
    for (const FlatTensor& one : layout.buffers()) views.buffers.push_back(view_of(flat, one));
    for (std::size_t i = 0; i < counters_.size(); ++i)
        views.counters.push_back(view_of(flat, layout.counters()[i]).view(counters_[i].sizes()));
    return views;
}

void Replica::begin_step(LeafNorms norms) {
    norms_ = norms;
    std::ranges::fill(missed_leaves_, 0);
    reducer_.begin_step();
}

void Replica::next_micro_batch() {
    --passes_left_;
    reducer_.next_micro_batch();
}

void Replica::begin_leaf(int micro_batches) {
    slot_ = reducer_.begin_leaf(std::max(micro_batches, 1));
    sums_.emplace(std::vector<LeafPlace>(1), std::vector<float*>{slot_}, 1, memory_);
    has_samples_ = micro_batches > 0;
    passes_left_ = micro_batches;
    squares_.assign(parameters_.size(), std::nullopt);
    if (!has_samples_) return;
    lend_slot();
    restore_buffers();
}

// To autograd.
void Replica::lend_slot() {
    const auto& views = views_of(slot_).parameters;
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = views[i];
}

void Replica::add(StepScalar which, float value) {
    float& sum = slot_[parts_.layout->scalar(which)];
    if (is_on_host())
        sum += value;
    else if (value != 0)
        scalar_view(&sum).add_(value);
}

void Replica::add(StepScalar which, const at::Tensor& value) {
    if (is_on_host()) return add(which, value.item<float>());
    scalar_view(&slot_[parts_.layout->scalar(which)]).add_(value.detach());
}

void Replica::end_leaf() {
    if (has_samples_) store_buffers(buffers_, increments());
    if (norms_ == LeafNorms::measure) {
        // Gradients that the last pass did not reach waited until now, and so did their bucket.
        double sum = 0;
        for (std::size_t i = 0; i < squares_.size(); ++i)
            sum += squares_[i] ? *squares_[i] : squares_of(i);
        add(StepScalar::leaf_squares, finite_float(sum));
    }
    mark_missing({&slot_, 1}, 1);
    reducer_.end_leaf();
}

// The first ones.
std::vector<float*> Replica::slots(int count) const {
    std::vector<float*> found;
    for (int index = 0; index < count; ++index) found.push_back(reducer_.slot(index));
    return found;
}

LeafSums Replica::sums_together() const {
    const std::span<const LeafPlace> places = reducer_.places();
    return {std::vector<LeafPlace>(places.begin(), places.end()),
            slots(reducer_.slots()),
            reducer_.partials(),
            memory_};
}

void Replica::begin_together() {
    reducer_.begin_together();
    sums_.emplace(sums_together());
}

void Replica::end_together(const LeafBuffers& buffers, std::span<const LeafResult> results) {
    const std::vector<at::Tensor> added = increments();
    for (std::size_t leaf = 0; leaf < sums_->leaves(); ++leaf) {
        slot_ = sums_->slot(leaf);
        memory_.clear(slot_ + state().begin, state().size());
        std::vector<at::Tensor> left = buffers_;  // by forward of this leaf
        for (at::Tensor& buffer : left)
            if (const at::Tensor own = buffers.find(buffer, static_cast<std::int64_t>(leaf));
                own.defined())
                buffer = own;
        store_buffers(left, added);
        for (std::size_t which = 0; which < results[leaf].wishes.size(); ++which)
            add(static_cast<StepScalar>(which), results[leaf].wishes[which]);
        add(StepScalar::loss_sum, results[leaf].loss);
        sums_->merge(leaf, state());
    }
    has_samples_ = true;
    mark_missing(slots(reducer_.partials()), static_cast<int>(sums_->leaves()));
    reducer_.end_together();
}

ParameterPlaces Replica::places() {
    return {.parameters = parameters_,
            .range = [this](std::size_t i) { return parts_.layout->parameters()[i].range; },
            .gradient = [this](float* slot, std::size_t i) { return views_of(slot).parameters[i]; },
            .ready = [this](std::size_t i) { ready(i); }};
}

void Replica::begin_rehearsal() {
    norms_ = LeafNorms::ignore;
    reducer_.begin_rehearsal();
    for (float* const slot : slots(reducer_.slots()))
        memory_.clear(slot, parts_.layout->flat().size());
    slot_ = reducer_.slot(0);
    lend_slot();
    restore_buffers();
}

std::string Replica::sums_hash() const {
    Hasher128 hasher;
    for (const float* const slot : slots(reducer_.partials()))
        hasher.add(std::as_bytes(on_host(slot, parts_.layout->flat().size())));
    return hasher.value().hex();
}

// Marks parameters that the leaf, or the leaves, whose sums go to `slots`, did not reach.
void Replica::mark_missing(std::span<float* const> slots, int leaves) {
    const bool is_new = has_samples_ && !reported_missing_;
    for (const std::size_t parameter : reducer_.missing()) {
        missed_leaves_[parameter] += leaves;
        for (float* const slot : slots) views_of(slot).parameters[parameter].fill_(-0.0);
        if (!is_new) continue;
        once(Level::warn,
             "parameter '{}' got no gradient; a step in which no sample reaches it does not change "
             "it or its optimizer state",
             parts_.layout->parameters()[parameter].name);
        reported_missing_ = true;
    }
}

// Lists, because each call is one kernel on a GPU where a model has a hundred buffers.
void Replica::restore_buffers() {
    const at::NoGradGuard no_gradients;
    if (!buffers_.empty()) at::_foreach_copy_(buffers_, views_of(values_).buffers);
    if (!counters_.empty()) at::_foreach_copy_(counters_, starts_);
}

// Into the current slot.
void Replica::store_buffers(const std::vector<at::Tensor>& buffers,
                            const std::vector<at::Tensor>& increments) {
    const at::NoGradGuard no_gradients;
    const Views& views = views_of(slot_);
    if (!buffers.empty()) at::_foreach_copy_(views.buffers, buffers);
    if (!increments.empty()) at::_foreach_copy_(views.counters, increments);
}

// Of counters, since the step began. Flags count as 0 and 1: LibTorch subtracts no bool.
std::vector<at::Tensor> Replica::increments() const {
    const at::NoGradGuard no_gradients;
    std::vector<at::Tensor> now;
    for (const at::Tensor& counter : counters_) now.push_back(counter.to(at::kLong));
    return now.empty() ? now : at::_foreach_sub(now, starts_);
}

// The device has seen the numbers of the last time: the host waits for it once a step.
void Replica::send_starts() {
    if (counters_.empty()) return;
    std::ranges::copy(at_start_, host_starts_.data_ptr<std::int64_t>());
    constexpr bool goes_on = true;
    all_starts_.copy_(host_starts_, goes_on);
}

// From exact sums, which have the same bits however the gradient is cut. The first copies of all
// ranks have each of its elements once. Nothing to decide: null.
const UpdateDecision* Replica::decide(const UpdateRule& rule) {
    if (!rule.needs_sums()) return nullptr;
    UpdateLoops& loops = parts_.loops;
    std::int64_t* const squares = loops.sums(2);
    std::int64_t* const others = squares + exact::words;
    const std::size_t counted =
        parts_.exchange->is_first_copy() ? parts_.layout->flat().bucket_count() : 0;
    for (std::size_t bucket = 0; bucket < counted; ++bucket) {
        const float* const sums = reducer_.reduced(bucket);
        const std::size_t count = parts_.exchange->own_stripe(bucket).size();
        if (rule.needs_norm() && bucket < stripes_.size())
            loops.add_squares(squares, sums, count);
        else if (rule.skips_nonfinite)
            loops.add_nonfinite(others, sums, count);
    }
    loops.sum_over(parts_.ranks, squares, 2);
    return loops.decide({.rule = rule, .squares = squares, .others = others});
}

// Where no leaf of this rank reaches a parameter, its sum says whether one of another rank does.
void Replica::set_marks() {
    const auto leaves = static_cast<int>(reducer_.places().size());
    float* const told = told_.data_ptr<float>() + decision_floats + told_state().size();
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        ParameterPiece& piece = pieces_[i];
        piece.missed = missed_[piece.tensor];
        piece.mark = missed_leaves_[piece.tensor] < leaves ? nullptr : piece.gradients;
        if (piece.mark != nullptr) memory_.copy(told + i, piece.mark, 1);
    }
}

void Replica::update(UpdateStep step, const UpdateRule& rule, std::int64_t samples) {
    if (const auto lent = std::exchange(lent_, nullptr); lent && lent->mirrored)
        lent->mirrored->block(current_stream(parts_.device));
    decided_ = decide(rule);
    step.gradient_scale = update::gradient_scale(rule, 0);
    step.decided = decided_;
    for (std::size_t i = 0; i < pieces_.size(); ++i)
        pieces_[i].gradients = reducer_.reduced(gradients_[i].bucket) + gradients_[i].offset;
    set_marks();
    update_pieces(parts_.optimizer,
                  parts_.ranks,
                  pieces_,
                  parts_.exchange->is_first_copy() ? ParameterCopy::first : ParameterCopy::other,
                  parameters_.size(),
                  step,
                  parts_.loops);
    update_state(samples);
}

// Buffers and counters become the mean over the leaves that had samples, or have no part in a step
// that is skipped; scalars stay sums: what ranks wish is met then, too.
void Replica::update_state(std::int64_t samples) {
    const std::size_t bucket = parts_.layout->flat().state_bucket();
    const FloatRange stripe = parts_.exchange->own_stripe(bucket);
    const float* sums = reducer_.reduced(bucket);
    const FloatRange counters = common({told_state().begin, averaged_end()}, stripe);
    memory_.clear(values_ + counters.begin, counters.size());
    const auto active =
        static_cast<float>(std::min<std::int64_t>(samples, parts_.plan.virtual_ranks()));
    const std::size_t scalars = std::clamp(averaged_end(), stripe.begin, stripe.end);
    const UpdateLaunch means{.kind = UpdateKind::quotient,
                             .values = values_ + stripe.begin,
                             .gradients = sums,
                             .count = static_cast<std::int64_t>(scalars - stripe.begin),
                             .terms = {.divisor = active},
                             .decided = decided_};
    parts_.loops.run({&means, 1});
    memory_.copy(values_ + scalars, sums + (scalars - stripe.begin), stripe.end - scalars);
}

void Replica::publish() {
    parts_.exchange->publish();
    // All that a step tells the host, at once.
    float* const decision = told_.data_ptr<float>();
    float* const state = decision + decision_floats;
    if (decided_ != nullptr)
        memory_.copy(decision, reinterpret_cast<const float*>(decided_), decision_floats);
    memory_.copy(state, values_ + told_state().begin, told_state().size());
    memory_.wait();
    decision_ = {};
    if (decided_ != nullptr)
        std::memcpy(static_cast<void*>(&decision_), decision, sizeof(decision_));
    const float* const marks = state + told_state().size();
    if (decision_.is_withheld == 0)
        for (std::size_t i = 0; i < pieces_.size(); ++i)
            if (pieces_[i].mark != nullptr && update::is_no_gradient(marks[i]))
                ++missed_[pieces_[i].tensor];
    for (std::size_t i = 0; i < counters_.size(); ++i)
        at_start_[i] += std::lround(told(parts_.layout->counters()[i].range.begin));
    send_starts();
    restore_buffers();
}

// Counters and scalars.
FloatRange Replica::told_state() const {
    const auto& counters = parts_.layout->counters();
    return {counters.empty() ? averaged_end() : counters.front().range.begin, state().end};
}

float Replica::told(std::size_t place) const {
    return told_.const_data_ptr<float>()[decision_floats + place - told_state().begin];
}

// All meet before, too: nobody may still be computing with what is exchanged.
void Replica::swap_average() {
    if (!keeps_average()) return;
    parts_.ranks.barrier();
    for (const ParameterPiece& piece : pieces_) {
        const FlatTensor whole{"", {static_cast<std::int64_t>(piece.count)}, {0, piece.count}};
        const at::Tensor values = view_of(piece.values, whole);
        const at::Tensor average = view_of(piece.state.back(), whole), kept = values.clone();
        values.copy_(average);
        average.copy_(kept);
    }
    parts_.exchange->publish();
}

ReplicaTensors Replica::tensors() {
    ReplicaTensors all = tensors_to_come();
    if (const auto wait = std::exchange(all.wait, nullptr)) wait();
    return all;
}

ReplicaTensors Replica::tensors_to_come() {
    lent_ = std::make_shared<HostCopy>();
    if (!is_on_host()) begin_mirror();
    ReplicaTensors all{.is_first_copy = parts_.exchange->is_first_copy(), .memory = lent_};
    if (!is_on_host()) all.wait = [copy = lent_] { copy->mirrored->synchronize(); };
    float* const mirror = is_on_host() ? nullptr : lent_->mirror.data_ptr<float>();
    // Of a vector of this rank's stripes, one after another; null: of the flat vector.
    const auto add_parameters = [&](const std::string& prefix, float* vector) {
        for (const FlatTensor& place : parts_.layout->parameters()) {
            all.metas.push_back({prefix + place.name, place.shape});
            for (const auto& [range, first] : stripes_)
                add_piece(all, place, range, vector ? vector + first : values_ + range.begin);
        }
    };
    add_parameters("", mirror);
    const FloatRange state = parts_.exchange->own_stripe(parts_.layout->flat().state_bucket());
    float* const buffers = mirror ? mirror + (1 + state_.size()) * owned_ : values_ + state.begin;
    for (const FlatTensor& place : parts_.layout->buffers()) {
        all.metas.push_back({place.name, place.shape});
        add_piece(all, place, state, buffers);
    }
    const std::vector<std::string> names = state_names(parts_.optimizer);
    for (std::size_t k = 0; k < names.size(); ++k)
        add_parameters("optimizer." + names[k] + ".",
                       mirror ? mirror + (1 + k) * owned_ : state_[k].data_ptr<float>());
    all.own_pieces = all.pieces.size();
    all.frozen_from = all.metas.size();
    for (const auto& [name, tensor] : saved_frozen()) {
        lent_->kept.push_back(tensor.detach().cpu().contiguous());
        all.metas.push_back({name, tensor.sizes().vec()});
        if (tensor.numel() > 0)
            all.pieces.push_back({all.metas.size() - 1,
                                  0,
                                  static_cast<std::uint64_t>(tensor.numel()),
                                  lent_->kept.back().data_ptr<float>()});
    }
    return all;
}

// Each rank has all of them.
NamedTensors Replica::saved_frozen() const {
    return parts_.model->has_frozen_in_file() ? NamedTensors() : parts_.model->frozen();
}

Counters Replica::counters() const {
    Counters values = model_counters();
    std::vector<std::int64_t> missed = missed_;  // of own pieces; of others' zero
    parts_.ranks.all_reduce_max(missed);
    for (std::size_t i = 0; i < missed.size(); ++i)
        if (missed[i] > 0) values[missed_name(parts_.layout->parameters()[i])] = missed[i];
    return values;
}

Counters Replica::model_counters() const {
    Counters values;
    for (std::size_t i = 0; i < counters_.size(); ++i)
        values[parts_.layout->counters()[i].name] = at_start_[i];
    return values;
}

std::string Replica::hash() const {
    Hasher128 hasher;
    const std::span<const float> values = on_host(values_, parts_.layout->flat().size());
    for (const auto* places : {&parts_.layout->parameters(), &parts_.layout->buffers()})
        for (const FlatTensor& place : *places) {
            hasher.add(bytes_of(place.name));
            hasher.add(std::as_bytes(values.subspan(place.range.begin, place.range.size())));
        }
    for (const auto& [name, value] : model_counters()) {
        hasher.add(bytes_of(name));
        hasher.add(std::as_bytes(std::span(&value, 1)));
    }
    for (const auto& [name, tensor] : saved_frozen()) {
        const at::Tensor values_here = tensor.detach().cpu().contiguous();
        hasher.add(bytes_of(name));
        hasher.add(
            {static_cast<const std::byte*>(values_here.const_data_ptr()), values_here.nbytes()});
    }
    return hasher.value().hex();
}

void Replica::start(const Counters& counters) {
    for (std::size_t i = 0; i < counters_.size(); ++i) {
        const std::string& name = parts_.layout->counters()[i].name;
        const auto found = counters.find(name);
        check(found != counters.end(), "E304", "the checkpoint lacks counter '" + name + "'");
        at_start_[i] = found->second;
    }
    for (std::size_t i = 0; i < missed_.size(); ++i) {
        const auto found = counters.find(missed_name(parts_.layout->parameters()[i]));
        missed_[i] = found == counters.end() ? 0 : found->second;
    }
    if (const auto lent = std::exchange(lent_, nullptr)) {
        const NamedTensors frozen = saved_frozen();
        for (std::size_t i = 0; i < lent->kept.size(); ++i) frozen[i].tensor.copy_(lent->kept[i]);
        if (lent->mirror.defined())
            for (const auto& [here, first] : mirrored())
                here.copy_(lent->mirror.narrow(0, static_cast<std::int64_t>(first), here.numel()));
    }
    parts_.exchange->publish();
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        parameters_[i].set_data(views_of(values_).parameters[i]);
    send_starts();
    restore_buffers();
}

// What this rank owns on a GPU: its stripes' values, the optimizer's vectors, and its part of the
// state's bucket.
std::vector<Replica::Mirrored> Replica::mirrored() const {
    std::vector<Mirrored> all;
    const auto add = [&](FloatRange values, std::size_t first) {
        const auto count = static_cast<std::int64_t>(values.size());
        if (count > 0) all.push_back({view_of(values_, {"", {count}, values}), first});
    };
    for (const OwnStripe& own : stripes_) add(own.range, own.first);
    for (std::size_t k = 0; k < state_.size(); ++k) all.push_back({state_[k], (1 + k) * owned_});
    add(parts_.exchange->own_stripe(parts_.layout->flat().state_bucket()),
        (1 + state_.size()) * owned_);
    return all;
}

// A stream of its own copies, after all that the present one has to do.
void Replica::begin_mirror() {
    const std::vector<Mirrored> all = mirrored();
    const c10::impl::VirtualGuardImpl device(parts_.device.type());
    const c10::Stream beside = device.getStreamFromGlobalPool(parts_.device);
    const auto floats =
        all.empty() ? 0 : static_cast<std::int64_t>(all.back().first) + all.back().here.numel();
    lent_->mirror = torch::empty({floats}, at::TensorOptions(at::kFloat).pinned_memory(true));
    c10::Event now(parts_.device.type());
    now.record(current_stream(parts_.device));
    now.block(beside);
    const c10::StreamGuard guard(beside);
    for (const auto& [here, first] : all)
        lent_->mirror.narrow(0, static_cast<std::int64_t>(first), here.numel())
            .copy_(here, /*non_blocking=*/true);
    lent_->mirrored.emplace(parts_.device.type()).record(beside);
}

ModelBytes Replica::bytes() const {
    const auto held = [&](const float* memory, std::size_t floats) {
        const std::span values(memory, floats);
        return is_on_host() ? resident_bytes(std::as_bytes(values)) : values.size_bytes();
    };
    const std::size_t floats = parts_.layout->flat().size();
    ModelBytes bytes{.parameters = held(values_, floats)};
    for (int i = 0; i < parts_.plan.slots(); ++i)
        bytes.gradients += held(parts_.exchange->slot(i), floats);
    for (const at::Tensor& vector : state_)
        bytes.state += held(vector.const_data_ptr<float>(), owned_);
    return bytes;
}

std::string Replica::description() const {
    const std::int64_t frozen = element_count(parts_.model->frozen());
    return fmt::format(
        "{} parameters{} | gradients in {} buckets, summed by {}{}",
        grouped(static_cast<std::uint64_t>(element_count(parts_.model->parameters()))),
        frozen == 0 ? "" : fmt::format(", {} frozen", grouped(static_cast<std::uint64_t>(frozen))),
        stripes_.size() + 1,
        parts_.exchange->name(),
        parts_.progress.mode == ProgressMode::thread ? " on a thread of its own" : "");
}

}  // namespace lockstep
