// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/options.hpp"

#include <fmt/format.h>

namespace lockstep {

Option with_letter(const std::string& letter, Option option) {
    option.letter = letter;
    return option;
}

Option with_scope(OptionScope scope, Option option) {
    option.scope = scope;
    return option;
}

std::vector<NamedValue> current_values(const OptionTable& table) {
    std::vector<NamedValue> values;
    for (const OptionSection& section : table)
        for (const Option& option : section.options)
            values.push_back({option.name, option.current(), option.scope});
    return values;
}

const Option& find_option(const OptionTable& table, const std::string& name) {
    std::vector<std::string> names;
    for (const OptionSection& section : table)
        for (const Option& option : section.options) {
            if (option.name == name) return option;
            names.push_back(option.name);
        }
    throw Error("E101",
                fmt::format("there is no setting '{}'", printable(name)),
                "",
                did_you_mean(name, names));
}

}  // namespace lockstep
