// SPDX-License-Identifier: Apache-2.0
/// @file
/// The form in which an error is sent to another process.
#pragma once

#include "lockstep/core/error.hpp"

#include <string>
#include <string_view>

namespace lockstep {

/// Returns code, what, why and fix, each ended by a zero byte.
std::string error_bytes(const Error& error);

/// Returns the error that error_bytes() wrote. Errors: E700 for other bytes.
Error error_from_bytes(std::string_view bytes);

}  // namespace lockstep
