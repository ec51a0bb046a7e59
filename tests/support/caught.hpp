// SPDX-License-Identifier: Apache-2.0
// The error that an action throws, for tests that look into it.
#pragma once

#include "lockstep/core/error.hpp"

#include <optional>
#include <string>

namespace lockstep::test {

/// What `action` throws; nothing if it throws nothing.
template <class Action>
std::optional<Error> caught(Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        return error;
    }
    return {};
}

/// What `action` throws, or an error of code "none".
template <class Action>
Error error_of(Action&& action) {
    return caught(action).value_or(Error("none", ""));
}

/// The code of what `action` throws, or "".
template <class Action>
std::string caught_code(Action&& action) {
    const auto error = caught(action);
    return error ? error->code() : "";
}

/// The whole text of what `action` throws, or "".
template <class Action>
std::string caught_text(Action&& action) {
    const auto error = caught(action);
    return error ? error->text() : "";
}

}  // namespace lockstep::test
