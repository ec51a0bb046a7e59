// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error_kind.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {
namespace {

struct KindOfCode {
    std::string_view code;
    ErrorKind kind;
};

using enum ErrorKind;

constexpr auto kinds = std::to_array<KindOfCode>({
    {"E201", file_missing},
    {"E202", file_forbidden},
    {"E204", data_damaged},
    {"E210", data_damaged},
    {"E213", data_damaged},
    {"E233", helper_missing},
    {"E242", interrupted},
    {"E305", format_newer},
    {"E409", device_failed},
    {"E530", no_authorization},
    {"E604", launch_mismatch},
    {"E611", timed_out},
    {"E630", rank_absent},
    {"E632", no_shared_memory},
    {"E673", gpu_shared},
    {"E680", aborted},
    {"E682", peer_gave_up},
});

}  // namespace

ErrorKind kind_of(const Error& error) {
    const auto found = std::ranges::find(kinds, std::string_view(error.code()), &KindOfCode::code);
    return found == kinds.end() ? other : found->kind;
}

}  // namespace lockstep
