// SPDX-License-Identifier: Apache-2.0
// The results of a drill, as a page for people and as JSON.
#pragma once

#include "lockstep/core/record.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// A condition that must hold after a fault.
struct Expectation {
    std::string what{};      ///< "exit code"
    std::string expected{};  ///< "76"
    std::string found{};     ///< equal to `expected` if it is met
    bool is_met = false;
};

/// Makes the expectation that two texts are equal.
Expectation expect_text(std::string what, std::string expected, std::string found);

enum class FaultEnd { passed, failed, skipped };

struct FaultReport {
    std::string name{};         ///< its option: "killed-rank"
    std::string done{};         ///< what was done to which training; "": nothing
    std::string why_skipped{};  ///< "": it was rehearsed
    std::vector<Expectation> expectations{};
    double seconds = 0;

    /// Returns passed if there are expectations and all are met.
    FaultEnd end() const;
};

struct DrillPage {
    std::string host{}, when{};  ///< name of this machine; UTC
    int ranks = 2;
    std::int64_t steps = 0;
    std::string parameters{};  ///< hash of the undisturbed training
    std::vector<FaultReport> faults{};

    std::size_t count(FaultEnd end) const;
};

/// Returns Markdown that is readable as text.
std::string page_text(const DrillPage& page);

/// Returns the same for programs.
Json page_json(const DrillPage& page);

void describe(Record& record, FaultReport& report);  ///< as the page has it

/// Checks the results. Errors: E740 if a fault did not end as it should, E741 if none was
/// rehearsed.
void check_drill(const DrillPage& page);

}  // namespace lockstep
