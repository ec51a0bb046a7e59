// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "options.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::string subject(const std::string& name, const GivenValue& given) {
    return fmt::format("--{} is '{}' (from {})", name, given.text, given.origin);
}

Error unreadable(const std::string& name,
                 const GivenValue& given,
                 const std::string& why,
                 const std::string& example) {
    return Error("E103",
                 subject(name, given),
                 why,
                 example.empty() ? "" : fmt::format("for example --{} {}", name, example));
}

bool parse_flag(const std::string& name, const GivenValue& given) {
    if (given.text == "true" || given.text == "1") return true;
    if (given.text == "false" || given.text == "0") return false;
    throw unreadable(name, given, "it must be true or false", "");
}

}  // namespace

Option flag_option(const std::string& name, bool& target, const std::string& help) {
    return {
        name, "", target ? "true" : "false", help, OptionKind::flag, [&target, name](auto& given) {
            target = parse_flag(name, given);
        }};
}

Option unset_flag_option(const std::string& name, bool& target, const std::string& help) {
    return {
        name, "", target ? "false" : "true", help, OptionKind::flag, [&target, name](auto& given) {
            target = !parse_flag(name, given);
        }};
}

Option text_option(const std::string& name,
                   const std::string& value,
                   std::string& target,
                   const std::string& help) {
    return {name, value, target, help, OptionKind::text, [&target](auto& given) {
                target = given.text;
            }};
}

Option list_option(const std::string& name,
                   const std::string& value,
                   std::string& target,
                   const std::string& help) {
    Option option = text_option(name, value, target, help);
    option.kind = OptionKind::list;
    return option;
}

Option list_option(const std::string& name,
                   const std::string& value,
                   std::vector<std::string>& target,
                   const std::string& help) {
    return {
        name, value, "", help, OptionKind::list, [&target, name, value](auto& given) {
            std::istringstream texts(given.text);
            target.clear();
            for (std::string text; std::getline(texts, text, ',');) {
                check(!text.empty(), [&] { return unreadable(name, given, "it is empty", value); });
                target.push_back(text);
            }
            check(!target.empty(), [&] { return unreadable(name, given, "it is empty", value); });
        }};
}

Option path_option(const std::string& name,
                   const std::string& value,
                   std::filesystem::path& target,
                   const std::string& help) {
    return {name, value, target.string(), help, OptionKind::text, [&target, name](auto& given) {
                check(!given.text.empty(),
                      [&] { return unreadable(name, given, "it is empty", "DIR"); });
                target = given.text;
            }};
}

Option choice_option(const std::string& name,
                     std::string& target,
                     const std::vector<std::string>& choices,
                     const std::string& help) {
    const std::string value = fmt::format("{}", fmt::join(choices, "|"));
    return {name, value, target, help, OptionKind::text, [&target, name, choices](auto& given) {
                check(std::ranges::find(choices, given.text) != choices.end(), [&] {
                    return Error("E103",
                                 subject(name, given),
                                 fmt::format("it must be one of {}", fmt::join(choices, ", ")),
                                 did_you_mean(given.text, choices));
                });
                target = given.text;
            }};
}

Option real_option(
    const std::string& name, double& target, double least, double most, const std::string& help) {
    return {name,
            "X",
            fmt::format("{}", target),
            help,
            OptionKind::real,
            [&target, name, least, most](auto& given) {
                const auto number = parse_real(given.text);
                check(number.has_value(),
                      [&] { return unreadable(name, given, "it is not a number", "0.01"); });
                check(*number >= least && *number <= most, [&] {
                    return Error("E102",
                                 subject(name, given),
                                 fmt::format("it must be {} to {}", least, most),
                                 "give a number in that range");
                });
                target = *number;
            }};
}

Option period_option(const std::string& name, Period& target, const std::string& help) {
    return {
        name, "PERIOD", period_text(target), help, OptionKind::text, [&target, name](auto& given) {
            target = parse_period(name, given);
        }};
}

