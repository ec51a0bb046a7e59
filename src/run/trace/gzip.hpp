// SPDX-License-Identifier: Apache-2.0
// Texts in gzip's format (RFC 1952).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

std::string gzip(std::string_view text);

/// Returns the text in `packed`, at most `limit_bytes`; nothing if it is longer, cut or damaged.
std::optional<std::string> gunzip(std::string_view packed, std::size_t limit_bytes);

}  // namespace lockstep
