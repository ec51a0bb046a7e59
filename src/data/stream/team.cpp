// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/team.hpp"

#include "lockstep/core/error_bytes.hpp"

namespace lockstep {
std::vector<std::string> gather(const Team& team, const std::string& bytes) {
    if (team.size == 1) return {bytes};
    std::vector<std::string> all = team.all_gather(bytes);
    expect(all.size() == static_cast<std::size_t>(team.size), "every member of a team answers");
    return all;
}

void end_if_failed(const Team& team, const std::optional<Error>& mine) {
    for (const std::string& failure : gather(team, mine ? error_bytes(*mine) : ""))
        if (!failure.empty()) throw error_from_bytes(failure);
}

std::string by_root(const Team& team, const std::function<std::string()>& step) {
    std::string value;
    together(team, [&] {
        if (team.is_root()) value = step();
    });
    return gather(team, value)[0];
}

}  // namespace lockstep
