// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

Error malformed(const std::string& origin, const std::string& why) {
    return Error("E222",
                 fmt::format("'{}' makes no sense as JSON", origin),
                 why,
                 "restore it from its source; do not edit it");
}

// What the library says, without its own error number in brackets.
std::string reason_of(const Json::exception& error) {
    const std::string_view text = error.what();
    const auto tag_end = text.find("] ");
    return std::string(text.starts_with('[') && tag_end != text.npos ? text.substr(tag_end + 2)
                                                                     : text);
}

// Refuses depth and repeated keys while the parser runs, before anything large is built.
class Guard {
  public:
    Guard(const std::string& origin, int max_depth) : origin_(origin), max_depth_(max_depth) {}

    bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
        using enum nlohmann::detail::parse_event_t;
        if (depth >= max_depth_ && (event == object_start || event == array_start))
            throw malformed(origin_, fmt::format("nested deeper than {} levels", max_depth_));
        if (event == object_start) keys_.emplace_back();
        if (event == object_end) keys_.pop_back();
        if (event == key && !keys_.back().insert(parsed.get<std::string>()).second)
            throw malformed(origin_, fmt::format("key {} is there twice", parsed.dump()));
        return true;
    }

  private:
    const std::string& origin_;
    int max_depth_;
    std::vector<std::set<std::string>> keys_;
};

bool fits_int64(const Json& value) {
    return value.is_number_integer() &&
           (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& origin, int max_depth) {
    try {
        return Json::parse(text, Guard(origin, max_depth));
    } catch (const Json::exception& error) {
        throw malformed(origin, reason_of(error));
    }
}

Json read_json(const std::filesystem::path& path, std::size_t limit_bytes) {
    return parse_json(read_file(path, limit_bytes), path.string());
}

template <class T>
T json_field(const Json& object, const std::string& key, const std::string& origin) {
    if (!object.is_object() || !object.contains(key))
        throw malformed(origin, fmt::format("'{}' is missing", key));
    const Json& value = object.at(key);
    bool fits = true;
    if constexpr (std::is_same_v<T, std::string>) fits = value.is_string();
    if constexpr (std::is_same_v<T, bool>) fits = value.is_boolean();
    if constexpr (std::is_same_v<T, std::uint64_t>)
        fits = value.is_number_unsigned() && value.get<std::uint64_t>() < (std::uint64_t{1} << 62);
    if constexpr (std::is_same_v<T, std::int64_t>) fits = fits_int64(value);
    if constexpr (std::is_same_v<T, double>) fits = value.is_number();
    if constexpr (std::is_same_v<T, std::vector<std::int64_t>>)
        fits = value.is_array() && std::ranges::all_of(value, fits_int64);
    if constexpr (std::is_same_v<T, std::vector<double>>)
        fits = value.is_array() &&
               std::ranges::all_of(value, [](const Json& item) { return item.is_number(); });
    if (!fits)
        throw malformed(origin,
                        fmt::format("'{}' is {} ({})", key, value.dump(), value.type_name()));
    try {
        return value.get<T>();
    } catch (const Json::exception& error) {
        throw malformed(origin, fmt::format("'{}': {}", key, reason_of(error)));
    }
}

template std::string json_field(const Json&, const std::string&, const std::string&);
template bool json_field(const Json&, const std::string&, const std::string&);
template std::uint64_t json_field(const Json&, const std::string&, const std::string&);
template std::int64_t json_field(const Json&, const std::string&, const std::string&);
template double json_field(const Json&, const std::string&, const std::string&);
template Json json_field(const Json&, const std::string&, const std::string&);
template std::vector<double> json_field(const Json&, const std::string&, const std::string&);
template std::vector<std::string> json_field(const Json&, const std::string&, const std::string&);
template std::vector<std::int64_t> json_field(const Json&, const std::string&, const std::string&);

}  // namespace lockstep
