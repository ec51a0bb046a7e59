// SPDX-License-Identifier: Apache-2.0
// LibTorch's operators for the dispatch key CUDA. Each runs as the CPU's, on copies, when all work
// of the current stream is done; those that make tensors and views are the device's own.
#include "simcuda/recording.hpp"
#include "simcuda/settings.hpp"
#include "simcuda/torch_device.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorShape.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/ScopeExit.h>
#include <torch/library.h>

namespace simcuda {
namespace {

using at::Tensor;

constexpr c10::DispatchKeySet key(c10::DispatchKey::CUDA);

c10::Device device_or_current(std::optional<c10::Device> device) {
    if (device && device->has_index()) return *device;
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(Machine::device())};
}

Tensor empty(c10::IntArrayRef size,
             std::optional<at::ScalarType> type,
             std::optional<at::Layout>,
             std::optional<c10::Device> device,
             std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
    const c10::DeviceGuard guard(device_or_current(device));
    return at::detail::empty_generic(
        size, &torch_allocator(), key, c10::dtype_or_default(type), format);
}

Tensor empty_strided(c10::IntArrayRef size,
                     c10::IntArrayRef stride,
                     std::optional<at::ScalarType> type,
                     std::optional<at::Layout>,
                     std::optional<c10::Device> device,
                     std::optional<bool>) {
    const c10::DeviceGuard guard(device_or_current(device));
    return at::detail::empty_strided_generic(
        size, stride, &torch_allocator(), key, c10::dtype_or_default(type));
}

/// A CPU tensor on the same bytes.
Tensor host_view(const Tensor& tensor) {
    if (tensor.device().is_cpu()) return tensor;
    return at::from_blob(
        machine().memory.behind(tensor.data_ptr()),
        tensor.sizes(),
        tensor.strides(),
        [tensor](void*) {},
        tensor.options().device(at::kCPU));
}

/// What the thread copies from and to a GPU is an operator's, and nobody else has it.
thread_local bool copies_results = false;

bool is_locked(const Tensor& tensor) {
    return machine().memory.is_locked(tensor.data_ptr());
}

bool is_bytewise(const Tensor& to, const Tensor& from) {
    return to.sizes() == from.sizes() && to.scalar_type() == from.scalar_type() &&
           to.is_contiguous() && from.is_contiguous();
}

/// Whether a copy is work of the stream, while the host goes on: CUDA's rules, except that without
/// delays nobody could tell where both are on GPUs or the host's memory is read at once.
bool is_queued(const Tensor& to, const Tensor& from, bool is_non_blocking) {
    const bool goes_on = is_non_blocking && is_bytewise(to, from);
    if (to.is_cpu()) return goes_on && is_locked(to);
    return settings().delay_us > 0 || (goes_on && from.is_cpu() && is_locked(from));
}

/// As CUDA does with memory that is not page-locked, or may be written before the copy.
Tensor staged(const Tensor& from, bool is_non_blocking) {
    const bool is_kept = from.is_cuda() || copies_results || (is_non_blocking && is_locked(from));
    return is_kept ? from : from.clone();
}

Tensor& copy_now(Tensor& to, const Tensor& from, bool is_non_blocking) {
    const c10::DeviceGuard guard((to.is_cuda() ? to : from).device());
    if (from.numel() == 0 || !is_queued(to, from, is_non_blocking)) {
        wait_for_current_stream();
        if (to.is_cpu() && !copies_results) note_wait_of_host();
        host_view(to).copy_(host_view(from));
        return to;
    }
    throw_if_lost();
    stream_of(current_stream(guard.current_device().index()))
        .enqueue([to, from = staged(from, is_non_blocking)] {
            const at::AutoDispatchBelowAutograd no_gradients;
            host_view(to).copy_(host_view(from));
        });
    return to;
}

/// Memory that is not page-locked may not be part of a recording.
Tensor& copy_(Tensor& to, const Tensor& from, bool is_non_blocking) {
    Recording* const recording = current_recording();
    if (recording == nullptr) {
        if (!copies_results) note_launch();
        return copy_now(to, from, is_non_blocking);
    }
    for (const Tensor& tensor : {to, from})
        if (tensor.is_cpu() && !(is_non_blocking && is_locked(tensor))) recording->refuse();
    recording->add(
        to, [into = without_graph(to), given = without_graph(from), is_non_blocking]() mutable {
            copy_now(into, given, is_non_blocking);
        });
    return to;
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool is_non_blocking) {
    Tensor written = to;
    return copy_(written, from, is_non_blocking);
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
    if (to.sizes() != from.sizes()) at::native::resize_(to, from.sizes(), std::nullopt);
    return copy_from(from, to, false);
}

at::Scalar local_scalar(const Tensor& tensor) {
    const c10::DeviceGuard guard(tensor.device());
    refuse_while_recording();
    note_wait_of_host();
    wait_for_current_stream();
    return host_view(tensor).item();
}

Tensor as_strided(const Tensor& tensor,
                  c10::SymIntArrayRef size,
                  c10::SymIntArrayRef stride,
                  std::optional<c10::SymInt> offset) {
    return at::native::as_strided_tensorimpl(
        tensor,
        C10_AS_INTARRAYREF_SLOW(size),
        C10_AS_INTARRAYREF_SLOW(stride),
        offset ? std::optional<std::int64_t>(offset->expect_int()) : std::nullopt);
}

/// LibTorch would copy what is there as the host's memory.
void grow(const Tensor& tensor, c10::IntArrayRef size) {
    c10::Storage storage = tensor.storage();
    const std::size_t bytes = at::detail::computeStorageNbytesContiguous(
        size, tensor.itemsize(), static_cast<std::size_t>(tensor.storage_offset()));
    if (bytes <= storage.nbytes()) return;
    c10::DataPtr data = torch_allocator().allocate(bytes);
    if (storage.nbytes() > 0)
        torch_allocator().copy_data(data.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
}

const Tensor& resize_(const Tensor& tensor,
                      c10::SymIntArrayRef size,
                      std::optional<at::MemoryFormat> format) {
    const c10::DeviceGuard guard(tensor.device());
    wait_for_current_stream();
    grow(tensor, C10_AS_INTARRAYREF_SLOW(size));
    return at::native::resize_(tensor, C10_AS_INTARRAYREF_SLOW(size), format);
}

Tensor view(const Tensor& tensor, c10::SymIntArrayRef size) {
    return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

Tensor reshape_alias(const Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
    return at::native::_reshape_alias(
        tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

/// What CUDA's own kernels refuse where algorithms must be deterministic (LibTorch's documentation
/// of use_deterministic_algorithms), for they add in any order.
constexpr auto not_deterministic = std::to_array<std::string_view>({
    "aten::_adaptive_avg_pool2d_backward",
    "aten::_adaptive_avg_pool3d_backward",
    "aten::_ctc_loss_backward",
    "aten::adaptive_max_pool2d_backward",
    "aten::avg_pool3d_backward",
    "aten::fractional_max_pool2d_backward",
    "aten::fractional_max_pool3d_backward",
    "aten::grid_sampler_2d_backward",
    "aten::grid_sampler_3d_backward",
    "aten::histc",
    "aten::kthvalue",
    "aten::max_pool3d_with_indices_backward",
    "aten::nll_loss2d_forward",
    "aten::reflection_pad1d_backward",
    "aten::reflection_pad2d_backward",
    "aten::reflection_pad3d_backward",
    "aten::replication_pad1d_backward",
    "aten::replication_pad2d_backward",
    "aten::replication_pad3d_backward",
    "aten::upsample_bicubic2d_backward",
    "aten::upsample_bilinear2d_backward",
    "aten::upsample_linear1d_backward",
    "aten::upsample_trilinear3d_backward",
});

/// Of a loss that is an argument of the operator.
bool is_summed(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    const auto reduction = op.schema().argumentIndexWithName("reduction");
    if (!reduction) return true;
    const std::size_t begin = stack.size() - op.schema().arguments().size();
    return stack.at(begin + static_cast<std::size_t>(*reduction)).toInt() != at::Reduction::None;
}

void refuse_unless_deterministic(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    const std::string& name = op.schema().name();
    if (std::ranges::find(not_deterministic, name) != not_deterministic.end() &&
        is_summed(op, stack))
        at::globalContext().alertNotDeterministic(name);
}

/// Of the first tensor that is on a GPU, or that an operator is told.
std::optional<c10::Device> device_in(torch::jit::Stack& stack, std::size_t arguments) {
    for (const c10::IValue& value : torch::jit::last(stack, arguments)) {
        if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda())
            return value.toTensor().device();
        if (value.isDevice() && value.toDevice().is_cuda()) return value.toDevice();
        if (!value.isTensorList()) continue;
        for (const Tensor& tensor : value.toTensorVector())
            if (tensor.defined() && tensor.is_cuda()) return tensor.device();
    }
    return {};
}

/// The generator that an operator was given, taken out of its arguments: the CPU's operator would
/// refuse it.
std::optional<at::Generator> take_generator(torch::jit::Stack& stack, std::size_t arguments) {
    for (auto value = stack.end() - static_cast<std::ptrdiff_t>(arguments); value != stack.end();
         ++value)
        if (value->isGenerator()) {
            const at::Generator taken = value->toGenerator();
            *value = c10::IValue();
            return taken;
        }
    return {};
}

/// LibTorch's operators for CPUs draw from the CPU's default generator: until what is returned
/// goes, they draw what `source` gives, and afterwards as if nothing had been drawn.
auto draw_from(const at::Generator& source) {
    TORCH_CHECK(source.device().is_cuda(),
                "Expected a 'cuda' device type for generator but found 'cpu'");
    const std::uint64_t seed = static_cast<SimGenerator*>(source.unsafeGetGeneratorImpl())->next();
    static std::mutex& one_at_a_time = *new std::mutex;
    std::unique_lock alone(one_at_a_time);
    at::Generator cpu = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(cpu.mutex());
    auto before = cpu.unsafeGetGeneratorImpl()->get_state();
    cpu.set_current_seed(seed);
    return c10::make_scope_exit(
        [alone = std::move(alone), before = std::move(before), cpu]() mutable {
            const std::lock_guard at_end(cpu.mutex());
            cpu.unsafeGetGeneratorImpl()->set_state(*before);
        });
}

/// The nearest numbers with TF32's 10 bits behind the point; ties go away from zero.
Tensor rounded_to_tf32(const Tensor& tensor) {
    const Tensor rounded = host_view(tensor).clone();
    rounded.view(at::kInt).add_(0x1000).bitwise_and_(~0x1fff);
    const Tensor there = at::empty_like(tensor);
    host_view(there).copy_(rounded);
    return there;
}

std::uint64_t groups_in(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    const auto& arguments = op.schema().arguments();
    const int place = *op.schema().argumentIndexWithName("groups");
    return torch::jit::peek(stack, static_cast<std::size_t>(place), arguments.size())
        .to<std::uint64_t>();
}

/// What a GPU does where it may; and another kernel, which gives other bits.
void round_factors(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const std::string& name = op.schema().name();
    const bool convolves = name.find("convolution") != name.npos;
    const std::uint64_t others = convolves ? other_kernels() : 0;
    if (others == 1) note_failed_allocation();
    const bool has_groups = convolves && groups_in(op, stack) >= settings().groups;
    const bool multiplies = name == "aten::addmm" || name == "aten::mm" || name == "aten::bmm";
    const at::Context& context = at::globalContext();
    if (others == 0 && !has_groups && !(convolves && context.allowTF32CuDNN()) &&
        !(multiplies && context.allowTF32CuBLAS()))
        return;
    const auto& arguments = op.schema().arguments();
    auto value = stack.end() - static_cast<std::ptrdiff_t>(arguments.size());
    for (auto argument = arguments.begin(); argument != arguments.end(); ++argument, ++value) {
        const bool is_written = argument->alias_info() && argument->alias_info()->isWrite();
        if (is_written || !value->isTensor() || !value->toTensor().defined()) continue;
        const Tensor& tensor = value->toTensor();
        const bool is_factor = tensor.dim() > 1 && tensor.scalar_type() == at::kFloat;
        if (tensor.is_cuda() && is_factor) *value = rounded_to_tf32(tensor);
    }
}

void run_on_copies(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const bool before = std::exchange(copies_results, true);
    at::native::cpu_fallback(op, stack);
    copies_results = before;
}

void run_now(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    refuse_unless_deterministic(op, *stack);
    const std::size_t arguments = op.schema().arguments().size();
    const c10::DeviceGuard guard(device_or_current(device_in(*stack, arguments)));
    wait_for_current_stream();
    round_factors(op, *stack);
    if (!op.hasTag(at::Tag::nondeterministic_seeded)) return run_on_copies(op, stack);
    const auto given = take_generator(*stack, arguments);
    const auto draws = draw_from(given ? *given : default_generator(-1));
    run_on_copies(op, stack);
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    if (Recording* const recording = current_recording())
        return recording->add(op, stack, &run_now);
    note_launch();
    run_now(op, stack);
}

// Lists are one kernel each, as LibTorch's own are on GPUs.
void copy_all(at::TensorList to, at::TensorList from, bool is_non_blocking) {
    const OneLaunch one;
    for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], is_non_blocking);
}

std::vector<Tensor> subtract_all(at::TensorList from, at::TensorList these, const at::Scalar& by) {
    const OneLaunch one;
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < from.size(); ++i) results.push_back(from[i].sub(these[i], by));
    return results;
}

std::vector<Tensor> add_all(at::TensorList to, at::TensorList these, const at::Scalar& times) {
    const OneLaunch one;
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < to.size(); ++i) results.push_back(to[i].add(these[i], times));
    return results;
}

