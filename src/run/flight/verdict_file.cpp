// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/run/verdict.hpp"

#include <cerrno>
#include <chrono>

#include <fcntl.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_verdict_bytes = 1u << 20;
constexpr int as_new = O_WRONLY | O_CREAT | O_EXCL;

std::optional<Trouble> trouble_named(std::string_view name) {
    for (int i = 0; i <= static_cast<int>(Trouble::ended); ++i)
        if (name_of(static_cast<Trouble>(i)) == name) return static_cast<Trouble>(i);
    return {};
}

bool is_of_this_host(const fs::path& verdict) try {
    const Json content = read_json(verdict, most_verdict_bytes);
    return json_field<std::string>(content, "host", "verdict") == host_name();
} catch (const Error&) {
    return false;
}

}  // namespace

void describe(Record& record, Verdict& verdict) {
    record.text(
        "verdict",
        verdict.trouble,
        [](Trouble trouble) { return name_of(trouble); },
        trouble_named,
        "a verdict");
    record.field("ranks", verdict.culprits);
    LOCKSTEP_EACH(record.field, verdict.what, verdict.why, verdict.fix);
}

fs::path verdict_path(const fs::path& folder) {
    return folder / "verdict.json";
}

Json json_of(const Verdict& verdict) {
    return json_of_record(verdict);
}

bool claim_verdict(const fs::path& folder, const Verdict& verdict) {
    const fs::path path = verdict_path(folder);
    const UniqueFd file = open_for_writing(path, as_new);
    if (!file) return errno != EEXIST;
    Json content = json_of(verdict);
    content["host"] = host_name();
    content["time"] = utc_text(unix_time_s());
    const std::string text = content.dump(2) + "\n";
    try {
        write_all(file.value(), bytes_of(text), path);
    } catch (const Error&) {
        // The place is taken all the same.
    }
    return true;
}

bool claim_unheard_verdict(const fs::path& folder, double patience_s) {
    const std::chrono::duration<double> while_ranks_end(patience_s);
    std::error_code missing;
    const auto given = fs::last_write_time(verdict_path(folder), missing);
    if (missing || fs::file_time_type::clock::now() - given < while_ranks_end) return false;
    if (is_of_this_host(verdict_path(folder))) return false;
    return open_for_writing(folder / fmt::format("verdict-{}", host_name()), as_new) ||
           errno != EEXIST;
}

std::optional<Verdict> read_verdict(const fs::path& folder) {
    const fs::path path = verdict_path(folder);
    if (!fs::exists(status_of(path))) return std::nullopt;
    return record_from_json<Verdict>(read_json(path, most_verdict_bytes), path.string());
}

}  // namespace lockstep
