// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

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

using Read = std::function<void(const std::string& name, const GivenValue& given)>;

// The default is what the target holds when the table is made.
Option made(const std::string& spec,
            OptionKind kind,
            const std::string& help,
            const Read& read,
            const std::function<ConfigValue()>& current) {
    const auto words = split(spec, ' ');
    const auto names = split(words[0], ',');
    return {.name = names[0],
            .value = words.size() > 1 ? words[1] : "",
            .default_value = config_text(current()),
            .help = help,
            .kind = kind,
            .assign = [read, name = names[0]](auto& given) { read(name, given); },
            .current = current,
            .letter = names.size() > 1 ? names[1] : ""};
}

void check_range(bool is_inside,
                 const std::string& name,
                 const GivenValue& given,
                 const std::string& range) {
    check(is_inside, [&] {
        return Error(
            "E102", subject(name, given), "it must be " + range, "give a number in that range");
    });
}

// A flag that, given, makes `target` what it is `set_to`.
Option flag_for(const std::string& spec, bool& target, bool set_to, const std::string& help) {
    const auto read = [&target, set_to](auto& name, auto& given) {
        target = parse_flag(name, given) == set_to;
    };
    return made(spec, OptionKind::flag, help, read, [&target, set_to] { return target == set_to; });
}

std::optional<Period> readable_period(const std::string& text) {
    if (text == "never") return Period{};
    if (text == "auto") return Period{Period::Unit::automatic, 0};
    const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const auto count = parse_integer(text.substr(0, digits));
    const std::map<std::string, std::pair<Period::Unit, std::int64_t>> units = {
        {"step", {Period::Unit::steps, 1}},
        {"steps", {Period::Unit::steps, 1}},
        {"epoch", {Period::Unit::epochs, 1}},
        {"epochs", {Period::Unit::epochs, 1}},
        {"s", {Period::Unit::seconds, 1}},
        {"m", {Period::Unit::seconds, 60}},
        {"h", {Period::Unit::seconds, 3600}}};
    const auto found = units.find(text.substr(digits));
    const bool readable = count && *count > 0 && *count < 1'000'000'000 && found != units.end();
    if (!readable) return std::nullopt;
    return Period{found->second.first, *count * found->second.second};
}

// "gpu" is near to "cpu" by its letters only.
std::string meant_choice(const std::string& text, const std::vector<std::string>& words) {
    if (text != "gpu" && text != "cuda") return did_you_mean(text, words);
    const auto same = std::ranges::find(words, text == "gpu" ? "cuda" : "gpu");
    return same == words.end() ? "" : did_you_mean(*same, words);
}

}  // namespace

Option flag_option(const std::string& spec, bool& target, const std::string& help) {
    return flag_for(spec, target, true, help);
}

Option unset_flag_option(const std::string& spec, bool& target, const std::string& help) {
    return flag_for(spec, target, false, help);
}

Option text_option(const std::string& spec, std::string& target, const std::string& help) {
    return made(
        spec,
        OptionKind::text,
        help,
        [&target](auto&, auto& given) { target = given.text; },
        [&target] { return target; });
}

Option list_option(const std::string& spec, std::string& target, const std::string& help) {
    Option option = text_option(spec, target, help);
    option.kind = OptionKind::list;
    return option;
}

Option list_option(const std::string& spec,
                   std::vector<std::string>& target,
                   const std::string& help) {
    const auto read = [&target, value = split(spec, ' ').back()](auto& name, auto& given) {
        target = split(given.text, ',');
        if (target.back().empty()) target.pop_back();
        const bool is_full = !target.empty() && std::ranges::count(target, "") == 0;
        check(is_full, [&] { return unreadable(name, given, "it is empty", value); });
    };
    return made(spec, OptionKind::list, help, read, [&target] {
        return fmt::format("{}", fmt::join(target, ","));
    });
}

