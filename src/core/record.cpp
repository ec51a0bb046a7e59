// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/record.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {

Record::Record() : object_(Json::object()), is_reading_(false) {}

Record::Record(Json object, std::string origin)
    : object_(std::move(object)), origin_(std::move(origin)), is_reading_(true) {
    check(object_.is_object(), [&] {
        return Error("E222",
                     fmt::format("'{}' is no JSON object", origin_),
                     fmt::format("it is of type {}", object_.type_name()),
                     "restore it from its source; do not edit it");
    });
}

template <class T>
void Record::field(const char* key, T& value) {
    if (!is_reading_) {
        object_.add_member(key) = value;
        return;
    }
    if constexpr (std::is_same_v<T, int>) {
        const auto number = json_field<std::int64_t>(object_, key, origin_);
        check(std::in_range<int>(number), [&] {
            return Error("E222",
                         fmt::format("'{}': '{}' is {}", origin_, key, number),
                         "it is out of range",
                         "restore the file from its source; do not edit it");
        });
        value = static_cast<int>(number);
    } else if constexpr (std::is_same_v<T, Json>) {
        value = json_field<Json>(object_, key, origin_);
        check(value.is_object(),
              [&] { return Error("E222", fmt::format("'{}': '{}' is no object", origin_, key)); });
    } else {
        value = json_field<T>(object_, key, origin_);
    }
}

template void Record::field(const char*, bool&);
template void Record::field(const char*, int&);
template void Record::field(const char*, std::int64_t&);
template void Record::field(const char*, std::uint64_t&);
template void Record::field(const char*, double&);
template void Record::field(const char*, std::string&);
template void Record::field(const char*, Json&);

std::size_t Record::place(const char* key,
                          std::size_t now,
                          std::span<const std::string_view> names) {
    if (!is_reading_) {
        expect(now < names.size(), "every enumerator has its name");
        object_.add_member(key) = names[now];
        return now;
    }
    const auto name = json_field<std::string>(object_, key, origin_);
    const auto found = std::ranges::find(names, name);
    check(found != names.end(), [&] {
        return Error("E222",
                     fmt::format("'{}': {} is '{}'", origin_, key, printable(name)),
                     fmt::format("known are {}", fmt::join(names, ", ")));
    });
    return static_cast<std::size_t>(found - names.begin());
}

void Record::mark(const char* key, std::string_view text) {
    if (!is_reading_) object_.add_member(key) = text;
}

}  // namespace lockstep