Option bytes_option(const std::string& name,
                    std::uint64_t& target,
                    const std::string& help,
                    std::uint64_t least_bytes) {
    return {name,
            "SIZE",
            bytes_text(target),
            help,
            OptionKind::text,
            [&target, name, least_bytes](auto& given) {
                const auto bytes = parse_bytes(given.text);
                check(bytes.has_value() && *bytes >= least_bytes, [&] {
                    return unreadable(
                        name,
                        given,
                        fmt::format("it must be a size of at least {}", bytes_text(least_bytes)),
                        "256MiB");
                });
                target = *bytes;
            }};
}

Option with_letter(const std::string& letter, Option option) {
    option.letter = letter;
    return option;
}

template <class Whole>
Option whole_option(const std::string& name,
                    Whole& target,
                    std::int64_t least,
                    std::int64_t most,
                    const std::string& help) {
    return {name,
            "N",
            fmt::format("{}", target),
            help,
            OptionKind::whole,
            [&target, name, least, most](auto& given) {
                const auto number = parse_integer(given.text);
                check(number.has_value(), [&] {
                    return unreadable(
                        name, given, "it is not a whole number", fmt::format("{}", least + 1));
                });
                check(*number >= least && *number <= most, [&] {
                    return Error("E102",
                                 subject(name, given),
                                 fmt::format("it must be {} to {}",
                                             least,
                                             grouped(static_cast<std::uint64_t>(most))),
                                 "give a number in that range");
                });
                target = static_cast<Whole>(*number);
            }};
}
template Option whole_option(
    const std::string&, int&, std::int64_t, std::int64_t, const std::string&);
template Option whole_option(
    const std::string&, std::int64_t&, std::int64_t, std::int64_t, const std::string&);
template Option whole_option(
    const std::string&, std::uint64_t&, std::int64_t, std::int64_t, const std::string&);
template Option whole_option(
    const std::string&, std::uint32_t&, std::int64_t, std::int64_t, const std::string&);

Period parse_period(const std::string& name, const GivenValue& given) {
    if (given.text == "never") return {};
    const auto digits = std::min(given.text.find_first_not_of("0123456789"), given.text.size());
    const auto count = parse_integer(given.text.substr(0, digits));
    const std::string unit = given.text.substr(digits);
    const std::map<std::string, std::pair<Period::Unit, std::int64_t>> units = {
        {"step", {Period::Unit::steps, 1}},
        {"steps", {Period::Unit::steps, 1}},
        {"epoch", {Period::Unit::epochs, 1}},
        {"epochs", {Period::Unit::epochs, 1}},
        {"s", {Period::Unit::seconds, 1}},
        {"m", {Period::Unit::seconds, 60}},
        {"h", {Period::Unit::seconds, 3600}}};
    const auto found = units.find(unit);
    const bool readable = count && *count > 0 && *count < 1'000'000'000 && found != units.end();
    check(readable, [&] {
        return unreadable(
            name, given, "it must be a count with a unit: steps, epochs, s, m or h", "500steps");
    });
    return {found->second.first, *count * found->second.second};
}

Option duration_option(const std::string& name, double& seconds, const std::string& help) {
    const Period now{Period::Unit::seconds, static_cast<std::int64_t>(seconds)};
    return {name,
            "TIME",
            seconds > 0 ? period_text(now) : "0",
            help,
            OptionKind::text,
            [&seconds, name](auto& given) {
                const Period period = given.text == "0" ? Period{} : parse_period(name, given);
                const bool is_time =
                    period.unit == Period::Unit::never || period.unit == Period::Unit::seconds;
                check(is_time, [&] {
                    return unreadable(name, given, "it must be a time in s, m or h", "10m");
                });
                seconds = static_cast<double>(period.count);
            }};
}

std::string period_text(const Period& period) {
    switch (period.unit) {
        case Period::Unit::steps:
            return fmt::format("{}steps", period.count);
        case Period::Unit::epochs:
            return period.count == 1 ? "1epoch" : fmt::format("{}epochs", period.count);
        case Period::Unit::seconds:
            return period.count % 60 == 0 ? fmt::format("{}m", period.count / 60)
                                          : fmt::format("{}s", period.count);
        default:
            return "never";
    }
}

}  // namespace lockstep
