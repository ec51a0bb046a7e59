// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/examine.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/measure.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include "doctor/probes.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

void count_moved_errors(const DoctorFacts& before, SystemFacts& system) {
    for (const auto& [name, now] : read_port_errors()) {
        const auto then = before.system.port_errors.find(name);
        if (then != before.system.port_errors.end() && now > then->second)
            system.errors_moved[name] = now - then->second;
    }
}

void count_throttled_periods(const DoctorFacts& before, SystemFacts& system) {
    // Read anew: what moved meanwhile is the question.
    const auto now = read_topology({"/", nullptr}).control_group.throttled_periods;
    const auto then = before.node.control_group.throttled_periods;
    system.throttled_moved = now > then ? now - then : 0;
}

/// The CUDA that liblockstep_cuda.so was built with; nothing where it was not.
std::optional<int> built_with_cuda() {
#ifdef LOCKSTEP_CUDA_VERSION
    return LOCKSTEP_CUDA_VERSION;
#else
    return {};
#endif
}

}  // namespace

DoctorFacts examine_rank(const Communicator& ranks,
                         const RankFacts& facts,
                         const DoctorPlan& plan) {
    DoctorFacts mine =
        agree(ranks, [&] { return read_doctor_facts({.plan = plan}, facts.node()); });
    const Communicator node = ranks.split_by_node();
    mine.rank = ranks.rank();
    mine.size = ranks.size();
    mine.local_rank = node.rank();
    mine.local_size = node.size();
    mine.program.mpi_version = MpiSession::library_version();
    mine.program.cuda_runtime = built_with_cuda();
    mine.program.thread_level = mpi_thread_level();
    return mine;
}

void examine_load(const Communicator& ranks, DoctorFacts& mine) {
    SelfTestFacts unused;
    mine.load = test_work(ranks, mine.node.allowed_cpus, unused);
}

void examine_slowly(const Communicator& ranks, DoctorFacts& mine) {
    const DoctorFacts before = mine;
    const bool is_leader = mine.local_rank == 0;
    const Communicator leaders = ranks.split(is_leader ? 0 : 1);
    SelfTestFacts test;
    if (is_leader) {
        mine.network = probe_addresses(leaders, mine.node);
        mine.network.clock_offset_s =
            measure_clock_offset(leaders, Communicator(), unix_time_s).ahead_s;
        test_links(ranks, leaders, test);
    }
    ranks.barrier();
    mine.load = test_work(ranks, mine.node.allowed_cpus, test);
    if (ranks.size() > 1) test_sums(ranks, mine, test);
    mine.self_test = test;
    count_moved_errors(before, mine.system);
    count_throttled_periods(before, mine.system);
}

std::vector<DoctorFacts> gather_facts(const Communicator& ranks, const DoctorFacts& mine) {
    std::vector<DoctorFacts> all;
    for (const std::string& text : ranks.gather(serialize(mine)))
        all.push_back(deserialize<DoctorFacts>(text, "doctor facts"));
    return all;
}

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
