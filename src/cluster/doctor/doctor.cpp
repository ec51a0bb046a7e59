// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include "doctor/families.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

std::string lower_case(std::string text) {
    std::ranges::transform(
        text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
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

/// What a check finds. Each ailment names its ranks, if only those that the check examined.
Ailments look_at(const DoctorCheck& row, JobRanks ranks) {
    Ailments all;
    const auto add = [&](Ailments found, const std::vector<int>& examined) {
        for (Ailment& each : found) {
            if (each.ranks.empty()) each.ranks = examined;
            all.push_back(std::move(each));
        }
    };
    if (const auto* rank_look = std::get_if<RankLook>(&row.look))
        for (const DoctorFacts& facts : ranks) add((*rank_look)(facts), {facts.rank});
    if (const auto* gpu_look = std::get_if<GpuLook>(&row.look))
        for (const DoctorFacts& facts : ranks)
            if (facts.plan.uses_gpus)
                for (const GpuFacts* gpu : visible_gpus(facts))
                    add((*gpu_look)(*gpu), {facts.rank});
    if (const auto* node_look = std::get_if<NodeLook>(&row.look))
        for (const RanksOfNode& node : nodes_of(ranks)) add((*node_look)(node), numbers_of(node));
    if (const auto* job_look = std::get_if<JobLook>(&row.look)) {
        std::vector<int> numbers;
        for (const DoctorFacts& facts : ranks) numbers.push_back(facts.rank);
        add((*job_look)(ranks), numbers);
    }
    return all;
}

std::string either(const std::string& own, std::string_view row) {
    return own.empty() ? std::string(row) : own;
}

DoctorFinding finding_of(const DoctorCheck& row, const Ailment& ailment) {
    return {.id = std::string(row.id),
            .severity = ailment.severity.value_or(row.severity),
            .title = std::string(row.title),
            .what = ailment.what,
            .why = either(ailment.why, row.why),
            .fix = either(ailment.fix, row.fix),
            .ranks = ailment.ranks};
}

/// Returns what distinguishes findings: all but their ranks.
auto words_of(const DoctorFinding& finding) {
    return std::tuple(finding.id, finding.severity, finding.what, finding.why, finding.fix);
}

using HostByRank = std::unordered_map<int, std::string_view>;

// Once for all that was folded in: thousands of ranks may have the same ailment.
void sort_ranks_and_name_hosts(DoctorFinding& finding, const HostByRank& host_of) {
    std::ranges::sort(finding.ranks);
    const auto [repeated, end] = std::ranges::unique(finding.ranks);
    finding.ranks.erase(repeated, end);
    std::unordered_set<std::string_view> named;
    for (const int rank : finding.ranks)
        if (const auto host = host_of.find(rank);
            host != host_of.end() && named.insert(host->second).second)
            finding.hosts.emplace_back(host->second);
}

/// Returns the GPU that a word of CUDA_VISIBLE_DEVICES names: its index, or the begin of its UUID.
const GpuFacts* named_gpu(const std::vector<const GpuFacts*>& gpus, const std::string& word) {
    if (const auto index = parse_integer(word)) {
        const bool is_there = *index >= 0 && static_cast<std::size_t>(*index) < gpus.size();
        return is_there ? gpus[static_cast<std::size_t>(*index)] : nullptr;
    }
    const auto found = std::ranges::find_if(gpus, [&](const GpuFacts* gpu) {
        return gpu->uuid.starts_with(word) || std::ranges::count(gpu->mig_uuids, word) > 0;
    });
    return found == gpus.end() ? nullptr : *found;
}

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

constexpr std::array<std::string_view, 3> severity_names{"info", "warning", "error"};

}  // namespace

// The form of doctor --json.
static void describe(Record& record, DoctorFinding& finding) {
    record.field("id", finding.id);
    record.field("severity", finding.severity, severity_names);
    LOCKSTEP_EACH(record.field, finding.title, finding.what, finding.why, finding.fix);
    LOCKSTEP_EACH(record.field, finding.ranks, finding.hosts);
}

std::string_view severity_name(Severity severity) {
    return severity_names.at(static_cast<std::size_t>(severity));
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
    std::vector<DoctorFinding> findings;  // in the order in which they were first made, each once
    std::map<decltype(words_of({})), std::size_t> place_of;
    for (const DoctorCheck* row : selected_checks(selection))
        for (const Ailment& ailment : look_at(*row, ranks)) {
            DoctorFinding one = finding_of(*row, ailment);
            const auto [place, is_new] = place_of.try_emplace(words_of(one), findings.size());
            if (is_new)
                findings.push_back(std::move(one));
            else
                std::ranges::copy(one.ranks, std::back_inserter(findings[place->second].ranks));
        }
    HostByRank host_of;
    for (const DoctorFacts& facts : ranks) host_of.emplace(facts.rank, facts.node.host);
    for (DoctorFinding& finding : findings) sort_ranks_and_name_hosts(finding, host_of);
    std::ranges::stable_sort(findings, std::ranges::greater{}, &DoctorFinding::severity);
    return findings;
}

bool has_errors(std::span<const DoctorFinding> findings) {
    return count_of(findings, Severity::error) > 0;
}

std::string variable(const DoctorFacts& facts, const std::string& name) {
    const auto found = facts.environment.find(name);
    return found == facts.environment.end() ? "" : found->second;
}

std::string variable_text(const DoctorFacts& facts, const std::string& name) {
    return name + (facts.environment.contains(name) ? "=" + variable(facts, name) : " is not set");
}

std::optional<std::int64_t> whole_variable(const DoctorFacts& facts, const std::string& name) {
    return parse_integer(variable(facts, name));
}

std::vector<RanksOfNode> nodes_of(JobRanks ranks) {
    std::vector<RanksOfNode> nodes;
    std::unordered_map<std::string, std::size_t> place_of;
    for (const DoctorFacts& rank : ranks) {
        const auto [place, is_new] = place_of.try_emplace(rank.node.host_id(), nodes.size());
        if (is_new) nodes.emplace_back();
        nodes[place->second].push_back(&rank);
    }
    return nodes;
}

RanksOfNode first_of_nodes(JobRanks ranks) {
    RanksOfNode first;
    for (const RanksOfNode& node : nodes_of(ranks)) first.push_back(node.front());
    return first;
}

std::vector<int> numbers_of(const RanksOfNode& ranks) {
    std::vector<int> numbers;
    for (const DoctorFacts* each : ranks) numbers.push_back(each->rank);
    return numbers;
}

std::string values_text(const RanksByValue& values) {
    std::string text;
    for (const auto& [value, ranks] : values)
        text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", value, ranks_text(ranks));
    return text;
}

std::vector<std::string> comma_separated(const std::string& text) {
    std::vector<std::string> pieces = split(text, ',');
    std::erase(pieces, "");
    return pieces;
}

std::vector<const GpuFacts*> visible_gpus(const DoctorFacts& facts) {
    std::vector<const GpuFacts*> gpus;
    for (const GpuFacts& gpu : facts.node.gpus)
        if (gpu.has_driver) gpus.push_back(&gpu);
    if (!facts.environment.contains("CUDA_VISIBLE_DEVICES")) return gpus;
    std::vector<const GpuFacts*> visible;
    for (const std::string& word : comma_separated(variable(facts, "CUDA_VISIBLE_DEVICES"))) {
        const GpuFacts* gpu = named_gpu(gpus, word);
        if (gpu == nullptr) break;  // CUDA stops at the first that it does not know
        visible.push_back(gpu);
    }
    return visible;
}

const GpuFacts* gpu_of(const DoctorFacts& facts) {
    for (const GpuFacts& gpu : facts.node.gpus)
        if (!facts.gpu.empty() && gpu.pci.address == facts.gpu) return &gpu;
    const auto visible = visible_gpus(facts);
    if (visible.empty()) return nullptr;
    return visible[static_cast<std::size_t>(facts.local_rank) % visible.size()];
}

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
    for (const DoctorFinding& finding : findings) list.push_back(json_of_record(finding));
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
