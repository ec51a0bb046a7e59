// SPDX-License-Identifier: Apache-2.0
#include "journal.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include "format/manifest_fields.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::string_view plan_name = "pack.json", done_suffix = ".done";

void write_sealed(const fs::path& path, const Json& json) {
    std::string text = json.dump(2);
    text.resize(text.rfind("\n}"));
    write_file_atomically(path, sealed(std::move(text)));
}

// Nothing if the file is missing or not as it was written.
std::optional<Json> read_sealed(const fs::path& path) {
    try {
        const std::string text = read_file(path);
        const auto cut = text.rfind(",\n  \"digest\"");
        if (cut == text.npos || sealed(text.substr(0, cut)) != text) return {};
        return parse_json(text, path.string());
    } catch (const Error&) {
        return {};
    }
}

bool is_record(const fs::path& path) {
    return path.filename() == plan_name || path.extension() == done_suffix;
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
    return files;
}

fs::path record_of(const fs::path& shard) {
    return fmt::format("{}{}", shard.string(), done_suffix);
}

}  // namespace

void describe(Record& record, Journal::Plan& plan) {
    record.field("identity", plan.identity);
    record.field("fields", plan.fields);
}

std::optional<Journal::Plan> Journal::plan() const {
    const auto json = read_sealed(folder_ / plan_name);
    if (!json) return {};
    return record_from_json<Plan>(*json, std::string(plan_name));
}

void Journal::write_plan(const Plan& plan) const {
    write_sealed(folder_ / plan_name, json_of_record(plan));
}

std::optional<Shard> Journal::finished(const std::string& name,
                                       const std::vector<Field>& fields) const {
    const auto json = read_sealed(record_of(folder_ / name));
    if (!json) return {};
    Shard shard = shard_from_json(json->at("shard"), fields, name);
    std::error_code missing;
    const std::uint64_t bytes = fs::file_size(folder_ / name, missing);
    if (missing || bytes != shard.bytes || shard.name != name) return {};
    return shard;
}

void Journal::write_finished(const Shard& shard, const std::vector<Field>& fields) const {
    write_sealed(record_of(folder_ / shard.name), {{"shard", shard_json(shard, fields)}});
}

void Journal::forget(const std::string& name) const {
    fs::remove(record_of(folder_ / name));
    fs::remove(folder_ / name);
}

std::size_t Journal::finished_count() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        files_in(folder_), [](const fs::path& path) { return path.extension() == done_suffix; }));
}

void Journal::remove_records() const {
    // The plan goes last: without it the rest means nothing.
    for (const fs::path& path : files_in(folder_))
        if (path.extension() == done_suffix) fs::remove(path);
    fs::remove(folder_ / plan_name);
}

void Journal::remove_unfinished() const {
    for (const fs::path& path : files_in(folder_))
        if (!is_record(path) && !fs::exists(record_of(path))) fs::remove_all(path);
}

std::string differences(const Json& before, const Json& now) {
    std::vector<std::string> texts;
    for (const auto& [key, value] : now.items())
        if (!before.contains(key) || before.at(key) != value)
            texts.push_back(fmt::format("{} was {}, now {}",
                                        key,
                                        before.value(key, Json("not known")).dump(),
                                        value.dump()));
    return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace lockstep
