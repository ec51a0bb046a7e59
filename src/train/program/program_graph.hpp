// SPDX-License-Identifier: Apache-2.0
// The graph of an exported program as a flat list of operator calls, run one after the other
// through LibTorch's dispatcher above autograd: backward, autocast and hooks work as for any model.
//
// Every value has a slot. A call knows which of its arguments come from slots, where its results
// go, and which slots nobody reads after it: these are emptied, so that memory is freed as soon as
// in Python. First and last uses are what later work may cut, gather or reorder by.
#pragma once

#include "model/model.hpp"
#include "program/program_file.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace lockstep {

using SlotIndex = std::size_t;

/// How values of slots become an argument.
enum class FeedKind { value, tensor, tensors, optional_tensors, numbers };

/// An argument that is not the same in each run.
struct Feed {
    FeedKind kind = FeedKind::value;
    std::size_t argument = 0;
    std::vector<std::optional<SlotIndex>> slots;
    std::vector<std::int64_t> numbers;  ///< of kind `numbers`, where there is no slot
};

/// Arithmetic with sizes, which Python does itself: no operator of LibTorch.
using NumberOperation = c10::IValue (*)(const std::vector<c10::IValue>&);

/// One call.
struct ProgramCall {
    std::string name;                       ///< "aten::conv2d"
    std::string line;                       ///< of the user's code; "": not known
    std::optional<c10::OperatorHandle> op;  ///< or else `number`
    NumberOperation number = nullptr;
    torch::jit::Stack arguments;  ///< with nothing where feeds go
    std::vector<Feed> feeds;
    /// What an argument is in evaluation, where that differs.
    std::optional<std::pair<std::size_t, c10::IValue>> in_evaluation;
    std::optional<std::size_t> device;  ///< the argument that names one: that of the inputs counts
    std::optional<bool> gradients;      ///< of torch.no_grad() and enable_grad(); else as around it
    bool trains_only = false;           ///< left out in evaluation
    bool gives_list = false;            ///< its result is one list of tensors
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

    /// One forward pass. Errors: E217 with the user's line where an operator fails; those of
    /// throw_if_known().
    std::vector<at::Tensor> run(const std::vector<at::Tensor>& given, ModelMode mode) const;
};

/// Leaves out sizes that only a check wanted; a later one may be all that an earlier one is for.
void drop_unread_numbers(ProgramGraph& graph);

/// Fills in ProgramCall::last_uses.
void note_last_uses(ProgramGraph& graph);

/// `tensors` are the file's, in its order. Errors: E250 if an operator is not in LibTorch, chooses
/// code as it runs, writes a parameter or a file, or if the program was exported for evaluation.
ProgramGraph compile_program(const ProgramFile& file, const std::vector<at::Tensor>& tensors);

}  // namespace lockstep
