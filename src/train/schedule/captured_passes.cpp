// SPDX-License-Identifier: Apache-2.0
// A recording contains addresses, not tensors:
//
//     samples of a leaf --copy--> the recording's --+
//     weights, buffers: the replica's flat values --+--> forward graph --> backward graph --+
//     generator: seed and offset of the leaf -------+                                       |
//     the leaf's slot: gradients, loss <----------------------------------------------------+
//     then, outside: ready(i) in the order of backward, so that buckets are summed
//
// Leaves together are recorded in the same way: gradients go to the slots by leaf and are merged
// there; losses and buffers by leaf stay in the recording's memory, and the step takes them there.
//
// What must never happen:
// - A graph is replayed where something it reads or writes is elsewhere: the key has the addresses
//   of all parameters, gradients and buffers, and what differs is recorded anew.
// - Recording does something: it is not executed. A leaf that is recorded is replayed then.
// - A number of the host's is baked in that another leaf has otherwise: shapes, the step's samples
//   and the loss's scale are in the key; a rehearsal compares other samples and other seeds.
// - A hook tells of gradients that are only recorded: the replica is told after the replay.
// - Phases mark events in a stream that records: none is entered meanwhile.
//
// Tested: simcuda/graph_test.cpp, e2e/device_test.cpp, soak/equal_bits.

#include "model/model.hpp"
#include "schedule/leaf_passes.hpp"

