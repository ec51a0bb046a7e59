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

constexpr auto kinds = std::to_array<KindOfCode>({
    {"E201", ErrorKind::file_missing},
    {"E202", ErrorKind::file_forbidden},
    {"E204", ErrorKind::data_damaged},
    {"E210", ErrorKind::data_damaged},
    {"E213", ErrorKind::data_damaged},
    {"E233", ErrorKind::helper_missing},
    {"E242", ErrorKind::interrupted},
    {"E305", ErrorKind::format_newer},
    {"E409", ErrorKind::device_failed},
    {"E530", ErrorKind::no_authorization},
    {"E604", ErrorKind::launch_mismatch},
    {"E611", ErrorKind::timed_out},
    {"E630", ErrorKind::rank_absent},
    {"E632", ErrorKind::no_shared_memory},
    {"E673", ErrorKind::gpu_shared},
    {"E680", ErrorKind::aborted},
    {"E682", ErrorKind::peer_gave_up},
});

}  // namespace

ErrorKind kind_of(const Error& error) {
    const auto found = std::ranges::find(kinds, std::string_view(error.code()), &KindOfCode::code);
    return found == kinds.end() ? ErrorKind::other : found->kind;
}

}  // namespace lockstep
