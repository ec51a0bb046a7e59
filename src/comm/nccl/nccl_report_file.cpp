// SPDX-License-Identifier: Apache-2.0
// Chooses the destination of NCCL's report. A user's NCCL_DEBUG decides; without it, the report
// goes to a file of ours, which is read afterwards.
#include "lockstep/comm/nccl_network.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/host_name.hpp"

#include "nccl/rank_facts.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Subsystems: INIT for connections, NET's INIT part for cards, GRAPH for NVLink, ENV for settings.
constexpr const char* subsystems = "INIT,ENV,GRAPH";

std::string value_of(const std::map<std::string, std::string>& variables, const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
}

std::string upper_case(std::string text) {
    std::ranges::transform(
        text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return text;
}

/// NCCL's own expansion (src/debug.cc, ncclDebugInit): %h the host without its domain, %p the
/// process.
std::string expanded(const std::string& name) {
    std::string path;
    for (std::size_t i = 0; i < name.size(); ++i) {
        if (name[i] != '%' || i + 1 == name.size()) {
            path += name[i];
            continue;
        }
        const char word = name[++i];
        if (word == 'h')
            path += host_name().substr(0, host_name().find('.'));
        else if (word == 'p')
            path += fmt::format("{}", ::getpid());
        else if (word == '%')
            path += '%';
        else
            path += fmt::format("%{}", word);
    }
    return path;
}

/// For NCCL, so that it expands to `path`.
std::string escaped(const std::string& path) {
    std::string name;
    for (const char c : path) name += c == '%' ? std::string("%%") : std::string(1, c);
    return name;
}

/// Returns the plan for a user who has set NCCL_DEBUG.
NcclReportPlan plan_of_users(const std::string& level, const std::string& file) {
    NcclReportPlan plan;
    const bool is_enough = upper_case(level) == "INFO" || upper_case(level) == "TRACE";
    if (is_enough && !file.empty())
        plan.file = expanded(file);
    else if (is_enough)
        plan.why_none = fmt::format(
            "NCCL_DEBUG={} sends NCCL's report to the terminal; NCCL_DEBUG_FILE=FILE.%h.%p, or "
            "leaving NCCL_DEBUG unset, keeps it for reading",
            level);
    else
        plan.why_none =
            fmt::format("NCCL_DEBUG={} is set; NCCL reports it if that is unset or INFO", level);
    return plan;
}

}  // namespace

NcclReportPlan plan_nccl_report(const Environment& environment,
                                const fs::path& own,
                                const std::string& root) {
    const auto variables = nccl_variables(environment, root);
    const std::string level = value_of(variables, "NCCL_DEBUG");
    const std::string file = value_of(variables, "NCCL_DEBUG_FILE");
    if (!level.empty()) return plan_of_users(level, file);
    NcclReportPlan plan;
    plan.variables["NCCL_DEBUG"] = "INFO";
    if (value_of(variables, "NCCL_DEBUG_SUBSYS").empty())
        plan.variables["NCCL_DEBUG_SUBSYS"] = subsystems;
    plan.variables["NCCL_DEBUG_FILE"] = escaped(own);
    plan.file = own;
    return plan;
}

void apply(NcclReportPlan& plan) {
    if (plan.variables.empty()) return;
    if (!std::ofstream(plan.file)) {
        plan = {.why_none = fmt::format("'{}' cannot be written", plan.file.string())};
        return;
    }
    for (const auto& [name, value] : plan.variables) ::setenv(name.c_str(), value.c_str(), 1);
}

NcclReport read_nccl_report(const NcclReportPlan& plan) {
    std::error_code failed;
    if (!fs::is_regular_file(plan.file, failed)) return {};
    try {
        return parse_nccl_report(read_file(plan.file));
    } catch (const Error&) {
        return {};  // too large, or gone: what is not known is said so
    }
}

}  // namespace lockstep
