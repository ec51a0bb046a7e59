// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/preflight.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/ranks_text.hpp"
#include "lockstep/launch/examine.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {

void judge_preflight(std::span<const DoctorFinding> findings) {
    for (const DoctorFinding& finding : findings)
        if (finding.severity == Severity::warning)
            once(Level::warn, "{}: {}; fix: {}", finding.id, finding.what, finding.fix);
    const auto errors = std::ranges::count(findings, Severity::error, &DoctorFinding::severity);
    if (errors == 0) return;
    const auto first = std::ranges::find(findings, Severity::error, &DoctorFinding::severity);
    const auto others =
        errors > 1 ? fmt::format("; and {} more, which 'lockstep doctor' shows", errors - 1) : "";
    throw Error("E613",
                fmt::format("check {}: {} ({})", first->id, first->what, ranks_text(first->ranks)),
                first->why + others,
                first->fix);
}

void run_preflight(const Communicator& ranks,
                   const RankFacts& facts,
                   const DoctorPlan& plan,
                   const std::vector<std::string>& skip) {
    const auto all = gather_facts(ranks, examine_rank(ranks, facts, plan));
    from_root(ranks, [&] {
        judge_preflight(run_checks(all, {.skip = skip, .slowest = Pace::fast}));
        return std::string();
    });
}

}  // namespace lockstep
