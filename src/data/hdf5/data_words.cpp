// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/data_words.hpp"

#include "lockstep/data/foreign.hpp"

#include <fmt/format.h>

namespace lockstep {

Option data_option(const std::string& name,
                   std::filesystem::path& target,
                   const std::string& help) {
    Option option = path_option(name, "DIR|FILE", target, help);
    option.kind = OptionKind::list;
    return option;
}

Option field_option(const std::string& name, std::string& target, const std::string& help) {
    Option option = list_option(name, "NAME=PATH[:LAYOUT][:cf]", target, help);
    option.assign = [assign = option.assign](const GivenValue& given) {
        parse_field_mappings(given.text);
        assign(given);
    };
    return option;
}

Option links_option(bool& target) {
    return flag_option("follow-links",
                       target,
                       "follow links of --field to data sets in other files; use it only for files "
                       "that you trust");
}

Links links_of(bool follows_links) {
    return follows_links ? Links::followed : Links::refused;
}

std::filesystem::path data_of_words(const std::vector<std::string>& words) {
    return fmt::format("{}", fmt::join(words, ","));
}

}  // namespace lockstep
