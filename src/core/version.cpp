// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/version.hpp"

namespace lockstep {

std::string_view version_text() {
    return LOCKSTEP_VERSION;
}

}  // namespace lockstep
