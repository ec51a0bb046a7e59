// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/measure.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/hash.hpp"

#include "doctor/probes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace lockstep {
namespace {

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

}  // namespace

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

// Wall time beyond processor time is time without a core: the loop waits for nothing else.
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

void test_sums(const Communicator& ranks, const DoctorFacts& mine, SelfTestFacts& test) {
    for (const Measurement& row : measure(ranks, exact_plan()).rows)
        test.wrong_sums.push_back(
            {std::string(name_of(row.method)), row.bytes / sizeof(float), row.wrong.value_or(0)});
    if (can_compare_with_memory(ranks, mine)) test_against_memory(ranks, test);
}

}  // namespace lockstep
