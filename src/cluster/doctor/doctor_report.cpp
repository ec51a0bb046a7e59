// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"

#include "doctor/families.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::size_t count_of(std::span<const DoctorFinding> findings, Severity severity) {
    return static_cast<std::size_t>(
        std::ranges::count(findings, severity, &DoctorFinding::severity));
}

std::string plural(std::size_t count, const char* noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// " (ranks 0-3 on a, b)"; many hosts are counted.
std::string place_text(const DoctorFinding& finding) {
    constexpr std::size_t most_named = 4;
    const std::string hosts = finding.hosts.size() > most_named
                                  ? plural(finding.hosts.size(), "host")
                                  : fmt::format("{}", fmt::join(finding.hosts, ", "));
    return fmt::format(" ({} on {})", ranks_text(finding.ranks), hosts);
}

std::string finding_text(const DoctorFinding& finding) {
    std::string text = fmt::format("{} {}: {}{}\n",
                                   severity_name(finding.severity),
                                   finding.id,
                                   printable(finding.what),
                                   printable(place_text(finding)));
    if (!finding.why.empty()) text += "  why: " + printable(finding.why) + "\n";
    if (!finding.fix.empty()) text += "  fix: " + printable(finding.fix) + "\n";
    return text;
}

Json json_of(const DoctorFinding& finding) {
    return {{"id", finding.id},
            {"severity", severity_name(finding.severity)},
            {"title", finding.title},
            {"what", finding.what},
            {"why", finding.why},
            {"fix", finding.fix},
            {"ranks", finding.ranks},
            {"hosts", finding.hosts}};
}

}  // namespace

std::string findings_text(std::span<const DoctorFinding> findings, std::size_t checks) {
    std::string text;
    for (const DoctorFinding& finding : findings)
        if (finding.severity != Severity::info) text += finding_text(finding);
    const auto errors = count_of(findings, Severity::error);
    const auto warnings = count_of(findings, Severity::warning);
    const std::string verdict = errors + warnings == 0
                                    ? "all is well"
                                    : plural(errors, "error") + ", " + plural(warnings, "warning");
    return text + fmt::format("doctor: {} looked, {}\n", plural(checks, "check"), verdict);
}

std::string findings_json(std::span<const DoctorFinding> findings,
                          std::size_t checks,
                          std::size_t ranks) {
    Json list = Json::array();
    for (const DoctorFinding& finding : findings) list.push_back(json_of(finding));
    return Json{{"ranks", ranks},
                {"checks", checks},
                {"errors", count_of(findings, Severity::error)},
                {"warnings", count_of(findings, Severity::warning)},
                {"findings", list}}
        .dump();
}

std::vector<std::string> hosts_to_exclude(std::span<const DoctorFinding> findings, JobRanks ranks) {
    constexpr std::array faults_of_nodes{"C8",
                                         "G1",
                                         "G8",
                                         "G9",
                                         "G10",
                                         "G11",
                                         "G12",
                                         "F1",
                                         "F2",
                                         "F4",
                                         "F5",
                                         "F14",
                                         "L1",
                                         "T1",
                                         "T5"};
    const auto hosts = nodes_of(ranks).size();
    std::set<std::string> excluded;
    for (const DoctorFinding& finding : findings) {
        const bool is_fault = finding.severity != Severity::info &&
                              std::ranges::count(faults_of_nodes, finding.id) > 0;
        if (is_fault && (hosts == 1 || finding.hosts.size() < hosts))
            excluded.insert(finding.hosts.begin(), finding.hosts.end());
    }
    return {excluded.begin(), excluded.end()};
}

}  // namespace lockstep
