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
    {"E201", ErrorKind::file_missing},     {"E202", ErrorKind::file_forbidden},
    {"E204", ErrorKind::data_damaged},     {"E210", ErrorKind::data_damaged},
    {"E213", ErrorKind::data_damaged},     {"E233", ErrorKind::helper_missing},
    {"E236", ErrorKind::value_missing},    {"E242", ErrorKind::interrupted},
    {"E305", ErrorKind::format_newer},     {"E409", ErrorKind::device_failed},
    {"E530", ErrorKind::no_authorization}, {"E604", ErrorKind::launch_mismatch},
    {"E611", ErrorKind::timed_out},        {"E630", ErrorKind::rank_absent},
    {"E632", ErrorKind::no_shared_memory}, {"E673", ErrorKind::gpu_shared},
    {"E677", ErrorKind::nccl_failed},      {"E680", ErrorKind::aborted},
    {"E682", ErrorKind::peer_gave_up},     {"E660", ErrorKind::peer_lost},
    {"E620", ErrorKind::messages_failed},  {"E676", ErrorKind::messages_failed},
    {"E678", ErrorKind::messages_failed},  {"E692", ErrorKind::messages_failed},
});

}  // namespace

ErrorKind kind_of_code(std::string_view code) {
    const auto found = std::ranges::find(kinds, code, &KindOfCode::code);
    return found == kinds.end() ? ErrorKind::other : found->kind;
}

ErrorKind kind_of(const Error& error) {
    return kind_of_code(error.code());
}

Blame blame_of_code(std::string_view code) {
    switch (kind_of_code(code)) {
        case ErrorKind::aborted:
        case ErrorKind::peer_gave_up:
        case ErrorKind::peer_lost:
        case ErrorKind::rank_absent:
            return Blame::peer;
        case ErrorKind::messages_failed:
        case ErrorKind::nccl_failed:
            return Blame::unsure;
        default:
            return Blame::own;
    }
}

}  // namespace lockstep
