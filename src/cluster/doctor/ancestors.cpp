// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"

#include "doctor/read_facts.hpp"

#include <sstream>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// "mpirun" and 17 of a stat line "42 (mpirun) S 17 ...": the name may hold spaces and brackets.
struct ProcessLine {
    std::string name;
    std::int64_t parent = 0;
};

ProcessLine process_line(const fs::path& process) {
    const std::string text = text_of(process / "stat");
    const auto open = text.find('('), close = text.rfind(')');
    if (open == text.npos || close == text.npos) return {};
    ProcessLine line{text.substr(open + 1, close - open - 1)};
    std::istringstream rest(text.substr(close + 1));
    std::string state;
    rest >> state >> line.parent;
    return line;
}

}  // namespace

std::vector<std::string> ancestors_of_this(const fs::path& root) {
    constexpr int deepest = 64;
    std::vector<std::string> programs;
    auto next = process_line(root / "proc/self").parent;
    for (int depth = 0; next > 0 && depth < deepest; ++depth) {
        const auto process = root / "proc" / std::to_string(next);
        const ProcessLine line = process_line(process);
        if (line.name.empty()) break;
        std::error_code hidden;
        const auto path = fs::read_symlink(process / "exe", hidden);
        programs.push_back(hidden ? line.name : path.string());
        next = line.parent;
    }
    return programs;
}

}  // namespace lockstep
