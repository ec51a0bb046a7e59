// SPDX-License-Identifier: Apache-2.0
#include "flight/link_watch.hpp"

#include <fstream>
#include <utility>

namespace lockstep {
namespace {

// A link that was lost long before a wait is not its cause.
constexpr double lately_s = 60;

enum class Carrier { present, absent, unknown };

Carrier carrier_of(const std::filesystem::path& interface) {
    std::ifstream file(interface / "carrier");
    int value = -1;
    if (!(file >> value)) return Carrier::unknown;
    return value == 0 ? Carrier::absent : Carrier::present;
}

}  // namespace

LinkWatch::LinkWatch(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, failed)) {
        const std::string name = entry.path().filename().string();
        const bool is_bridge = std::filesystem::exists(entry.path() / "bridge", failed);
        if (name != "lo" && !is_bridge && carrier_of(entry.path()) == Carrier::present)
            lost_at_s_[name] = 0;
    }
}

bool LinkWatch::lost_one(double now_s) {
    bool any = false;
    for (auto& [name, lost_at_s] : lost_at_s_) {
        if (carrier_of(folder_ / name) != Carrier::absent) {
            lost_at_s = 0;
            continue;
        }
        if (lost_at_s == 0) lost_at_s = now_s;
        any = any || now_s - lost_at_s < lately_s;
    }
    return any;
}

}  // namespace lockstep
