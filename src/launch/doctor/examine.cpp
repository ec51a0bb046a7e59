// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/examine.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/measure.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/log.hpp"

#include "doctor/probes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

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

constexpr std::size_t link_bytes = std::size_t{4} << 20;
constexpr std::size_t reduced_bytes = std::size_t{4} << 20;
constexpr int steps = 24;
constexpr double watched_s = 0.25;  // many time slices of the kernel, which are of 3 to 10 ms
constexpr std::array<std::size_t, 4> tested_counts{1, 3, 1023, (std::size_t{1} << 20) + 1};

/// One step of a small dense recurrence in operations that IEEE 754 defines to the last bit.
void work(std::span<float> state) {
    constexpr int passes = 64;
    for (int pass = 0; pass < passes; ++pass)
        for (std::size_t i = 0; i < state.size(); ++i) {
            const float other = state[(i * 7 + 3) % state.size()];
            state[i] = std::sqrt(0.5f * state[i] * state[i] + 0.25f * other + 0.125f);
        }
}

MeasurePlan exact_plan() {
    MeasurePlan plan;
    for (const std::size_t count : tested_counts) plan.sizes.push_back(count * sizeof(float));
    plan.iterations = plan.rounds = 1;
    plan.warmup = 0;
    return plan;
}

/// Collective. Whether every rank has a core of one node: memory alone does not tell of crowds.
bool can_compare_with_memory(const Communicator& ranks, const DoctorFacts& mine) {
    const auto local = static_cast<std::uint64_t>(mine.local_size);
    const bool has_cores = mine.node.allowed_cpus.size() >= local;
    std::array<std::int64_t, 1> lacks{!has_cores || mine.local_size != mine.size};
    ranks.all_reduce_max(lacks);
    return lacks[0] == 0;
}

/// Collective.
void test_against_memory(const Communicator& ranks, SelfTestFacts& test) {
    MeasurePlan plan;
    plan.sizes = {reduced_bytes};
    plan.methods = {SumMethod::lockstep};
    const Measurements measured = measure(ranks, plan);
    if (measured.limits.empty()) return;  // the exchange found no room in shared memory
    test.reduced_bytes = reduced_bytes;
    test.measured_s = measured.rows.at(0).best_s;
    test.memory_s =
        shared_memory_bytes(reduced_bytes, ranks.size()) / measured.limits.at(0).bytes_per_s;
}

/// Collective. Does the same arithmetic on every rank, step by step, and measures its hash, its
/// time, and the load of `cpus`, those of this rank. It takes at least a quarter of a second. Wall
/// time beyond processor time is time without a core: the loop waits for nothing else.
LoadFacts test_work(const Communicator& ranks, const std::vector<int>& cpus, SelfTestFacts& test) {
    std::vector<float> state(4096);
    for (std::size_t i = 0; i < state.size(); ++i) state[i] = static_cast<float>(i % 97) / 97;
    ranks.barrier();
    const CpuTime before = read_cpu_time(cpus);
    const double begin_s = now_s(), computed_s = thread_processor_s();
    for (int step = 0; step < steps || now_s() - begin_s < watched_s; ++step) {
        const double step_begin_s = thread_processor_s();
        work(state);
        if (step < steps) test.step_s.push_back(thread_processor_s() - step_begin_s);
        if (step + 1 != steps) continue;
        for (const float value : state) test.not_finite += !std::isfinite(value);
        test.state_hash = hash128(bytes_of(std::span<const float>(state))).hex();
    }
    LoadFacts load{.watched_s = now_s() - begin_s, .computed_s = thread_processor_s() - computed_s};
    const CpuTime after = read_cpu_time(cpus);
    load.busy_s = after.busy_s - before.busy_s;
    load.stolen_s = after.stolen_s - before.stolen_s;
    return load;
}

/// Collective. Computes exact sums of 1, 3, 1023 and 1 Mi + 1 floats by the exchange and by Open
/// MPI. If all ranks are on one node with a core each, also compares a sum with the speed of
/// memory. At least two ranks.
void test_sums(const Communicator& ranks, const DoctorFacts& mine, SelfTestFacts& test) {
    for (const Measurement& row : measure(ranks, exact_plan()).rows)
        test.wrong_sums.push_back(
            {std::string(name_of(row.method)), row.bytes / sizeof(float), row.wrong.value_or(0)});
    if (can_compare_with_memory(ranks, mine)) test_against_memory(ranks, test);
}

/// Applies `findings` to a job that is about to start: logs warnings. Errors: E613.
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

}  // namespace

RankFacts::RankFacts() : RankFacts([] { return read_topology(); }) {}

const LaunchFacts& RankFacts::launch() const {
    if (!launch_) launch_ = read_launch_facts(Environment());
    return *launch_;
}

const NodeTopology& RankFacts::node() const {
    if (!node_) node_ = read_();
    return *node_;
}

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
#ifdef LOCKSTEP_CUDA_VERSION  // liblockstep_cuda.so was built with it
    mine.program.cuda_runtime = LOCKSTEP_CUDA_VERSION;
#endif
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

void test_links(const Communicator& world, const Communicator& leaders, SelfTestFacts& test) {
    std::vector<int> world_ranks;
    for (const std::string& rank : leaders.all_gather(std::to_string(world.rank())))
        world_ranks.push_back(std::stoi(rank));
    std::vector<PairSpeed> pairs;
    std::vector<double> speeds;
    for (const LinkSpeed& link : measure_link_speeds(leaders, link_bytes)) {
        pairs.push_back({world_ranks.at(static_cast<std::size_t>(link.peer)), link.bytes_per_s});
        speeds.push_back(link.bytes_per_s);
    }
    if (leaders.size() > 2)
        test.median_link = median_over(leaders, speeds);  // two nodes have no median
    test.slow_pairs = slow_pairs_of(std::move(pairs), test.median_link);
}

std::vector<PairSpeed> slow_pairs_of(std::vector<PairSpeed> pairs, double median) {
    constexpr std::size_t most_told = 16;  // a node with more is named by them
    const double least = std::max(slow_link_share * median, doubtful_link);
    std::erase_if(pairs, [&](const PairSpeed& pair) { return pair.bytes_per_s >= least; });
    std::ranges::sort(pairs, {}, &PairSpeed::bytes_per_s);
    if (pairs.size() > most_told) pairs.resize(most_told);
    return pairs;
}

// Numbers that are not negative stand in the order of their bits, which are found a byte at a time.
double median_over(const Communicator& ranks, std::span<const double> values) {
    std::array<std::int64_t, 1> left = {std::ssize(values)};
    ranks.all_reduce_sum(std::span<std::int64_t>(left));
    if (left[0] == 0) return 0;
    left[0] /= 2;  // so many of those that begin alike are smaller
    std::uint64_t found = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        std::array<std::int64_t, 256> counts{};
        for (const double value : values) {
            const auto begin = std::bit_cast<std::uint64_t>(value) >> shift;
            if (begin >> 8 == found) ++counts[begin & 0xff];
        }
        ranks.all_reduce_sum(std::span<std::int64_t>(counts));
        std::uint64_t byte = 0;
        while (left[0] >= counts[byte]) left[0] -= counts[byte++];
        found = found << 8 | byte;
    }
    return std::bit_cast<double>(found);
}

}  // namespace lockstep
