// SPDX-License-Identifier: Apache-2.0
// What LibTorch throws for what the world does, in our words.
#pragma once

#include "model/model.hpp"

#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace lockstep {

/// LibTorch's own message: the first line of its errors, the last of TorchScript's.
std::string reason_of(const std::exception& error);

/// The same of code by `author`: the first line of what a class of the user's throws.
std::string reason_of(const std::exception& error, ModelAuthor author);

/// Errors: what as_error() knows (memory, files); E681 if `error` is CUDA's, E695 if an operator
/// may give other bits each time, E696 if a GPU has no memory left. Returns otherwise.
void throw_if_known(const std::exception& error);

/// Where a model's code is run.
enum class ModelPlace { constructor, forward, backward };

/// In a handler of what left a model's code. Errors: the exception itself if it is an Error, says
/// that a GPU has no memory, or left a model of ours; those of throw_if_known(); what as_error()
/// knows; else E250 with the exception's first line.
[[noreturn]] void rethrow_of_model(ModelAuthor author, ModelPlace place);

/// What `work` gives, which runs a model's code. Errors: those above.
template <class Work>
decltype(auto) in_model(ModelAuthor author, ModelPlace place, Work&& work) {
    try {
        return work();
    } catch (...) {
        rethrow_of_model(author, place);
    }
}

/// What `work` gives. What it throws of LibTorch, as throw_if_known() has it.
template <class Work>
decltype(auto) with_known_errors(Work&& work) {
    try {
        return work();
    } catch (const c10::Error& error) {
        throw_if_known(error);
        throw;
    }
}

}  // namespace lockstep
