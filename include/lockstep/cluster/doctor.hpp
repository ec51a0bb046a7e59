// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that find a broken job before it costs anything: pure functions of gathered facts.
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
/// fragile. info: worth knowing, shown only with --json.
enum class Severity { info, warning, error };
std::string_view severity_name(Severity severity);  ///< "info", "warning", "error"

/// What a check found. Empty parts: those of the check's own row.
struct Ailment {
    std::string what;
    std::string why = {}, fix = {};
    std::optional<Severity> severity = {};
    std::vector<int> ranks = {};  ///< empty: all that the check looked at
};

/// What a check returns; empty: all is well.
using Ailments = std::vector<Ailment>;

/// The ranks of one node, in order.
using RanksOfNode = std::vector<const DoctorFacts*>;

/// All ranks of the job, in order.
using JobRanks = std::span<const DoctorFacts>;

/// What a check examines: one rank, the ranks of one node, or all ranks.
using RankLook = Ailments (*)(const DoctorFacts&);

/// Called once for each node.
using NodeLook = Ailments (*)(const RanksOfNode&);

/// Called once, with all ranks.
using JobLook = Ailments (*)(JobRanks);

/// fast: part of the preflight, from facts that every rank reads by itself. slow: needs a probe.
enum class Pace { fast, slow };

/// One row of the table. `id` is also the anchor in docs/doctor.md.
struct DoctorCheck {
    std::string_view id;
    Severity severity = Severity::warning;
    std::string_view title;
    std::string_view why, fix;  ///< unless the ailment has its own
    std::variant<RankLook, NodeLook, JobLook> look;
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
    std::vector<std::string> hosts;  ///< of those ranks, each once, in order of rank
    bool operator==(const DoctorFinding&) const = default;
};

/// Which checks to run. Names are ids ("G2") or families ("G"), in any case.
struct DoctorSelection {
    std::vector<std::string> only;  ///< empty: all
    std::vector<std::string> skip;
    Pace slowest = Pace::slow;
};

/// The rows that `selection` leaves. Errors: E614 for a name that is no check.
std::vector<const DoctorCheck*> selected_checks(const DoctorSelection& selection);

/// Runs the checks and folds equal findings; errors first, then by the table's order. `ranks` are
/// in order of rank, one at least.
std::vector<DoctorFinding> run_checks(JobRanks ranks, const DoctorSelection& selection = {});

/// One of them is an error: the job must not start.
bool has_errors(std::span<const DoctorFinding> findings);

/// For people: errors and warnings, each with why and fix; then one line that counts. `checks`:
/// how many were run.
std::string findings_text(std::span<const DoctorFinding> findings, std::size_t checks);

/// For programs: {"ranks", "checks", "errors", "warnings", "findings": [...]} on one line.
std::string findings_json(std::span<const DoctorFinding> findings,
                          std::size_t checks,
                          std::size_t ranks);

/// Which network joins the nodes, how many addresses answered, and which interfaces are left out
/// and why; one line, or nothing for one node.
std::string network_text(JobRanks ranks);

/// Hosts whose own hardware or set-up is at fault, by error or warning, sorted: what `--exclude` of
/// sbatch takes. What all hosts of a job have is the job's, not a host's.
std::vector<std::string> hosts_to_exclude(std::span<const DoctorFinding> findings, JobRanks ranks);

}  // namespace lockstep
