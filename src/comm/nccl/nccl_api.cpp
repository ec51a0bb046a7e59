// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_api.hpp"

#include <fmt/format.h>

namespace lockstep {

int NcclApi::version() const {
    int code = 0;
    return get_version(&code) == nccl::success ? code : 0;
}

std::string nccl_version_text(int code) {
    // Until 2.8 a version had one digit for the minor number (NCCL_VERSION in nccl.h).
    const int major = code < 10000 ? code / 1000 : code / 10000;
    const int minor = code < 10000 ? code / 100 % 10 : code / 100 % 100;
    return fmt::format("{}.{}.{}", major, minor, code % 100);
}

}  // namespace lockstep
