// SPDX-License-Identifier: Apache-2.0
// Structs of facts as JSON and back, by the one list of fields that their walk() has.
#pragma once

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"

#include <concepts>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {

template <class Facts, class Wanted>
concept FactsOf = std::same_as<std::remove_const_t<Facts>, Wanted>;

template <class T>
concept PlainFact = std::same_as<T, std::string> || std::is_arithmetic_v<T>;

/// Puts what differs from its default into an object.
class FactsWriter {
  public:
    Json object = Json::object();

    template <class T>
    void operator()(const char* key, const T& value, const std::type_identity_t<T>& usual = {}) {
        if constexpr (std::is_class_v<T> && !PlainFact<T>) {
            if (Json inner = json_of(value); !inner.empty()) object[key] = std::move(inner);
        } else {
            if (value != usual) object[key] = json_of(value);
        }
    }
    template <class T>
    void operator()(const char* key, const std::optional<T>& value) {
        if (value) object[key] = json_of(*value);
    }
    template <class T>
    void operator()(const char* key, const std::vector<T>& values) {
        if (!values.empty()) object[key] = json_of(values);
    }

  private:
    template <class T>
    static Json json_of(const T& value) {
        if constexpr (PlainFact<T>) {
            return value;
        } else {
            FactsWriter inner;
            walk(inner, value);
            return std::move(inner.object);
        }
    }
    template <class T>
    static Json json_of(const std::map<std::string, T>& values) {
        Json object = Json::object();
        for (const auto& [key, value] : values) object[key] = json_of(value);
        return object;
    }
    static Json json_of(const std::vector<int>& cpus) { return cpu_list_text(cpus); }
    static Json json_of(InterfaceKind kind) { return std::string(interface_kind_name(kind)); }
    static Json json_of(InstructionSet level) { return std::string(instruction_set_name(level)); }
    template <class T>
    static Json json_of(const std::vector<T>& values) {
        Json array = Json::array();
        for (const auto& value : values) array.push_back(json_of(value));
        return array;
    }
};

inline Error wrong_type(const std::string& origin, const Json& value, const char* wanted) {
    return Error("E222",
                 fmt::format("'{}' is {}, not {}", origin, value.dump(), wanted),
                 "",
                 "write the file anew with 'lockstep map'");
}

/// Takes from an object what is there. A key that nobody asks for is refused: misspelt, it would
/// be a fact silently left out.
class FactsReader {
  public:
    FactsReader(const Json& object, std::string origin)
        : object_(object), origin_(std::move(origin)) {
        check(object.is_object(), [&] { return wrong_type(origin_, object, "an object"); });
    }

    template <class T>
    void operator()(const char* key, T& value, const std::type_identity_t<T>& = {}) {
        known_.insert(key);
        if (object_.contains(key)) take(object_.at(key), origin_ + ": " + key, value);
    }

    template <class T>
    static void take(const Json& value, const std::string& origin, T& facts) {
        FactsReader inner(value, origin);
        walk(inner, facts);
        inner.refuse_unknown_keys();
    }

  private:
    void refuse_unknown_keys() const {
        const std::vector<std::string> names(known_.begin(), known_.end());
        for (const auto& [key, value] : object_.items())
            check(known_.contains(key), [&] {
                return Error("E222",
                             fmt::format("'{}' has an unknown key '{}'", origin_, key),
                             "",
                             did_you_mean(key, names));
            });
    }

    static void take(const Json& value, const std::string& origin, std::string& text) {
        check(value.is_string(), [&] { return wrong_type(origin, value, "text"); });
        text = value.get<std::string>();
    }
    static void take(const Json& value, const std::string& origin, bool& flag) {
        check(value.is_boolean(), [&] { return wrong_type(origin, value, "true or false"); });
        flag = value.get<bool>();
    }
    static void take(const Json& value, const std::string& origin, double& number) {
        check(value.is_number(), [&] { return wrong_type(origin, value, "a number"); });
        number = value.get<double>();
    }
    static void take(const Json& value, const std::string& origin, int& number) {
        const bool fits = value.is_number_integer() && value == value.get<int>();
        check(fits, [&] { return wrong_type(origin, value, "a whole number in range"); });
        number = value.get<int>();
    }
    static void take(const Json& value, const std::string& origin, std::uint64_t& number) {
        check(value.is_number_unsigned(), [&] { return wrong_type(origin, value, "a count"); });
        number = value.get<std::uint64_t>();
    }
    static void take(const Json& value, const std::string& origin, std::vector<int>& cpus) {
        std::string text;
        take(value, origin, text);
        const auto list = parse_cpu_list(text == "-" ? "" : text);
        check(list.has_value(), [&] { return wrong_type(origin, value, "a list such as 0-3,8"); });
        cpus = *list;
    }
    static void take(const Json& value, const std::string& origin, InterfaceKind& kind) {
        std::string name;
        take(value, origin, name);
        for (int i = 0; i <= static_cast<int>(InterfaceKind::other); ++i) {
            kind = static_cast<InterfaceKind>(i);
            if (interface_kind_name(kind) == name) return;
        }
        throw wrong_type(origin, value, "a kind of interface");
    }
    static void take(const Json& value, const std::string& origin, InstructionSet& level) {
        std::string name;
        take(value, origin, name);
        const auto found = parse_instruction_set(name);
        check(found.has_value(), [&] { return wrong_type(origin, value, "an instruction set"); });
        level = *found;
    }
    template <class T>
    static void take(const Json& value, const std::string& origin, std::map<std::string, T>& map) {
        check(value.is_object(), [&] { return wrong_type(origin, value, "an object"); });
        for (const auto& [key, item] : value.items()) take(item, origin + ": " + key, map[key]);
    }
    template <class T>
    static void take(const Json& value, const std::string& origin, std::optional<T>& maybe) {
        take(value, origin, maybe.emplace());
    }
    template <class T>
    static void take(const Json& value, const std::string& origin, std::vector<T>& values) {
        check(value.is_array(), [&] { return wrong_type(origin, value, "an array"); });
        values.clear();
        for (const Json& item : value) {
            const auto index = values.size();
            take(item, fmt::format("{}[{}]", origin, index), values.emplace_back());
        }
    }

    const Json& object_;
    std::string origin_;
    std::set<std::string> known_;
};

template <class Facts>
Json json_of_facts(const Facts& facts) {
    FactsWriter writer;
    walk(writer, facts);
    return std::move(writer.object);
}

/// JSON on one line.
template <class Facts>
std::string text_of_facts(const Facts& facts) {
    return json_of_facts(facts).dump(-1, Utf8::replace);
}

/// Errors: E222 naming `origin`.
template <class Facts>
Facts facts_of_text(std::string_view text, const std::string& origin) {
    Facts facts;
    FactsReader::take(parse_json(text, origin), origin, facts);
    return facts;
}

}  // namespace lockstep
