// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/environment.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/numbers.hpp"

#include <array>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {

std::optional<std::string> Environment::text(const std::string& name) const {
    std::optional<std::string> value;
    if (fixed_) {
        if (const auto found = fixed_->find(name); found != fixed_->end()) value = found->second;
    } else if (const char* found = std::getenv(name.c_str())) {
        value = found;
    }
    readings_[name] = {value.value_or(""), value.has_value()};
    return value;
}

std::optional<std::int64_t> Environment::integer(const std::string& name) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto number = parse_integer(*value);
    check(number.has_value(), [&] {
        return Error("E113",
                     fmt::format("{} is '{}' (from environment)", name, *value),
                     "it must be a whole number",
                     fmt::format("unset {} or set it to a whole number", name));
    });
    return number;
}

std::vector<std::string> Environment::names_with_prefix(const std::string& prefix) const {
    std::vector<std::string> names;
    if (fixed_) {
        for (const auto& [name, value] : *fixed_)
            if (name.starts_with(prefix)) names.push_back(name);
        return names;
    }
    for (char** entry = environ; entry && *entry; ++entry) {
        const std::string text(*entry, std::strcspn(*entry, "="));
        if (text.starts_with(prefix)) names.push_back(text);
    }
    return names;
}

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace lockstep
