// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/host_name.hpp"

#include <array>

#include <unistd.h>

namespace lockstep {

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace lockstep
