// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that find a broken job before it starts: pure functions of gathered facts.
#pragma once

#include "lockstep/cluster/doctor_facts.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

/// error: training would fail or be wrong, and does not start. warning: it would be slow or
/// fragile. info: shown only with --json.
enum class Severity { info, warning, error };
std::string_view severity_name(Severity severity);  ///< "info", "warning", "error"

/// A problem that a check found. Empty parts are taken from the check's own row.
struct Ailment {
    std::string what, why = {}, fix = {};
    std::optional<Severity> severity = {};
    std::vector<int> ranks = {};  ///< empty: all that the check examined
};

/// The result of a check; empty: no problem.
using Ailments = std::vector<Ailment>;

/// The ranks of one node, in order.
using RanksOfNode = std::vector<const DoctorFacts*>;

/// All ranks of the job, in order.
using JobRanks = std::span<const DoctorFacts>;

/// Examines one rank. A check examines one rank, the ranks of one node, or all ranks.
using RankLook = Ailments (*)(const DoctorFacts&);

/// Examines the ranks of one node; called once for each node.
using NodeLook = Ailments (*)(const RanksOfNode&);

/// Examines all ranks; called once.
using JobLook = Ailments (*)(JobRanks);

/// fast: part of the preflight, from facts that every rank reads by itself. slow: needs a probe.
enum class Pace { fast, slow };

/// One row of the table. `id` is also the anchor in docs/doctor.md.
struct DoctorCheck {
    std::string_view id, title;
    std::string_view why, fix;  ///< used unless the ailment has its own
    std::variant<RankLook, NodeLook, JobLook> look;
    Severity severity = Severity::warning;
    Pace pace = Pace::fast;
};

/// All checks, by family: D launch, C CPU, G GPU, F fabric, L limits and storage, T self-test.
std::span<const DoctorCheck> doctor_checks();

/// One problem, reported once for all ranks that have it.
struct DoctorFinding {
    std::string id;
    Severity severity = Severity::warning;
    std::string title, what, why, fix;
    std::vector<int> ranks;
    std::vector<std::string> hosts;  ///< hosts of those ranks, each once, by rank
    bool operator==(const DoctorFinding&) const = default;
};

/// Selection of checks. Names are ids ("G2") or families ("G"), in upper or lower case.
struct DoctorSelection {
    std::vector<std::string> only;  ///< empty: all
    std::vector<std::string> skip;
    Pace slowest = Pace::slow;
};

/// Returns the rows that `selection` keeps. Errors: E614 for a name that is no check.
std::vector<const DoctorCheck*> selected_checks(const DoctorSelection& selection);

/// Runs the checks and folds equal findings; errors first, then by the table's order. `ranks` are
/// in order of rank, at least one.
std::vector<DoctorFinding> run_checks(JobRanks ranks, const DoctorSelection& selection = {});

/// Returns true if one of them is an error: the job must not start.
bool has_errors(std::span<const DoctorFinding> findings);

/// Returns text for people: errors and warnings, each with why and fix; then one line with totals.
/// `checks`: number of checks that were run.
std::string findings_text(std::span<const DoctorFinding> findings, std::size_t checks);

/// Returns JSON for programs on one line: {"ranks", "checks", "errors", "warnings", "findings":
/// [...]}.
std::string findings_json(std::span<const DoctorFinding> findings,
                          std::size_t checks,
                          std::size_t ranks);

/// Returns one line about the network: the one that connects the nodes, the number of addresses
/// that answered, and the interfaces left out, with reasons. Returns nothing for one node.
std::string network_text(JobRanks ranks);

/// Returns the hosts whose own hardware or set-up causes an error or warning, sorted: the value for
/// `--exclude` of sbatch. A problem of all hosts belongs to the job, not to a host.
std::vector<std::string> hosts_to_exclude(std::span<const DoctorFinding> findings, JobRanks ranks);

}  // namespace lockstep
