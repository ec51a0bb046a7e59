// SPDX-License-Identifier: Apache-2.0
// What a drill found, as a page for people and as JSON.
#pragma once

#include "lockstep/core/record.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// One thing that has to be so after a fault.
struct Expectation {
    std::string what{};      ///< "exit code"
    std::string expected{};  ///< "76"
    std::string found{};     ///< the same words where it is met
    bool is_met = false;
};

/// An expectation that two texts are equal.
Expectation expect_text(std::string what, std::string expected, std::string found);

enum class FaultEnd { passed, failed, skipped };
std::string fault_end_name(FaultEnd end);  ///< the enumerator's word

/// What became of one fault.
struct FaultReport {
    std::string name{};         ///< its option: "killed-rank"
    std::string done{};         ///< what was done to which training; "" if nothing
    std::string why_skipped{};  ///< "": it was rehearsed
    std::vector<Expectation> expectations{};
    double seconds = 0;

    /// Passed: something was expected, and all of it was found.
    FaultEnd end() const;
};

/// The whole drill.
struct DrillPage {
    std::string host{}, when{};  ///< of this machine; UTC
    int ranks = 2;
    std::int64_t steps = 0;
    std::string parameters{};  ///< hash of the undisturbed training
    std::vector<FaultReport> faults{};

    std::size_t count(FaultEnd end) const;
};

/// Markdown that reads well as it is.
std::string page_text(const DrillPage& page);

/// The same for programs.
Json page_json(const DrillPage& page);

void describe(Record& record, FaultReport& report);  ///< as the page has it

/// Errors: E740 where a fault did not end as it should, E741 where none was rehearsed.
void check_drill(const DrillPage& page);

}  // namespace lockstep
