// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"

#include "lockstep/core/error.hpp"

#include "doctor/families.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::vector<DoctorCheck> joined_families() {
    std::vector<DoctorCheck> all;
    for (const auto family : {launch_checks(),
                              cpu_checks(),
                              gpu_checks(),
                              fabric_checks(),
                              network_checks(),
                              limit_checks(),
                              self_test_checks()})
        all.insert(all.end(), family.begin(), family.end());
    return all;
}

bool names(const std::string& wanted, std::string_view id) {
    const std::string word = lower_case(wanted), own = lower_case(std::string(id));
    return word == own || (word.size() == 1 && own.starts_with(word));
}

bool is_named(const std::vector<std::string>& words, std::string_view id) {
    return std::ranges::any_of(words, [&](const std::string& word) { return names(word, id); });
}

void check_names(const std::vector<std::string>& words) {
    std::vector<std::string> ids;
    for (const DoctorCheck& each : doctor_checks()) ids.emplace_back(each.id);
    for (const std::string& word : words)
        check(std::ranges::any_of(ids, [&](const auto& id) { return names(word, id); }), [&] {
            return Error("E614",
                         fmt::format("no check is called '{}'", word),
                         "checks have ids such as G2; a letter alone is its family",
                         "'lockstep doctor --list' shows them all");
        });
}

/// Whose ailments one look found.
struct Looked {
    Ailments ailments;
    std::vector<int> ranks;
};

std::vector<Looked> look_at(const DoctorCheck& row, JobRanks ranks) {
    std::vector<Looked> looked;
    if (const auto* rank_look = std::get_if<RankLook>(&row.look))
        for (const DoctorFacts& facts : ranks)
            looked.push_back({(*rank_look)(facts), {facts.rank}});
    if (const auto* node_look = std::get_if<NodeLook>(&row.look))
        for (const RanksOfNode& node : nodes_of(ranks))
            looked.push_back({(*node_look)(node), numbers_of(node)});
    if (const auto* job_look = std::get_if<JobLook>(&row.look)) {
        std::vector<int> all;
        for (const DoctorFacts& facts : ranks) all.push_back(facts.rank);
        looked.push_back({(*job_look)(ranks), all});
    }
    return looked;
}

std::string either(const std::string& own, std::string_view row) {
    return own.empty() ? std::string(row) : own;
}

DoctorFinding finding_of(const DoctorCheck& row, const Ailment& ailment, const Looked& looked) {
    return {.id = std::string(row.id),
            .severity = ailment.severity.value_or(row.severity),
            .title = std::string(row.title),
            .what = ailment.what,
            .why = either(ailment.why, row.why),
            .fix = either(ailment.fix, row.fix),
            .ranks = ailment.ranks.empty() ? looked.ranks : ailment.ranks};
}

/// Returns the text that distinguishes findings: all but their ranks.
std::string words_of(const DoctorFinding& finding) {
    return fmt::format("{}\n{}\n{}\n{}\n{}",
                       finding.id,
                       severity_name(finding.severity),
                       finding.what,
                       finding.why,
                       finding.fix);
}

/// Findings in the order in which they were first made, each once.
class FoldedFindings {
  public:
    void add(DoctorFinding finding) {
        const auto [place, is_new] = place_of_.try_emplace(words_of(finding), all_.size());
        if (is_new) return all_.push_back(std::move(finding));
        auto& ranks = all_[place->second].ranks;
        ranks.insert(ranks.end(), finding.ranks.begin(), finding.ranks.end());
    }
    std::vector<DoctorFinding> take() { return std::move(all_); }

  private:
    std::vector<DoctorFinding> all_;
    std::unordered_map<std::string, std::size_t> place_of_;
};

// Once for all that was folded in: thousands of ranks may have the same ailment.
void sort_ranks(DoctorFinding& finding) {
    std::ranges::sort(finding.ranks);
    const auto [repeated, end] = std::ranges::unique(finding.ranks);
    finding.ranks.erase(repeated, end);
}

using HostByRank = std::unordered_map<int, std::string_view>;

void name_hosts(DoctorFinding& finding, const HostByRank& host_of) {
    std::unordered_set<std::string_view> named;
    for (const int rank : finding.ranks)
        if (const auto host = host_of.find(rank);
            host != host_of.end() && named.insert(host->second).second)
            finding.hosts.emplace_back(host->second);
}

}  // namespace

std::string_view severity_name(Severity severity) {
    if (severity == Severity::error) return "error";
    return severity == Severity::warning ? "warning" : "info";
}

std::span<const DoctorCheck> doctor_checks() {
    static const std::vector<DoctorCheck> all = joined_families();
    return all;
}

std::vector<const DoctorCheck*> selected_checks(const DoctorSelection& selection) {
    check_names(selection.only);
    check_names(selection.skip);
    std::vector<const DoctorCheck*> selected;
    for (const DoctorCheck& each : doctor_checks()) {
        if (each.pace == Pace::slow && selection.slowest == Pace::fast) continue;
        if (!selection.only.empty() && !is_named(selection.only, each.id)) continue;
        if (!is_named(selection.skip, each.id)) selected.push_back(&each);
    }
    return selected;
}

std::vector<DoctorFinding> run_checks(JobRanks ranks, const DoctorSelection& selection) {
    expect(!ranks.empty(), "the doctor has somebody to look at");
    FoldedFindings folded;
    for (const DoctorCheck* row : selected_checks(selection))
        for (const Looked& looked : look_at(*row, ranks))
            for (const Ailment& ailment : looked.ailments)
                folded.add(finding_of(*row, ailment, looked));
    std::vector<DoctorFinding> findings = folded.take();
    HostByRank host_of;
    for (const DoctorFacts& facts : ranks) host_of.emplace(facts.rank, facts.node.host);
    for (DoctorFinding& finding : findings) {
        sort_ranks(finding);
        name_hosts(finding, host_of);
    }
    std::ranges::stable_sort(findings, std::ranges::greater{}, &DoctorFinding::severity);
    return findings;
}

bool has_errors(std::span<const DoctorFinding> findings) {
    return std::ranges::count(findings, Severity::error, &DoctorFinding::severity) > 0;
}

}  // namespace lockstep
