// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/team.hpp"

#include "lockstep/core/json.hpp"

namespace lockstep {
namespace {

std::string packed(const Error& error) {
    return Json{error.code(), error.what(), error.why(), error.fix()}.dump(-1, Utf8::replace);
}

Error unpacked(const std::string& text) {
    const auto parts = parse_json(text, "another rank's error").get<std::vector<std::string>>();
    expect(parts.size() == 4, "an error has four parts");
    return Error(parts[0], parts[1], parts[2], parts[3]);
}

}  // namespace

std::vector<std::string> gather(const Team& team, const std::string& bytes) {
    if (team.size == 1) return {bytes};
    std::vector<std::string> all = team.all_gather(bytes);
    expect(all.size() == static_cast<std::size_t>(team.size), "every member of a team answers");
    return all;
}

void end_if_failed(const Team& team, const std::optional<Error>& mine) {
    for (const std::string& failure : gather(team, mine ? packed(*mine) : ""))
        if (!failure.empty()) throw unpacked(failure);
}

std::string by_root(const Team& team, const std::function<std::string()>& step) {
    std::string value;
    together(team, [&] {
        if (team.is_root()) value = step();
    });
    return gather(team, value)[0];
}

}  // namespace lockstep
