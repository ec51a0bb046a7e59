// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

namespace lockstep {
namespace {

Error unfit(const Json& value, std::string_view wanted) {
    return Error("E222",
                 fmt::format("{} stands in place of {}", value.dump().substr(0, 200), wanted),
                 "it came from a file or another process, which wrote something else",
                 "restore it from its source; do not edit it");
}

bool is_pair(const Json& item) {
    return item.is_array() && item.size() == 2 && item.at(std::size_t{0}).is_string();
}

}  // namespace

Json::Json() noexcept = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json::Json(std::string&& text) : value_(std::move(text)) {}
Json::Json(Array items) : value_(std::move(items)) {}

void Json::set(const std::variant<bool, std::int64_t, std::uint64_t, double>& scalar) {
    std::visit([this](auto value) { value_ = value; }, scalar);
}

Json::Json(std::initializer_list<Json> items) {
    if (!std::ranges::all_of(items, is_pair)) {
        value_ = Array(items);
        return;
    }
    value_ = Object();
    for (const Json& item : items)
        (*this)[item.at(std::size_t{0}).text()] = item.at(std::size_t{1});
}

Json Json::object() {
    Json json;
    json.value_ = Object();
    return json;
}

const char* Json::type_name() const {
    constexpr const char* names[] = {
        "null", "boolean", "number", "number", "number", "string", "array", "object"};
    return names[value_.index()];
}

std::size_t Json::size() const {
    if (const auto* items = std::get_if<Array>(&value_)) return items->size();
    if (const auto* members = std::get_if<Object>(&value_)) return members->size();
    return is_null() ? 0 : 1;
}

const Json* Json::find(std::string_view key) const {
    const auto* members = std::get_if<Object>(&value_);
    if (!members) return nullptr;
    const auto found = std::ranges::find(*members, key, &JsonMember::key);
    return found == members->end() ? nullptr : &found->value;
}

const Json& Json::at(std::string_view key) const {
    const Json* const found = find(key);
    check(found != nullptr, [&] { return unfit(*this, fmt::format("an object with '{}'", key)); });
    return *found;
}

const Json& Json::at(std::size_t index) const {
    const auto* items = std::get_if<Array>(&value_);
    check(items && index < items->size(),
          [&] { return unfit(*this, fmt::format("a list of more than {}", index)); });
    return (*items)[index];
}

Json& Json::operator[](std::string_view key) {
    if (is_null()) value_ = Object();
    if (const Json* const found = find(key)) return const_cast<Json&>(*found);
    return add_member(std::string(key));
}

Json& Json::operator[](std::size_t index) {
    return const_cast<Json&>(std::as_const(*this).at(index));
}

Json& Json::add_member(std::string key) {
    auto* members = std::get_if<Object>(&value_);
    check(members, [&] { return unfit(*this, "an object"); });
    return members->emplace_back(JsonMember{std::move(key), {}}).value;
}

Json& Json::back() {
    check(is_array() && !empty(), [&] { return unfit(*this, "a list that is not empty"); });
    return std::get<Array>(value_).back();
}

const Json::Object& Json::items() const {
    const auto* members = std::get_if<Object>(&value_);
    check(members, [&] { return unfit(*this, "an object"); });
    return *members;
}

const Json* Json::begin() const {
    if (is_null()) return nullptr;
    const auto* items = std::get_if<Array>(&value_);
    check(items, [&] { return unfit(*this, "a list"); });
    return items->data();
}

const Json* Json::end() const {
    const Json* const first = begin();
    return first + size();
}

void Json::push_back(Json item) {
    if (is_null()) value_ = Array();
    auto* items = std::get_if<Array>(&value_);
    check(items, [&] { return unfit(*this, "a list"); });
    items->push_back(std::move(item));
}

void Json::update(const Json& other) {
    for (const auto& [key, value] : other.items()) (*this)[key] = value;
}

bool Json::erase(std::string_view key) {
    auto* members = std::get_if<Object>(&value_);
    return members &&
           std::erase_if(*members, [&](const JsonMember& member) { return member.key == key; }) > 0;
}

void Json::sort_keys() {
    if (auto* items = std::get_if<Array>(&value_))
        for (Json& item : *items) item.sort_keys();
    if (auto* members = std::get_if<Object>(&value_)) {
        std::ranges::sort(*members, {}, &JsonMember::key);
        for (JsonMember& member : *members) member.value.sort_keys();
    }
}

bool Json::flag() const {
    check(is_boolean(), [&] { return unfit(*this, "true or false"); });
    return std::get<bool>(value_);
}

double Json::number() const {
    check(is_number(), [&] { return unfit(*this, "a number"); });
    if (const auto* whole = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*whole);
    if (const auto* count = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*count);
    return std::get<double>(value_);
}

const std::string& Json::text() const {
    check(is_string(), [&] { return unfit(*this, "text"); });
    return std::get<std::string>(value_);
}

std::uint64_t Json::integer(std::int64_t least, std::uint64_t most) const {
    if (const auto* whole = std::get_if<std::int64_t>(&value_))
        if (*whole >= least && (*whole < 0 || static_cast<std::uint64_t>(*whole) <= most))
            return static_cast<std::uint64_t>(*whole);
    if (const auto* count = std::get_if<std::uint64_t>(&value_))
        if (*count <= most) return *count;
    throw unfit(*this, fmt::format("a whole number from {} to {}", least, most));
}

bool Json::is_int64() const {
    return is_number_integer() &&
           (!is_number_unsigned() || std::in_range<std::int64_t>(get<std::uint64_t>()));
}

// Numbers are equal by value, whichever way they are kept.
bool Json::equals(const Json& other) const {
    if (value_.index() == other.value_.index()) return value_ == other.value_;
    if (!is_number() || !other.is_number()) return false;
    if (is_number_integer() && other.is_number_integer())
        return is_int64() && other.is_int64() && get<std::int64_t>() == other.get<std::int64_t>();
    return number() == other.number();
}

std::ostream& operator<<(std::ostream& out, const Json& json) {
    return out << json.dump();
}

Json read_json(const fs::path& path, std::size_t limit_bytes) {
    return parse_json(read_file(path, limit_bytes), path.string());
}

}  // namespace lockstep