Option some_option(const std::string& spec,
                   std::vector<std::string>& target,
                   const std::vector<std::string>& words,
                   const std::string& help) {
    Option option = list_option(spec + " NAME[,NAME]", target, help);
    option.words = words;
    option.assign = [&target, name = option.name, words, take = option.assign](auto& given) {
        take(given);
        std::vector<std::string> taken;
        for (std::string& word : target) {
            check(std::ranges::find(words, word) != words.end(), [&] {
                return Error("E103",
                             subject(name, given),
                             fmt::format("'{}' is none of {}", word, fmt::join(words, ", ")),
                             did_you_mean(word, words));
            });
            if (std::ranges::find(taken, word) == taken.end()) taken.push_back(std::move(word));
        }
        target = std::move(taken);
    };
    return option;
}

Option filled(Option option) {
    option.assign = [assign = option.assign, name = option.name, value = option.value](
                        auto& given) {
        check(!given.text.empty(), [&] { return unreadable(name, given, "it is empty", value); });
        assign(given);
    };
    return option;
}

// A shell replaces '~' at the begin of a word alone: not in --run=~/a, in quotes or in a file.
static void check_no_tilde(const std::string& name, const GivenValue& given) {
    std::error_code unseen;
    if (!given.text.starts_with("~/") || std::filesystem::exists(given.text, unseen)) return;
    const std::string home = Environment().text("HOME").value_or("");
    throw unreadable(name,
                     given,
                     "the shell did not replace '~' here, and there is no folder of that name",
                     home.empty() ? "" : shell_word(home + given.text.substr(1)));
}

Option path_option(const std::string& spec,
                   std::filesystem::path& target,
                   const std::string& help) {
    const auto read = [&target](auto& name, auto& given) {
        check(!given.text.empty(), [&] { return unreadable(name, given, "it is empty", "DIR"); });
        check_no_tilde(name, given);
        target = given.text;
    };
    return made(spec, OptionKind::path, help, read, [&target] { return target.string(); });
}

Option choice_option(const std::string& spec,
                     const std::vector<std::string>& words,
                     const std::function<std::size_t()>& index,
                     const std::function<void(std::size_t)>& choose,
                     const std::string& help) {
    const auto read = [words, choose](auto& name, auto& given) {
        const auto found = std::ranges::find(words, given.text);
        check(found != words.end(), [&] {
            return Error("E103",
                         subject(name, given),
                         fmt::format("it must be one of {}", fmt::join(words, ", ")),
                         meant_choice(given.text, words));
        });
        choose(static_cast<std::size_t>(found - words.begin()));
    };
    Option option =
        made(fmt::format("{} {}", spec, fmt::join(words, "|")),
             OptionKind::text,
             help,
             read,
             [index, words] { return index() < words.size() ? words[index()] : std::string(); });
    option.words = words;
    return option;
}

Option real_option(const std::string& spec,
                   double& target,
                   OptionRange<double> range,
                   const std::string& help) {
    const std::string text = fmt::format("{} to {}", range.least, range.most);
    const auto read = [&target, range, text](auto& name, auto& given) {
        const auto number = parse_real(given.text);
        check(number.has_value(),
              [&] { return unreadable(name, given, "it is not a number", "0.01"); });
        check_range(*number >= range.least && *number <= range.most, name, given, text);
        target = *number;
    };
    Option option = made(spec + " X", OptionKind::real, help, read, [&target] { return target; });
    option.range = text;
    return option;
}

Option period_option(const std::string& spec, Period& target, const std::string& help) {
    return made(
        spec + " PERIOD",
        OptionKind::text,
        help,
        [&target](auto& name, auto& given) { target = parse_period(name, given); },
        [&target] { return period_text(target); });
}

Option bytes_option(const std::string& spec,
                    std::uint64_t& target,
                    const std::string& help,
                    std::uint64_t least_bytes) {
    const auto read = [&target, least_bytes](auto& name, auto& given) {
        const auto bytes = parse_bytes(given.text);
        check(bytes.has_value() && *bytes >= least_bytes, [&] {
            return unreadable(
                name,
                given,
                fmt::format("it must be a size of at least {}", bytes_text(least_bytes)),
                "256MiB");
        });
        target = *bytes;
    };
    return made(spec + " SIZE", OptionKind::text, help, read, [&target] {
        const std::string rounded = bytes_text(target);
        return parse_bytes(rounded) == target ? rounded : fmt::format("{}", target);
    });
}

