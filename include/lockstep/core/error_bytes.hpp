// SPDX-License-Identifier: Apache-2.0
/// @file
/// An error on its way to another process.
#pragma once

#include "lockstep/core/error.hpp"

#include <string>
#include <string_view>

namespace lockstep {

/// Code, what, why and fix, each ended by a zero byte.
std::string error_bytes(const Error& error);

/// The error that error_bytes() wrote. Errors: E700 if it did not.
Error error_from_bytes(std::string_view bytes);

}  // namespace lockstep
