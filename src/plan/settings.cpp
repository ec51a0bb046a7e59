// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/settings.hpp"

namespace lockstep {
namespace {

// Tables refer to what they fill.
std::vector<NamedValue> all_values(TrainSettings settings) {
    return current_values(setting_table(settings));
}

}  // namespace

void set_setting(TrainSettings& settings, const std::string& name, const std::string& text) {
    const OptionTable table = setting_table(settings);
    find_option(table, name).assign({text, "program"});
}

void check_settings(const TrainSettings& settings) {
    const auto defaults = all_values({});
    TrainSettings read;
    const auto values = all_values(settings);
    for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i].value != defaults[i].value)
            set_setting(read, values[i].name, config_text(values[i].value));
}

bool has_test_data(const TrainSettings& settings) {
    return !settings.test_data.empty() || !settings.test_fields.empty() || settings.split > 0;
}

bool has_end(ScheduleKind kind) {
    return kind != ScheduleKind::constant && kind != ScheduleKind::step;
}

std::vector<NamedValue> deciding_settings(const TrainSettings& settings) {
    const bool length_decides = has_end(settings.schedule.kind);
    const bool rolls_back = settings.on_nonfinite == NonFinite::rollback;
    auto values = all_values(settings);
    std::erase_if(values, [&](const NamedValue& value) {
        const bool is_of_rollback =
            value.name == "on-nonfinite" || value.name == "checkpoint-every";
        return value.scope != OptionScope::decides &&
               !(length_decides && value.scope == OptionScope::decides_length) &&
               !(rolls_back && is_of_rollback);
    });
    return values;
}

std::vector<NamedValue> shared_settings(const TrainSettings& settings) {
    auto values = all_values(settings);
    std::erase_if(values, [](const NamedValue& value) { return value.scope == OptionScope::own; });
    return values;
}

}  // namespace lockstep
