// SPDX-License-Identifier: Apache-2.0
// The one table of a command's options: it parses, it explains itself, it knows where values came
// from.
#pragma once

#include "lockstep/core/config.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/train/settings.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// A value as given, and by whom: "command line", "LOCKSTEP_BATCH", "train.toml:7:1".
struct GivenValue {
    std::string text;
    std::string origin;
};

/// `list` may be given several times on the command line: its texts are joined by commas.
enum class OptionKind { flag, whole, real, text, list };

/// One option. `assign` reads a text into its target and throws E102 or E103.
struct Option {
    std::string name;           ///< "batch", without dashes
    std::string value;          ///< "N", "DIR"; "" for a flag
    std::string default_value;  ///< as text; "" if there is none
    std::string help;
    OptionKind kind = OptionKind::text;
    std::function<void(const GivenValue&)> assign;
    std::string letter = {};  ///< "b" where -b is short for it
};

/// A group of options under a heading of --help.
struct OptionSection {
    std::string title;
    std::vector<Option> options;
};
using OptionTable = std::vector<OptionSection>;

/// Makers: the present value of `target` is the default.
Option flag_option(const std::string& name, bool& target, const std::string& help);
Option unset_flag_option(const std::string& name, bool& target, const std::string& help);
Option text_option(const std::string& name,
                   const std::string& value,
                   std::string& target,
                   const std::string& help);
Option path_option(const std::string& name,
                   const std::string& value,
                   std::filesystem::path& target,
                   const std::string& help);
Option choice_option(const std::string& name,
                     std::string& target,
                     const std::vector<std::string>& choices,
                     const std::string& help);
Option real_option(
    const std::string& name, double& target, double least, double most, const std::string& help);
Option period_option(const std::string& name, Period& target, const std::string& help);
Option duration_option(const std::string& name, double& seconds, const std::string& help);
Option bytes_option(const std::string& name,
                    std::uint64_t& target,
                    const std::string& help,
                    std::uint64_t least_bytes = 1u << 20);

/// Texts that may be given several times: joined by commas, or one by one.
Option list_option(const std::string& name,
                   const std::string& value,
                   std::string& target,
                   const std::string& help);
Option list_option(const std::string& name,
                   const std::string& value,
                   std::vector<std::string>& target,
                   const std::string& help);

/// `option`, which may also be given as -`letter`.
Option with_letter(const std::string& letter, Option option);

template <class Whole>
Option whole_option(const std::string& name,
                    Whole& target,
                    std::int64_t least,
                    std::int64_t most,
                    const std::string& help);

/// "500steps", "1epoch", "10m", "never". Errors: E103 naming `name` and the origin.
Period parse_period(const std::string& name, const GivenValue& given);
std::string period_text(const Period& period);

/// Where every option of a table got its value.
struct ResolvedOption {
    std::string name, text, origin;
    std::vector<GivenValue> overridden;  ///< weaker sources that also gave a value
};

/// What the command line holds.
struct ParsedLine {
    std::map<std::string, std::string> options;
    std::vector<std::string> positionals;
    bool wants_help = false;
};

/// Splits `words` by `table`. Errors: E101 unknown option (with the nearest), E104 given twice,
/// E105 value missing.
ParsedLine parse_line(const std::vector<std::string>& words, const OptionTable& table);

/// Assigns every option: command line over LOCKSTEP_* over the file of --config over the default.
/// Errors: E102, E103, E110 to E116.
std::vector<ResolvedOption> resolve_options(const OptionTable& table,
                                            const ParsedLine& line,
                                            const Environment& environment);

/// The options as --help shows them.
std::string options_help(const OptionTable& table);

}  // namespace lockstep