#include <bit>
#include <exception>
#include <utility>

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep {
namespace {

// A run has few shapes: a slot for each level of the tree, and a last leaf that is shorter. Steps
// with a new scale each time, as fp16 at its start, must not fill the GPU.
constexpr std::size_t most_recordings = 24;

c10::Stream new_stream(at::Device device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

/// While it lives, the replica's hooks list parameters instead of telling of them.
class HeldGradients {
  public:
    HeldGradients(Replica& replica, std::vector<std::size_t>& reached) : replica_(replica) {
        replica_.hold_gradients(&reached);
    }
    ~HeldGradients() { replica_.hold_gradients(nullptr); }
    HeldGradients& operator=(HeldGradients&&) = delete;

  private:
    Replica& replica_;
};

template <class Work>
void record_into(DeviceGraph& graph,
                 const DeviceGraph* before,
                 std::span<const at::Generator> draws,
                 Work&& work) {
    graph.begin(before, draws);
    try {
        work();
        graph.end();
    } catch (...) {
        graph.abandon();
        throw;
    }
}

std::uint64_t address_of(const at::Tensor& tensor) {
    return tensor.defined() ? std::bit_cast<std::uintptr_t>(tensor.const_data_ptr()) : 0;
}

void add_shape(std::vector<std::uint64_t>& key, const at::Tensor& tensor) {
    key.push_back(tensor.defined() ? static_cast<std::uint64_t>(tensor.scalar_type()) : ~0ULL);
    if (!tensor.defined()) return;
    key.push_back(static_cast<std::uint64_t>(tensor.dim()));
    for (const at::IntArrayRef numbers : {tensor.sizes(), tensor.strides()})
        for (const std::int64_t number : numbers) key.push_back(static_cast<std::uint64_t>(number));
}

template <class Visit>
void for_each(const LeafSamples& samples, Visit&& visit) {
    for (const auto& [name, tensor] : samples.inputs) visit(tensor);
    for (const auto& [name, tensor] : samples.targets) visit(tensor);
    visit(samples.weights);
}

void copy_into(LeafSamples& to, const LeafSamples& from) {
    constexpr bool goes_on = true;
    for (std::size_t i = 0; i < to.inputs.size(); ++i)
        to.inputs[i].tensor.copy_(from.inputs[i].tensor, goes_on);
    for (std::size_t i = 0; i < to.targets.size(); ++i)
        to.targets[i].tensor.copy_(from.targets[i].tensor, goes_on);
    if (to.weights.defined()) to.weights.copy_(from.weights, goes_on);
}

// With its strides: kernels are chosen by them.
at::Tensor like(const at::Tensor& tensor) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
}

LeafSamples place_for(const LeafSamples& samples) {
    LeafSamples place = samples;
    for (NamedTensors* const tensors : {&place.inputs, &place.targets})
        for (NamedTensor& named : *tensors) named.tensor = like(named.tensor);
    if (place.weights.defined()) place.weights = like(place.weights);
    copy_into(place, samples);
    return place;
}

}  // namespace

CapturedPasses::CapturedPasses(Replica& replica, PhaseClock& clock, MakeDeviceGraph make)
    : replica_(replica),
      clock_(clock),
      make_(std::move(make)),
      stream_(new_stream(device_of(replica.model()))) {}

CapturedPasses::Recording* CapturedPasses::find(const LeafSamples& samples,
                                                const LossTerms& terms,
                                                std::int64_t leaves,
                                                const Pass& pass) {
    if (!why_not_.empty()) return nullptr;
    const Key key = key_of(samples, terms, leaves);
    const bool is_known = recordings_.contains(key);
    if (!is_known && seen_.insert(key).second) return nullptr;
    if (!is_known && !try_record(key, samples, pass)) return nullptr;
    return &recordings_.at(key);
}

void CapturedPasses::forget() {
    c10::impl::VirtualGuardImpl(stream_.device_type())
        .synchronizeDevice(stream_.device_index());  // may be replaying
    recordings_.clear();
    seen_.clear();
}

CapturedPasses::Key CapturedPasses::key_of(const LeafSamples& samples,
                                           const LossTerms& terms,
                                           std::int64_t leaves) const {
    Key key{static_cast<std::uint64_t>(terms.samples),
            std::bit_cast<std::uint64_t>(terms.scale),
            static_cast<std::uint64_t>(leaves)};
    for_each(samples, [&](const at::Tensor& tensor) { add_shape(key, tensor); });
    for (const auto& [name, tensor] : replica_.model().parameters()) {
        key.push_back(address_of(tensor));
        if (leaves == 1) key.push_back(address_of(tensor.grad()));  // else slots, which stay
    }
    for (const auto& [name, tensor] : replica_.model().buffers()) key.push_back(address_of(tensor));
    return key;
}

// Returns true on success. Where memory ends, leaves may have other kernels afterwards.
bool CapturedPasses::try_record(const Key& key, const LeafSamples& samples, const Pass& pass) {
    if (recordings_.size() >= most_recordings) forget();
    const FailedAllocations failed(device_of(replica_.model()));
    try {
        recordings_.emplace(key, record(samples, pass));
    } catch (const c10::OutOfMemoryError&) {
        throw;
    } catch (const std::exception& error) {  // the usual computation also reports a lost GPU
        why_not_ = "the model does what cannot be recorded: " + reason_of(error);
        forget();
    }
    failed.check_none();
    return why_not_.empty();
}

CapturedPasses::Recording CapturedPasses::record(const LeafSamples& samples, const Pass& pass) {
    Recording made{.samples = place_for(samples), .forward = make_(), .backward = make_()};
    if (pass.before) pass.before(made);
    const c10::StreamGuard guard(stream_);
    const HeldGradients held(replica_, made.reached);
    record_into(*made.forward, nullptr, made.draws, [&] { pass.forward(made); });
    record_into(*made.backward, made.forward.get(), {}, [&] { pass.backward(made); });
    return made;
}

void CapturedPasses::replay(Recording& recording,
                            const LeafSamples& samples,
                            std::span<const std::uint64_t> seeds) {
    for (std::size_t leaf = 0; leaf < seeds.size(); ++leaf)
        recording.draws[leaf].set_current_seed(seeds[leaf]);
    {
        const PhaseScope scope(clock_, Phase::forward);
        copy_into(recording.samples, samples);
        recording.forward->replay();
    }
    const PhaseScope scope(clock_, Phase::backward);
    recording.backward->replay();
    const ParameterPlaces places = replica_.places();
    for (const std::size_t parameter : recording.reached) places.ready(parameter);
}

}  // namespace lockstep
