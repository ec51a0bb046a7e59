// SPDX-License-Identifier: Apache-2.0
/// @file
/// A table of options: one row defines how a value is read, shown, compared between ranks, kept
/// with a run and explained.
#pragma once

#include "lockstep/core/config.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// "500steps", "1epoch", "10m": how often something happens. never: not at all.
struct Period {
    /// What is counted.
    enum class Unit { never, steps, epochs, seconds };
    Unit unit = Unit::never;  ///< of `count`
    std::int64_t count = 0;   ///< of the unit; 0 with never
    bool operator==(const Period&) const = default;
};

/// A value as given, and by whom: "command line", "LOCKSTEP_BATCH", "train.toml:7:1".
struct GivenValue {
    std::string text;    ///< as it was written
    std::string origin;  ///< where that was
};

/// `list` may be given several times on the command line: its texts are joined by commas.
enum class OptionKind { flag, whole, real, text, list, path };

/// Whom a value concerns.
enum class OptionScope {
    own,             ///< each rank may have another
    shared,          ///< all ranks must have the same
    decides,         ///< and another value gives a run other bits: fixed when the run is created
    decides_length,  ///< how long a run is: that decides bits if its schedule has an end
};

/// One option. `assign` reads a text into its target and throws E102 or E103; `current` is what the
/// target holds. Both refer to the target, which must outlive them.
struct Option {
    std::string name;                               ///< "batch", without dashes
    std::string value;                              ///< "N", "DIR"; "" for a flag
    std::string default_value;                      ///< as text; "" if there is none
    std::string help;                               ///< what --help says of it
    OptionKind kind = OptionKind::text;             ///< what is given
    std::function<void(const GivenValue&)> assign;  ///< reads a text into the target
    std::function<ConfigValue()> current;           ///< what the target holds
    std::string range = {};                         ///< "1 to 1,000" of numbers
    std::vector<std::string> words = {};   ///< all possible values, if it is one of a few words
    std::string letter = {};               ///< "b" where -b is short for it
    OptionScope scope = OptionScope::own;  ///< whom the value concerns
};

/// A group of options under a heading of --help.
struct OptionSection {
    std::string title;            ///< the heading
    std::vector<Option> options;  ///< in the order of --help
};

/// All options of a command, or all settings.
using OptionTable = std::vector<OptionSection>;

/// Makers: the present value of `target` is the default. This one is true if it is given.
Option flag_option(const std::string& name, bool& target, const std::string& help);
/// False if it is given.
Option unset_flag_option(const std::string& name, bool& target, const std::string& help);
/// Any text.
Option text_option(const std::string& name,
                   const std::string& value,
                   std::string& target,
                   const std::string& help);
/// A file or folder. Errors of its assign(): E103 for an empty text.
Option path_option(const std::string& name,
                   const std::string& value,
                   std::filesystem::path& target,
                   const std::string& help);
/// The same option, which takes no empty text. Errors of its assign(): E103.
Option filled(Option option);
/// A number from `least` to `most`.
Option real_option(
    const std::string& name, double& target, double least, double most, const std::string& help);
/// As parse_period() reads it.
Option period_option(const std::string& name, Period& target, const std::string& help);
/// A time in s, m or h; 0 or never: none.
Option duration_option(const std::string& name, double& seconds, const std::string& help);
/// "256MiB", at least `least_bytes`.
Option bytes_option(const std::string& name,
                    std::uint64_t& target,
                    const std::string& help,
                    std::uint64_t least_bytes = 1u << 20);

/// A whole number from `least` to `most`.
template <class Whole>
Option whole_option(const std::string& name,
                    Whole& target,
                    std::int64_t least,
                    std::int64_t most,
                    const std::string& help);

/// A number of steps, from 0: "20" or, as periods have it, "20steps".
Option steps_option(const std::string& name, std::int64_t& target, const std::string& help);

/// One of `words`. `index` is its index, words.size() if none; `choose` sets it.
Option choice_option(const std::string& name,
                     const std::vector<std::string>& words,
                     const std::function<std::size_t()>& index,
                     const std::function<void(std::size_t)>& choose,
                     const std::string& help);

/// A value that a word stands for.
template <class Value>
using Choice = std::pair<std::string, Value>;

/// One of a few values, each with its word.
template <class Value>
Option choice_option(const std::string& name,
                     Value& target,
                     const std::vector<Choice<Value>>& choices,
                     const std::string& help) {
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) words.push_back(word);
    const auto index = [&target, choices] {
        std::size_t i = 0;
        while (i < choices.size() && choices[i].second != target) ++i;
        return i;
    };
    return choice_option(
        name,
        words,
        index,
        [&target, choices](std::size_t i) { target = choices[i].second; },
        help);
}

/// Texts that may be given several times, joined by commas.
Option list_option(const std::string& name,
                   const std::string& value,
                   std::string& target,
                   const std::string& help);
/// Texts that may be given several times, one by one.
Option list_option(const std::string& name,
                   const std::string& value,
                   std::vector<std::string>& target,
                   const std::string& help);

/// `option`, which may also be given as -`letter`.
Option with_letter(const std::string& letter, Option option);

/// `option` with another scope.
Option with_scope(OptionScope scope, Option option);

/// "500steps", "1epoch", "10m", "never". Errors: E103 naming `name` and the origin.
Period parse_period(const std::string& name, const GivenValue& given);
/// What parse_period() reads.
std::string period_text(const Period& period);

/// What an option's target holds.
struct NamedValue {
    std::string name;                      ///< the option's
    ConfigValue value;                     ///< that its target holds
    OptionScope scope = OptionScope::own;  ///< the option's
};

/// What a table's targets hold, in the table's order.
std::vector<NamedValue> current_values(const OptionTable& table);

/// The row called `name`. Errors: E101 with the nearest name.
const Option& find_option(const OptionTable& table, const std::string& name);

}  // namespace lockstep