template <class Whole>
Option whole_option(const std::string& spec,
                    Whole& target,
                    OptionRange<std::int64_t> range,
                    const std::string& help) {
    const std::string text = fmt::format("{} to {}", range.least, grouped(range.most));
    const auto read = [&target, range, text](auto& name, auto& given) {
        const auto number = parse_integer(given.text);
        check(number.has_value(), [&] {
            return unreadable(
                name, given, "it is not a whole number", fmt::format("{}", range.least + 1));
        });
        check_range(*number >= range.least && *number <= range.most, name, given, text);
        target = static_cast<Whole>(*number);
    };
    Option option = made(spec + " N", OptionKind::whole, help, read, [&target] {
        return static_cast<std::int64_t>(target);
    });
    option.range = text;
    return option;
}
using WholeRange = OptionRange<std::int64_t>;
template Option whole_option(const std::string&, int&, WholeRange, const std::string&);
template Option whole_option(const std::string&, std::int64_t&, WholeRange, const std::string&);
template Option whole_option(const std::string&, std::uint64_t&, WholeRange, const std::string&);
template Option whole_option(const std::string&, std::uint32_t&, WholeRange, const std::string&);

Option steps_option(const std::string& spec, std::int64_t& target, const std::string& help) {
    Option option = whole_option(spec, target, {0, 1'000'000'000'000}, help);
    option.assign = [assign = option.assign](GivenValue given) {
        const auto digits = given.text.find_first_not_of("0123456789");
        const std::string unit = given.text.substr(std::min(digits, given.text.size()));
        if (digits != 0 && (unit == "steps" || unit == "step")) given.text.resize(digits);
        assign(given);
    };
    return option;
}

Period parse_period(const std::string& name, const GivenValue& given) {
    const auto period = readable_period(given.text);
    check(period.has_value(), [&] {
        return unreadable(
            name,
            given,
            "it must be a count with a unit: steps, epochs, s, m or h",
            parse_integer(given.text).value_or(0) > 0 ? given.text + "steps" : "500steps");
    });
    return *period;
}

Option duration_option(const std::string& spec, double& seconds, const std::string& help) {
    const auto read = [&seconds](auto& name, auto& given) {
        const auto period = given.text == "0" ? Period{} : readable_period(given.text);
        const bool is_time = period && (period->unit == Period::Unit::never ||
                                        period->unit == Period::Unit::seconds);
        check(is_time, [&] {
            return unreadable(name, given, "it must be a whole number of s, m or h, or 0", "10m");
        });
        seconds = static_cast<double>(period->count);
    };
    return made(spec + " TIME", OptionKind::text, help, read, [&seconds] {
        const Period now{Period::Unit::seconds, static_cast<std::int64_t>(std::ceil(seconds))};
        return seconds > 0 ? period_text(now) : std::string("0");
    });
}

std::string period_text(const Period& period) {
    if (period.unit == Period::Unit::steps) return fmt::format("{}steps", period.count);
    if (period.unit == Period::Unit::epochs)
        return period.count == 1 ? "1epoch" : fmt::format("{}epochs", period.count);
    if (period.unit == Period::Unit::seconds)
        return period.count % 60 == 0 ? fmt::format("{}m", period.count / 60)
                                      : fmt::format("{}s", period.count);
    return period.unit == Period::Unit::automatic ? "auto" : "never";
}

Option with_scope(OptionScope scope, Option option) {
    option.scope = scope;
    return option;
}

std::vector<const Option*> options_of(const OptionTable& table) {
    std::vector<const Option*> options;
    for (const OptionSection& section : table)
        for (const Option& option : section.options) options.push_back(&option);
    return options;
}

std::vector<std::string> option_names(const OptionTable& table) {
    std::vector<std::string> names;
    for (const Option* option : options_of(table)) names.push_back(option->name);
    return names;
}

std::vector<NamedValue> current_values(const OptionTable& table) {
    std::vector<NamedValue> values;
    for (const Option* option : options_of(table))
        values.push_back({option->name, option->current(), option->scope});
    return values;
}

const Option& find_option(const OptionTable& table, const std::string& name) {
    for (const Option* option : options_of(table))
        if (option->name == name) return *option;
    throw Error("E101",
                fmt::format("there is no setting '{}'", printable(name)),
                "",
                did_you_mean(name, option_names(table)));
}

}  // namespace lockstep
