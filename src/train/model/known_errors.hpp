// SPDX-License-Identifier: Apache-2.0
// Turns LibTorch's exceptions for external causes into our errors.
#pragma once

#include "model/model.hpp"

#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace lockstep {

/// Returns LibTorch's own message: the first line of its errors, the last of TorchScript's.
std::string reason_of(const std::exception& error);

/// Returns the same for code by `author`: the first line of an exception from a user's class.
std::string reason_of(const std::exception& error, ModelAuthor author);

/// Throws if the cause is known. Errors: those of as_error() (memory, files); E681 if `error` is
/// CUDA's, E695 if an operator may give other bits each time, E696 if a GPU has no memory left.
void throw_if_known(const std::exception& error);

/// The part of a model's code that runs.
enum class ModelPlace { constructor, train, forward, backward };

/// Call it in a handler of exceptions from a model's code. Errors: the exception itself if it is an
/// Error, reports that a GPU has no memory, or comes from a model of ours; those of
/// throw_if_known(); those of as_error(); else E250 with the exception's first line.
[[noreturn]] void rethrow_of_model(ModelAuthor author, ModelPlace place);

/// Returns the result of `work`, which runs a model's code. Errors: those above.
template <class Work>
decltype(auto) in_model(ModelAuthor author, ModelPlace place, Work&& work) {
    try {
        return work();
    } catch (...) {
        rethrow_of_model(author, place);
    }
}

/// Returns the result of `work`. LibTorch's exceptions become those of throw_if_known().
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
