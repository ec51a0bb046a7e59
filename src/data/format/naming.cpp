// SPDX-License-Identifier: Apache-2.0
#include "naming.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace lockstep {

bool is_field_name(std::string_view name) {
    return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-';
    });
}

std::string uuid_from(std::string digest) {
    digest[12] = '8';
    digest[16] = '8';
    for (const std::size_t dash : {8, 13, 18, 23}) digest.insert(dash, 1, '-');
    return digest;
}

}  // namespace lockstep
