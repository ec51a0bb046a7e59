// SPDX-License-Identifier: Apache-2.0
// Splits texts of SLURM.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Splits at every `mark`; returns at least one part, which may be empty.
inline std::vector<std::string> split_text(const std::string& text, char mark) {
    std::vector<std::string> parts(1);
    for (const char c : text) {
        if (c == mark)
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

}  // namespace lockstep
