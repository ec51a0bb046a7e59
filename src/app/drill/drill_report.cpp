// SPDX-License-Identifier: Apache-2.0
#include "drill/drill_report.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/version.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::string title_of(const DrillPage& page) {
    const std::size_t skipped = page.count(FaultEnd::skipped);
    auto title = fmt::format("# Lockstep drill: {} of {} faults ended as they should",
                             page.count(FaultEnd::passed),
                             page.faults.size() - skipped);
    if (skipped > 0) title += fmt::format(", {} skipped", skipped);
    return title;
}

std::string table_of_faults(const DrillPage& page) {
    std::string text = "| fault | verdict | took |\n|---|---|---|\n";
    for (const FaultReport& fault : page.faults)
        text += fmt::format("| {} | {} | {} |\n",
                            fault.name,
                            fault_end_name(fault.end()),
                            duration_text(fault.seconds));
    return text;
}

std::string section_of_fault(const FaultReport& fault) {
    auto text = fmt::format("\n## {}: {}\n", fault.name, fault_end_name(fault.end()));
    if (!fault.why_skipped.empty()) return text + printable(fault.why_skipped) + "\n";
    if (!fault.done.empty()) text += printable(fault.done) + "\n\n";
    for (const Expectation& one : fault.expectations) {
        const std::string found = printable(one.found);
        text += one.is_met
                    ? fmt::format("- {}: {}\n", one.what, found)
                    : fmt::format("- **{}: {}**, expected: {}\n", one.what, found, one.expected);
    }
    return text;
}

}  // namespace

Expectation expect_text(std::string what, std::string expected, std::string found) {
    const bool is_met = expected == found;
    return {std::move(what), std::move(expected), std::move(found), is_met};
}

std::string fault_end_name(FaultEnd end) {
    switch (end) {
        case FaultEnd::passed:
            return "passed";
        case FaultEnd::failed:
            return "failed";
        default:
            return "skipped";
    }
}

FaultEnd FaultReport::end() const {
    if (!why_skipped.empty()) return FaultEnd::skipped;
    const bool is_right =
        !expectations.empty() && std::ranges::all_of(expectations, &Expectation::is_met);
    return is_right ? FaultEnd::passed : FaultEnd::failed;
}

std::size_t DrillPage::count(FaultEnd end) const {
    return static_cast<std::size_t>(std::ranges::count(faults, end, &FaultReport::end));
}

std::string page_text(const DrillPage& page) {
    auto text = title_of(page) + "\n\n";
    text += fmt::format(
        "{}, {}, lockstep {}. {} ranks train an mlp on made-up data for {} steps;\n"
        "undisturbed, its parameters are {}.\n\n",
        printable(page.host),
        page.when,
        version_text(),
        page.ranks,
        grouped(static_cast<std::uint64_t>(page.steps)),
        page.parameters);
    text += table_of_faults(page);
    for (const FaultReport& fault : page.faults) text += section_of_fault(fault);
    return text;
}

Json report_json(const FaultReport& report) {
    Json json = {{"fault", report.name},
                 {"verdict", fault_end_name(report.end())},
                 {"done", report.done},
                 {"seconds", report.seconds}};
    if (!report.why_skipped.empty()) json["why_skipped"] = report.why_skipped;
    json["expectations"] = Json::array();
    for (const Expectation& one : report.expectations)
        json["expectations"].push_back(Json{{"what", one.what},
                                            {"expected", one.expected},
                                            {"found", one.found},
                                            {"met", one.is_met}});
    return json;
}

FaultReport report_of_json(const Json& json) {
    FaultReport report{.name = json.at("fault").get<std::string>(),
                       .done = json.at("done").get<std::string>(),
                       .why_skipped = json.value("why_skipped", ""),
                       .seconds = json.at("seconds").get<double>()};
    for (const Json& one : json.at("expectations"))
        report.expectations.push_back({one.at("what").get<std::string>(),
                                       one.at("expected").get<std::string>(),
                                       one.at("found").get<std::string>(),
                                       one.at("met").get<bool>()});
    return report;
}

Json page_json(const DrillPage& page) {
    Json json = {{"drill", "lockstep"},
                 {"lockstep", version_text()},
                 {"host", page.host},
                 {"when", page.when},
                 {"ranks", page.ranks},
                 {"steps", page.steps},
                 {"parameters", page.parameters},
                 {"passed", page.count(FaultEnd::passed)},
                 {"failed", page.count(FaultEnd::failed)},
                 {"skipped", page.count(FaultEnd::skipped)}};
    json["faults"] = Json::array();
    for (const FaultReport& fault : page.faults) json["faults"].push_back(report_json(fault));
    return json;
}

void check_drill(const DrillPage& page) {
    std::vector<std::string> failed;
    for (const FaultReport& fault : page.faults)
        if (fault.end() == FaultEnd::failed) failed.push_back(fault.name);
    check(failed.empty(), [&] {
        return Error("E740",
                     fmt::format("{} of {} faults did not end as they should: {}",
                                 failed.size(),
                                 page.faults.size() - page.count(FaultEnd::skipped),
                                 fmt::join(failed, ", ")),
                     "the page above shows what was expected and what was found",
                     fmt::format("try it alone: lockstep drill --{}", failed.front()));
    });
    check(page.count(FaultEnd::passed) > 0, [] {
        return Error("E741",
                     "no fault was tried",
                     "all were skipped; the page above says why",
                     "choose other faults, or provide what these need");
    });
}

}  // namespace lockstep
