// SPDX-License-Identifier: Apache-2.0
#include "loop/run_settings.hpp"

#include "lockstep/core/json.hpp"
#include "lockstep/observe/run_directory.hpp"

#include <array>
#include <optional>

namespace lockstep {
namespace {

// They were settled after they had been given.
constexpr std::array settled{"device", "isa", "task", "virtual-ranks"};

std::string text_of(const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// As given, for the deciding value of a file is not its path.
std::optional<std::string> recorded_text(const RunRecord& record, const std::string& name) {
    const bool is_settled = std::ranges::find(settled, name) != settled.end();
    if (!is_settled && record.config.contains(name))
        return text_of(record.config.at(name).value("value", Json("")));
    if (record.deciding.contains(name)) return text_of(record.deciding.at(name));
    return std::nullopt;
}

}  // namespace

RunSettings read_run_settings(const std::filesystem::path& run) {
    const RunRecord record = read_run_record(run);
    RunSettings found;
    for (const OptionSection& section : setting_table(found.settings))
        for (const Option& option : section.options)
            if (const auto text = recorded_text(record, option.name); text && !text->empty())
                set_setting(found.settings, option.name, *text);
    found.model_digest = text_of(record.deciding.value("model-digest", Json("")));
    found.data_digest = text_of(record.deciding.value("data-digest", Json("")));
    found.data_content = text_of(record.deciding.value("data-content", Json("")));
    return found;
}

}  // namespace lockstep