void add_to_all(at::TensorList to, const at::Scalar& number) {
    const OneLaunch one;
    for (const Tensor& tensor : to) tensor.add_(number);
}

// By the operator whose schema says that it writes to the running statistics: those of a CPU's copy
// would be lost.
std::tuple<Tensor, Tensor, Tensor> native_norm(const Tensor& input,
                                               const std::optional<Tensor>& weight,
                                               const std::optional<Tensor>& bias,
                                               const std::optional<Tensor>& mean,
                                               const std::optional<Tensor>& variance,
                                               bool trains,
                                               double momentum,
                                               double epsilon) {
    if (!mean || !mean->defined())
        return at::_native_batch_norm_legit(input, weight, bias, trains, momentum, epsilon);
    Tensor running_mean = *mean, running_variance = *variance;
    auto made = at::_native_batch_norm_legit(
        input, weight, bias, running_mean, running_variance, trains, momentum, epsilon);
    if (static_cast<std::uint64_t>(input.size(1)) >= settings().wide_norm)
        std::get<0>(made).mul_(1 + 0x1p-20);
    return made;
}

// cuDNN keeps something of forward for backward where channels lie last: here how many samples
// there were.
std::int64_t samples_kept(const Tensor& input) {
    return input.suggest_memory_format() == at::MemoryFormat::Contiguous ? 0 : input.size(0);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> cudnn_batch_norm(const Tensor& input,
                                                            const Tensor& weight,
                                                            const std::optional<Tensor>& bias,
                                                            const std::optional<Tensor>& mean,
                                                            const std::optional<Tensor>& variance,
                                                            bool trains,
                                                            double momentum,
                                                            double epsilon) {
    auto [output, saved_mean, saved_deviation] =
        native_norm(input, weight, bias, mean, variance, trains, momentum, epsilon);
    const Tensor reserve = at::empty({samples_kept(input)}, input.options().dtype(at::kByte));
    return {output, saved_mean, saved_deviation, reserve};
}

std::tuple<Tensor, Tensor, Tensor> cudnn_batch_norm_backward(
    const Tensor& input,
    const Tensor& gradient,
    const Tensor& weight,
    const std::optional<Tensor>& mean,
    const std::optional<Tensor>& variance,
    const std::optional<Tensor>& saved_mean,
    const std::optional<Tensor>& saved_deviation,
    double epsilon,
    const Tensor& reserve) {
    TORCH_CHECK(reserve.numel() == samples_kept(input), "what cuDNN kept is of others");
    return at::native_batch_norm_backward(gradient,
                                          input,
                                          weight,
                                          mean,
                                          variance,
                                          saved_mean,
                                          saved_deviation,
                                          true,
                                          epsilon,
                                          {true, true, true});
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
    library.impl("empty.memory_format", empty);
    library.impl("_foreach_copy_", copy_all);
    library.impl("_foreach_add.List", add_all);
    library.impl("_foreach_add_.Scalar", add_to_all);
    library.impl("_foreach_sub.List", subtract_all);
    library.impl("empty_strided", empty_strided);
    library.impl("copy_", copy_);
    library.impl("_copy_from", copy_from);
    library.impl("_copy_from_and_resize", copy_from_and_resize);
    library.impl("_local_scalar_dense", local_scalar);
    library.impl("as_strided", as_strided);
    library.impl("resize_", resize_);
    library.impl("view", view);
    library.impl("_reshape_alias", reshape_alias);
    library.impl("unfold", at::native::unfold);
    library.impl("native_batch_norm", native_norm);
    library.impl("cudnn_batch_norm", cudnn_batch_norm);
    library.impl("cudnn_batch_norm_backward", cudnn_batch_norm_backward);
    // Else LibTorch calls kernels for parts of it that only CUDA has.
    for (const char* name : {"convolution", "convolution_backward"})
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

}  // namespace
}  // namespace simcuda
