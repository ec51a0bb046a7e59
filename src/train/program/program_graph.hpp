// SPDX-License-Identifier: Apache-2.0
// The graph of an exported program as a flat list of operator calls. They run one after the other
// through LibTorch's dispatcher above autograd: backward, autocast and hooks work as for any model.
//
// Every value has a slot. A call knows the slots of its arguments and results, and the slots that
// no later call reads: these are emptied, so that memory is freed as early as in Python. First and
// last uses allow later changes of the order.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/plan/settings.hpp"

#include "model/model.hpp"
#include "program/program_file.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

namespace lockstep {

using SlotIndex = std::size_t;

/// Conversions of slots' values to an argument.
enum class FeedKind { value, tensor, tensors, optional_tensors, numbers };

/// An argument that differs between runs.
struct Feed {
    FeedKind kind = FeedKind::value;
    std::size_t argument = 0;
    std::vector<std::optional<SlotIndex>> slots;
    std::vector<std::int64_t> numbers;  ///< for kind `numbers`, if there is no slot
};

/// Arithmetic with sizes, which is Python's own: no operator of LibTorch.
using NumberOperation = c10::IValue (*)(const std::vector<c10::IValue>&);

/// One call.
struct ProgramCall {
    std::string name;                       ///< "aten::conv2d"
    std::string line;                       ///< line of the user's code; "": unknown
    std::string module;                     ///< path of its module: "layer1.0.conv1"
    std::optional<c10::OperatorHandle> op;  ///< null: `number` is used
    NumberOperation number = nullptr;
    torch::jit::Stack arguments;  ///< empty values in the places of feeds
    std::vector<Feed> feeds;
    /// An argument and its value in evaluation, if that differs.
    std::optional<std::pair<std::size_t, c10::IValue>> in_evaluation;
    std::optional<std::size_t>
        device;  ///< the argument that names a device: the inputs' device replaces it
    std::optional<bool> gradients;  ///< set by torch.no_grad() and enable_grad(); else unchanged
    std::optional<std::size_t> of_batch;  ///< batch norm's argument that says whether it trains
    bool trains_only = false;             ///< omitted in evaluation
    bool takes_strides = false;           ///< as_strided of what was contiguous at the export
    bool may_copy = false;                ///< of as_strided: nothing writes the tensor's memory
    bool gives_list = false;              ///< its result is one list of tensors
    std::vector<std::optional<SlotIndex>> results;
    std::vector<SlotIndex> last_uses;
};

/// The whole graph. Copies of tensors are handles: the same tensors as the caller's.
struct ProgramGraph {
    std::vector<ProgramCall> calls;
    std::vector<c10::IValue> start;  ///< values of slots before the first call
    std::vector<SlotIndex> inputs;
    std::vector<SlotIndex> outputs;                         ///< as the file's
    std::vector<std::pair<SlotIndex, at::Tensor>> updates;  ///< values that buffers take
    std::vector<SlotIndex> copied;  ///< of these buffers: calls see copies, which backward may keep
    std::vector<bool> changes;  ///< by tensor of the file: whether a call or an update writes it

    /// Computes one forward pass. Errors: E217 with the user's line if an operator fails; those of
    /// throw_if_known().
    std::vector<at::Tensor> run(const std::vector<at::Tensor>& given, ModelMode mode) const;
};

/// Leaves out sizes that only a check wanted, fills in ProgramCall::last_uses, and makes reshapes
/// of views, which copy where strides allow no view: but not where a call writes to their memory.
/// Sets ProgramCall::may_copy.
void finish(ProgramGraph& graph);

/// `tensors` are the file's, in its order. Errors: E250 if an operator is not in LibTorch, chooses
/// code as it runs, writes a parameter or a file, or if the program was exported for evaluation and
/// `mode` is train; E107 if it was not, and `mode` is as_exported.
ProgramGraph compile_program(const ProgramFile& file,
                             const std::vector<at::Tensor>& tensors,
                             ProgramMode mode);

/// The mode for which an operator with a switch was exported.
enum class CallMode { train, evaluate };

/// Switches a call that was exported for training to evaluation, as
/// torch.ao.quantization.move_exported_model_to_eval() does: stores the value of an argument.
/// Returns nothing if the operator has no switch, or if it makes no difference here, such as a
/// dropout of 0.
std::optional<CallMode> switch_mode(ProgramCall& call);

/// Returns the operation of a node's target, Python's arithmetic with sizes between operators
/// ("_operator.floordiv"); nullptr: there is none of this name. It throws std::runtime_error if
/// Python would or if 64 bits do not hold the result.
NumberOperation number_operation(std::string_view target);

/// Returns true if an operator requires a tensor there.
bool wants_tensor(const c10::Argument& argument);

/// Converts JSON's form of a value to the operator's: a whole number for a float, one number for a
/// list of a fixed length, a number for a tensor.
c10::IValue fitted_argument(c10::IValue value, const c10::Argument& argument);

/// Returns the value of `about` for an argument of `kind`, if that is no value of another node;
/// nothing: the kind is unknown. Errors: E222.
std::optional<c10::IValue> constant_argument(const std::string& kind, const Json& about);

/// Returns schema.py's element type as LibTorch's. Errors: E222.
at::ScalarType scalar_type_of(int number);

}  // namespace lockstep
