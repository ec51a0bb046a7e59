// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/record.hpp"

#include "lockstep/core/link_times.hpp"
#include "lockstep/core/log.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
Record::Record(const Json& object, std::string origin, UnknownKeys unknown_keys)
    : read_(&object), origin_(std::move(origin)), unknown_keys_(unknown_keys) {
    if (object.is_object()) return;
    throw senseless(fmt::format("it is no object but of type {}", object.type_name()));
}

Error Record::senseless(std::string why) const {
    return Error("E222",
                 fmt::format("'{}' makes no sense as JSON", origin_),
                 std::move(why),
                 unknown_keys_ == UnknownKeys::refused
                     ? "correct it, or write it again"
                     : "restore it from its source; do not edit it");
}

Error Record::unfit(const std::string& key, const Json& value, std::string_view wanted) const {
    return senseless(fmt::format(
        "'{}' is {} ({}), not {}", key, printable(value.dump()), value.type_name(), wanted));
}

void Record::take(const Json& json, const std::string& key, bool& value) const {
    if (!json.is_boolean()) throw unfit(key, json, "true or false");
    value = json.get<bool>();
}

void Record::take(const Json& json, const std::string& key, int& value) const {
    const bool fits = json.is_int64() && std::in_range<int>(json.get<std::int64_t>());
    if (!fits) throw unfit(key, json, "a whole number in range");
    value = json.get<int>();
}

void Record::take(const Json& json, const std::string& key, std::int64_t& value) const {
    if (!json.is_int64()) throw unfit(key, json, "a whole number");
    value = json.get<std::int64_t>();
}

void Record::take(const Json& json, const std::string& key, std::uint64_t& value) const {
    if (!json.is_number_unsigned()) throw unfit(key, json, "a count");
    value = json.get<std::uint64_t>();
}

void Record::take(const Json& json, const std::string& key, double& value) const {
    if (!json.is_number()) throw unfit(key, json, "a number");
    value = json.get<double>();
}

void Record::take(const Json& json, const std::string& key, std::string& value) const {
    if (!json.is_string()) throw unfit(key, json, "text");
    value = json.get<std::string>();
}

void Record::take(const Json& json, const std::string& key, Json& value) const {
    if (!json.is_object()) throw unfit(key, json, "an object");
    value = json;
}

void Record::count(const char* key, std::uint64_t& value) {
    constexpr auto bound = std::uint64_t{1} << 62;
    field(key, value);
    if (is_reading() && value >= bound) throw unfit(key, value, "a count below 2^62");
}

void Record::measured(const char* key, double& value) {
    if (!wants(key, true)) return;
    auto finite = std::isfinite(value) ? std::optional(value) : std::nullopt;
    field(key, finite);
    value = finite.value_or(std::numeric_limits<double>::quiet_NaN());
}

std::int64_t Record::version(const char* key, std::int64_t newest) {
    std::int64_t found = newest;
    field(key, found);
    check(found >= 1 && found <= newest,
          "E305",
          fmt::format("'{}' has format {}", origin_, found),
          fmt::format("this program reads formats up to {}", newest),
          "use the version of lockstep that wrote it");
    return found;
}

void Record::mark(const char* key, std::string_view text) {
    if (is_reading())
        static_cast<void>(wants(key, false));
    else
        made_.add_member(key) = text;
}

bool Record::wants(const char* key, bool is_worth_it) {
    if (!is_reading()) return is_worth_it;
    if (unknown_keys_ == UnknownKeys::refused) asked_.emplace_back(key);
    return read_->contains(key);
}

const Json& Record::asked(const char* key) {
    if (!wants(key, true)) throw senseless(fmt::format("'{}' is missing", key));
    return read_->at(key);
}

void Record::finish() const {
    if (!is_reading() || unknown_keys_ == UnknownKeys::ignored) return;
    for (const JsonMember& member : read_->items())
        check(std::ranges::find(asked_, member.key) != asked_.end(), [&] {
            return Error(
                "E222",
                fmt::format("'{}' has an unknown key '{}'", origin_, printable(member.key)),
                "",
                did_you_mean(member.key, asked_));
        });
}

std::size_t Record::place(const char* key,
                          std::size_t now,
                          std::span<const std::string_view> names) {
    if (!is_reading()) {
        expect(now < names.size(), "every enumerator has its name");
        made_.add_member(key) = names[now];
        return now;
    }
    std::string name;
    field(key, name);
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
        throw unfit(key, Json(name), fmt::format("one of {}", fmt::join(names, ", ")));
    return static_cast<std::size_t>(found - names.begin());
}

std::string next_member(std::string_view& members) {
    const std::string_view first = members.substr(0, members.find(','));
    members.remove_prefix(std::min(first.size() + 1, members.size()));
    return std::string(first.substr(first.rfind('.') + 1));
}

void describe(Record& record, ErrorEvent& error) {
    LOCKSTEP_EACH(record.field, error.code, error.what);
    LOCKSTEP_EACH(record.sparse, error.why, error.ranks, error.fix);
}

ErrorEvent event_of(const Error& error) {
    return {error.code(), error.what(), error.why(), {}, error.fix()};
}

std::string error_bytes(const Error& error) {
    return serialize(event_of(error));
}

Error error_from_bytes(std::string_view bytes) {
    const auto parts = deserialize<ErrorEvent>(bytes, "an error of another process");
    return Error(parts.code, parts.what, parts.why, parts.fix);
}

void describe(Record& record, LinkTimes& times) {
    LOCKSTEP_EACH(record.field, times.from, times.messages, times.bytes, times.seconds);
}

void add_links(std::vector<LinkTimes>& sums, std::span<const LinkTimes> more) {
    for (const LinkTimes& times : more) {
        auto at = std::ranges::lower_bound(sums, times.from, {}, &LinkTimes::from);
        if (at == sums.end() || at->from != times.from) at = sums.insert(at, {.from = times.from});
        at->messages += times.messages;
        at->bytes += times.bytes;
        at->seconds += times.seconds;
    }
}

}  // namespace lockstep
