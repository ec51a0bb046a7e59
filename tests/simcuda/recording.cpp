// SPDX-License-Identifier: Apache-2.0
#include "simcuda/recording.hpp"

#include "simcuda/settings.hpp"
#include "simcuda/torch_device.hpp"

#include <cstring>
#include <utility>

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

namespace simcuda {
namespace {

/// Operators call others, which are none of the recording's.
thread_local bool is_within_operator = false;

auto enter_operator() {
    return c10::make_scope_exit(
        [before = std::exchange(is_within_operator, true)] { is_within_operator = before; });
}

std::atomic<Recording*> going_on = nullptr;  // one at a time

void add_tensors(std::vector<at::Tensor>& tensors, const c10::IValue& value) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (value.isTensorList())
        for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
}

/// Tensors that `op` writes, by its schema.
std::vector<at::Tensor> written(const c10::OperatorHandle& op, const torch::jit::Stack& given) {
    std::vector<at::Tensor> tensors;
    const auto& arguments = op.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const auto* const alias = arguments[i].alias_info();
        if (alias != nullptr && alias->isWrite()) add_tensors(tensors, given[i]);
    }
    return tensors;
}

c10::IValue value_without_graph(const c10::IValue& value) {
    if (value.isTensor()) return without_graph(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector())
        tensors.push_back(without_graph(tensor));
    return tensors;
}

torch::jit::Stack arguments_of(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    torch::jit::Stack arguments;
    for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size()))
        arguments.push_back(value_without_graph(value));
    return arguments;
}

std::vector<at::Tensor> results_of(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    std::vector<at::Tensor> tensors;
    for (const c10::IValue& value : torch::jit::last(stack, op.schema().returns().size()))
        add_tensors(tensors, value_without_graph(value));
    return tensors;
}

bool is_elsewhere(const at::Tensor& kept, const at::Tensor& made) {
    return kept.defined() && kept.const_data_ptr() != made.const_data_ptr();
}

/// When it goes, tensors from before the recording have the bytes that they had.
auto put_back(const std::vector<at::Tensor>& tensors, const std::set<void*>& own) {
    std::vector<std::pair<std::byte*, std::vector<std::byte>>> kept;
    for (const at::Tensor& tensor : tensors) {
        if (!tensor.defined() || tensor.numel() == 0) continue;
        void* const data = tensor.storage().mutable_data();
        if (own.contains(data)) continue;
        auto* const begin = static_cast<std::byte*>(machine().memory.behind(data));
        kept.push_back({begin, std::vector(begin, begin + tensor.storage().nbytes())});
    }
    return c10::make_scope_exit([kept = std::move(kept)] {
        own_stream().drain();
        for (const auto& [begin, bytes] : kept) std::memcpy(begin, bytes.data(), bytes.size());
    });
}

}  // namespace

void Recording::add(const c10::OperatorHandle& op, torch::jit::Stack* stack, Operator run) {
    if (is_refused_operator()) refuse();
    const auto within = enter_operator();
    const torch::jit::Stack given = arguments_of(op, *stack);
    {
        const auto untouched = put_back(written(op, given), own_);
        run(op, stack);
    }
    tasks_.push_back([op = op,
                      is_grad = c10::GradMode::is_enabled(),
                      keys = c10::impl::tls_local_dispatch_key_set(),
                      draws = default_draws().draw_state(),
                      given,
                      run,
                      kept = results_of(op, *stack)] {
        // Autograd runs operators otherwise than models do, and their bits depend on it.
        const c10::AutoGradMode grad(is_grad);
        const c10::impl::ForceDispatchKeyGuard guard(keys);
        // The default generator is where it was in the recording.
        const auto drawn = c10::make_scope_exit(
            [before = default_draws().draw_state()] { default_draws().use(before); });
        default_draws().use(draws);
        torch::jit::Stack again = given;
        run(op, &again);
        const std::vector<at::Tensor> made = results_of(op, again);
        constexpr bool goes_on = true;
        for (std::size_t i = 0; i < kept.size(); ++i)
            if (is_elsewhere(kept[i], made[i])) kept[i].copy_(made[i], goes_on);
    });
}

void Recording::add(const at::Tensor& to, std::function<void()> work) {
    const auto within = enter_operator();
    {
        const auto untouched = put_back({to}, own_);
        work();
    }
    tasks_.push_back(std::move(work));
}

void Recording::refuse() {
    is_spoilt_ = true;
    constexpr int unsupported = 900;  // cudaErrorStreamCaptureUnsupported
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                                unsupported,
                                "CUDA error: operation not permitted when stream is capturing");
}

at::Tensor without_graph(const at::Tensor& tensor) {
    return tensor.defined() ? tensor.variable_data() : tensor;
}

void begin_recording(Stream& stream, Recording& recording) {
    stream.recording = going_on = &recording;
}

void end_recording(Stream& stream) {
    stream.recording = going_on = nullptr;
}

void refuse_unless_inside(const Event& event, Stream& stream) {
    if (event.is_of_recording == (stream.recording != nullptr)) return;
    if (Recording* const spoilt = going_on) spoilt->refuse();
}

Recording* recording_around() {
    return own_stream().recording;
}

Recording* current_recording() {
    return is_within_operator ? nullptr : recording_around();
}

void refuse_while_recording() {
    if (Recording* const recording = current_recording()) recording->refuse();
}

}  // namespace simcuda
