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

std::string fault_end_name(FaultEnd end) {
    constexpr const char* names[] = {"passed", "failed", "skipped"};
    return names[static_cast<int>(end)];
}

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

static void describe(Record& record, Expectation& one) {
    record.field("what", one.what);
    record.field("expected", one.expected);
    record.field("found", one.found);
    record.field("met", one.is_met);
}

void describe(Record& record, FaultReport& report) {
    record.field("fault", report.name);
    record.mark("verdict", fault_end_name(report.end()));
    record.field("done", report.done);
    record.field("seconds", report.seconds);
    record.sparse("why_skipped", report.why_skipped);
    record.field("expectations", report.expectations);
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
    for (const FaultReport& fault : page.faults) json["faults"].push_back(json_of_record(fault));
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
                     fmt::format("try it alone: lockstep drill --fault {}", failed.front()));
    });
    check(page.count(FaultEnd::passed) > 0, [] {
        return Error("E741",
                     "no fault was tried",
                     "all were skipped; the page above says why",
                     "choose other faults, or provide what these need");
    });
}

}  // namespace lockstep
