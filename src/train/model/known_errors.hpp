// SPDX-License-Identifier: Apache-2.0
// What LibTorch throws for what the world does, in our words.
#pragma once

#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace lockstep {

/// LibTorch's own message: the first line of its errors, the last of TorchScript's.
std::string reason_of(const std::exception& error);

/// Errors: E681 if `error` is CUDA's, E695 if an operator may give other bits each time, E696 if a
/// GPU has no memory left. Returns otherwise.
void throw_if_known(const std::exception& error);

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
