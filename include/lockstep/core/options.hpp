// SPDX-License-Identifier: Apache-2.0
/// @file
/// A table of options. One row defines how a value is read, shown, compared between ranks, stored
/// with a run and explained.
#pragma once

#include "lockstep/core/config.hpp"
#include "lockstep/core/split.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// An interval: "500steps", "1epoch", "10m". never: the action does not happen. automatic: the
/// program chooses.
struct Period {
    /// The unit that is counted.
    enum class Unit { never, steps, epochs, seconds, automatic };
    Unit unit = Unit::never;  ///< unit of `count`
    std::int64_t count = 0;   ///< number of units; 0 with never and automatic
    bool operator==(const Period&) const = default;
};

/// A value and its origin: "command line", "LOCKSTEP_BATCH", "train.toml:7:1".
struct GivenValue {
    std::string text;    ///< the text as written
    std::string origin;  ///< the place where it was written
};

/// The type of an option. `list` may be given several times on the command line: its texts are
/// joined by commas.
enum class OptionKind { flag, whole, real, text, list, path };

/// How far the value of an option matters.
enum class OptionScope {
    own,      ///< each rank may have another value
    shared,   ///< all ranks must have the same value
    decides,  ///< shared, and the value changes a run's bits: it is fixed when the run is created
    decides_length,  ///< the length of a run, which changes its bits if its schedule has an end
};

/// One option. `assign` reads a text into its target and throws E102 or E103; `current` returns the
/// value of the target. Both refer to the target, which must outlive them.
struct Option {
    std::string name;                               ///< "batch", without dashes
    std::string value;                              ///< "N", "DIR"; "" for a flag
    std::string default_value;                      ///< as text; "" if there is none
    std::string help;                               ///< text for --help
    OptionKind kind = OptionKind::text;             ///< type of the value
    std::function<void(const GivenValue&)> assign;  ///< reads a text into the target
    std::function<ConfigValue()> current;           ///< returns the value of the target
    std::string range = {};                         ///< range of a number: "1 to 1,000"
    std::vector<std::string> words = {};   ///< all possible values, if there are only a few; of a
                                           ///< list, all that it may have
    std::string letter = {};               ///< "b" if -b is short for it
    OptionScope scope = OptionScope::own;  ///< how far the value matters
};

/// A group of options under one heading of --help.
struct OptionSection {
    std::string title;            ///< the heading
    std::vector<Option> options;  ///< in the order of --help
};

/// All options of a command, or all settings.
using OptionTable = std::vector<OptionSection>;

/// Makes a flag that sets `target` to true. For all makers, `spec` is the option's name, and -c if
/// it is "check,c"; in those of texts, lists and paths also the word for its value: "out FILE". The
/// present value of `target` is the default.
Option flag_option(const std::string& spec, bool& target, const std::string& help);
/// Makes a flag that sets `target` to false.
Option unset_flag_option(const std::string& spec, bool& target, const std::string& help);
/// Makes an option with any text.
Option text_option(const std::string& spec, std::string& target, const std::string& help);
/// Makes an option with a file or folder. Errors of its assign(): E103 for an empty text, and
/// for one that begins with "~/", unless that exists.
Option path_option(const std::string& spec, std::filesystem::path& target, const std::string& help);
/// Returns `option`, which then refuses an empty text. Errors of its assign(): E103.
Option filled(Option option);
/// The numbers that an option takes.
template <class Number>
struct OptionRange {
    Number least, most;  ///< both are taken
};

/// Makes an option with a number of `range`.
Option real_option(const std::string& spec,
                   double& target,
                   OptionRange<double> range,
                   const std::string& help);
/// Makes an option that parse_period() reads.
Option period_option(const std::string& spec, Period& target, const std::string& help);
/// Makes an option with a time in s, m or h. 0 or never means none.
Option duration_option(const std::string& spec, double& seconds, const std::string& help);
/// Makes an option with a number of bytes such as "256MiB", at least `least_bytes`.
Option bytes_option(const std::string& spec,
                    std::uint64_t& target,
                    const std::string& help,
                    std::uint64_t least_bytes = 1u << 20);

/// Makes an option with a whole number of `range`.
template <class Whole>
Option whole_option(const std::string& spec,
                    Whole& target,
                    OptionRange<std::int64_t> range,
                    const std::string& help);

/// Makes an option with a number of steps from 0: "20" or, as for periods, "20steps".
Option steps_option(const std::string& spec, std::int64_t& target, const std::string& help);

/// Makes an option with one of `words`. `index` returns its index, words.size() for none; `choose`
/// sets it.
Option choice_option(const std::string& spec,
                     const std::vector<std::string>& words,
                     const std::function<std::size_t()>& index,
                     const std::function<void(std::size_t)>& choose,
                     const std::string& help);

/// The values that an option may have, each with its word.
template <class Value>
using Choices = std::vector<std::pair<std::string, std::type_identity_t<Value>>>;

/// Makes an option with one of a few values.
template <class Value>
Option choice_option(const std::string& spec,
                     Value& target,
                     const Choices<Value>& choices,
                     const std::string& help) {
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) words.push_back(word);
    const auto index = [&target, choices] {
        std::size_t i = 0;
        while (i < choices.size() && choices[i].second != target) ++i;
        return i;
    };
    return choice_option(
        spec,
        words,
        index,
        [&target, choices](std::size_t i) { target = choices[i].second; },
        help);
}

/// Makes an option with one of an enum's first values: `spec` has their words, "device auto|cpu",
/// in the order of the enumerators.
template <class Enum>
requires std::is_enum_v<Enum> Option enum_option(const std::string& spec,
                                                 Enum& target,
                                                 const std::string& help) {
    const std::vector<std::string> parts = split(spec, ' ');
    return choice_option(
        parts.at(0),
        split(parts.at(1), '|'),
        [&target] { return static_cast<std::size_t>(target); },
        [&target](std::size_t i) { target = static_cast<Enum>(i); },
        help);
}

/// Makes an option that may be given several times; its texts are joined by commas.
Option list_option(const std::string& spec, std::string& target, const std::string& help);
/// Makes an option that may be given several times; its texts stay apart.
Option list_option(const std::string& spec,
                   std::vector<std::string>& target,
                   const std::string& help);

/// Makes an option that may be given several times, with one or more of `words`, each of which
/// `target` then holds once.
Option some_option(const std::string& spec,
                   std::vector<std::string>& target,
                   const std::vector<std::string>& words,
                   const std::string& help);

/// Returns `option` with another scope.
Option with_scope(OptionScope scope, Option option);

/// Parses "500steps", "1epoch", "10m", "never". Errors: E103 naming `name` and the origin.
Period parse_period(const std::string& name, const GivenValue& given);
/// Returns a text that parse_period() reads.
std::string period_text(const Period& period);

/// Returns the options of all sections.
std::vector<const Option*> options_of(const OptionTable& table);
/// Returns their names.
std::vector<std::string> option_names(const OptionTable& table);

/// The name of an option and the value of its target.
struct NamedValue {
    std::string name;                      ///< name of the option
    ConfigValue value;                     ///< value of its target
    OptionScope scope = OptionScope::own;  ///< scope of the option
};

/// Returns the values of a table's targets, in the table's order.
std::vector<NamedValue> current_values(const OptionTable& table);

/// Returns the row of option `name`. Errors: E101 with the nearest name.
const Option& find_option(const OptionTable& table, const std::string& name);

}  // namespace lockstep
