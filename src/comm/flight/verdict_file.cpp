// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/verdict_file.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/hash.hpp"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr auto last_trouble = static_cast<std::size_t>(Trouble::ended);

Trouble trouble_named(const std::string& name, const std::string& origin) {
    for (std::size_t i = 0; i <= last_trouble; ++i)
        if (name_of(static_cast<Trouble>(i)) == name) return static_cast<Trouble>(i);
    throw Error("E222", fmt::format("'{}' has an unknown verdict", origin), "", "remove it");
}

}  // namespace

fs::path verdict_path(const fs::path& folder) {
    return folder / "verdict.json";
}

Json json_of(const Verdict& verdict) {
    return {{"verdict", name_of(verdict.trouble)},
            {"ranks", verdict.culprits},
            {"what", verdict.what},
            {"why", verdict.why},
            {"fix", verdict.fix}};
}

bool claim_verdict(const fs::path& folder, const Verdict& verdict) {
    const fs::path path = verdict_path(folder);
    const UniqueFd file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return errno != EEXIST;
    Json content = json_of(verdict);
    content["time"] = utc_text(unix_time_s());
    const std::string text = content.dump(2) + "\n";
    try {
        write_all(file.value(), bytes_of(text), path);
    } catch (const Error&) {
        // The place is taken all the same.
    }
    return true;
}

std::optional<Verdict> read_verdict(const fs::path& folder) {
    const fs::path path = verdict_path(folder);
    if (std::error_code failed; !fs::exists(path, failed)) return std::nullopt;
    const std::string origin = path.string();
    const Json content = read_json(path, 1u << 20);
    Verdict verdict;
    verdict.trouble = trouble_named(json_field<std::string>(content, "verdict", origin), origin);
    verdict.what = json_field<std::string>(content, "what", origin);
    verdict.why = json_field<std::string>(content, "why", origin);
    verdict.fix = json_field<std::string>(content, "fix", origin);
    const Json ranks = json_field<Json>(content, "ranks", origin);
    for (const Json& rank : ranks)
        if (rank.is_number_integer()) verdict.culprits.push_back(rank.get<int>());
    return verdict;
}

}  // namespace lockstep
