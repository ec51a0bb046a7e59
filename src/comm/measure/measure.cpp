// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/measure.hpp"

#include "lockstep/comm/exchange.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include "base/aligned_floats.hpp"
#include "base/mpi_check.hpp"
#include "measure/textbook.hpp"
#include "sums/sum_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

namespace lockstep {
namespace {

constexpr int tag = 1, repetitions = 3;

double seconds_of_exchange(const Communicator& ranks,
                           int peer,
                           std::vector<std::byte>& out,
                           std::vector<std::byte>& in) {
    const auto bytes = static_cast<int>(out.size());
    const double begin = now_s();
    check_mpi(MPI_Sendrecv(out.data(),
                           bytes,
                           MPI_BYTE,
                           peer,
                           tag,
                           in.data(),
                           bytes,
                           MPI_BYTE,
                           peer,
                           tag,
                           ranks.handle(),
                           MPI_STATUS_IGNORE),
              "MPI_Sendrecv");
    return now_s() - begin;
}

constexpr int clock_tag = 32002;
constexpr int probe_rounds = 16;  // the first ones also set up the connection

void send_time(const Communicator& to, int peer, double time_s) {
    check_mpi(MPI_Send(&time_s, 1, MPI_DOUBLE, peer, clock_tag, to.handle()), "MPI_Send");
}

double receive_time(const Communicator& from, int peer) {
    double time_s = 0;
    check_mpi(MPI_Recv(&time_s, 1, MPI_DOUBLE, peer, clock_tag, from.handle(), MPI_STATUS_IGNORE),
              "MPI_Recv");
    return time_s;
}

void serve(const Communicator& leaders, const std::function<double()>& clock) {
    for (int peer = 1; peer < leaders.size(); ++peer)
        for (int round = 0; round < probe_rounds; ++round) {
            receive_time(leaders, peer);
            send_time(leaders, peer, clock());
        }
}

ClockOffset ask(const Communicator& leaders, const std::function<double()>& clock) {
    ClockOffset best{0, std::numeric_limits<double>::infinity()};
    for (int round = 0; round < probe_rounds; ++round) {
        const double asked_s = clock();
        send_time(leaders, 0, asked_s);
        const double root_s = receive_time(leaders, 0), heard_s = clock();
        const double error_s = (heard_s - asked_s) / 2;
        if (error_s >= 0 && error_s < best.error_s) best = {asked_s + error_s - root_s, error_s};
    }
    return best;
}

constexpr double most_iterations = 20000;

/// One bucket of `count` floats through the exchange, as a step of training does it; a copy of the
/// sums stands for the optimizer's update. This rank's share is added to its own sum of before.
struct BucketSum {
    BucketSum(const Communicator& ranks, std::size_t count)
        : layout(std::array{count}, 0),
          plan(static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks.size()))),
               ranks.size(),
               Summation::plain),
          exchange(make_exchange(ranks, layout, plan)) {}

    void run() {
        constexpr std::size_t bucket = 0;
        exchange->arrive(bucket);
        const float* sums = exchange->reduce(bucket, Wait::yes);
        const FloatRange own = exchange->own_stripe(bucket);
        std::copy_n(sums, own.size(), exchange->values() + own.begin);
        exchange->publish();
    }

    const FlatLayout layout;
    const TreePlan plan;
    const std::unique_ptr<Exchange> exchange;
};

/// A method, or the memory limit, that takes turns at one size.
struct Contestant {
    std::span<float> in;
    std::span<const float> out;
    std::function<void()> run;
};

/// Everything that is set up once for a plan.
class Measuring {
  public:
    Measuring(const Communicator& ranks, const MeasurePlan& plan)
        : ranks_(ranks), plan_(plan), own_(make_aligned_floats(plan.sizes.back() / sizeof(float))) {
        for (const SumMethod method : plan.methods)
            textbook_.push_back(method == SumMethod::lockstep ? InPlaceSum()
                                                              : make_textbook_sum(ranks, method));
    }

    Measurements run() {
        Measurements all;
        for (const std::size_t bytes : plan_.sizes) {
            if (plan_.on_size) plan_.on_size(bytes);
            run_size(bytes, all);
        }
        return all;
    }

  private:
    /// Those that are not the exchange share one buffer: they never run at the same time.
    std::vector<Contestant> contestants(std::size_t count, BucketSum* bucket) {
        const std::span<float> own(own_.get(), count);
        std::vector<Contestant> all;
        for (const InPlaceSum& sum : textbook_)
            if (sum)
                all.push_back({own, own, [own, &sum] { sum(own); }});
            else
                all.push_back({{bucket->exchange->slot(0), count},
                               {bucket->exchange->values(), count},
                               [bucket] { bucket->run(); }});
        return all;
    }

    /// Each rank adds two thirds of its own buffer into the last one: it reads twice as much as it
    /// writes, as an exchange of two ranks does, but has nobody to wait for.
    static Contestant memory_limit(std::span<float> own) {
        const std::size_t third = own.size() / 3;
        return {own, own, [data = own.data(), third] {
                    constexpr std::array left_to_right = {0, 1};
                    const std::array<const float*, 2> both = {data, data + third};
                    const std::array<float*, 1> to = {data + 2 * third};
                    sum_into(left_to_right, both, to, third);
                }};
    }

    void run_size(std::size_t bytes, Measurements& all) {
        const std::size_t count = bytes / sizeof(float);
        std::optional<BucketSum> bucket;
        if (std::ranges::count(plan_.methods, SumMethod::lockstep) > 0) {
            bucket.emplace(ranks_, count);
            all.transport = bucket->exchange->name();
        }
        std::vector<Contestant> turns = contestants(count, bucket ? &*bucket : nullptr);
        const std::vector<std::int64_t> wrong = check_all(turns);
        if (all.transport == "shared memory") turns.push_back(memory_limit({own_.get(), count}));
        const auto seconds = time_all(turns, warm_up(turns));
        for (std::size_t i = 0; i < turns.size(); ++i) {
            const double best = seconds[i].front(), median = seconds[i][seconds[i].size() / 2];
            if (i == plan_.methods.size()) {
                all.limits.push_back(
                    {bytes, static_cast<double>(bytes / 12 * 12) * ranks_.size() / best});
                continue;
            }
            all.rows.push_back({plan_.methods[i], bytes, best, median, {}});
            if (plan_.checks > 0) all.rows.back().wrong = static_cast<std::uint64_t>(wrong[i]);
        }
    }

    std::vector<std::int64_t> check_all(std::vector<Contestant>& turns) {
        std::vector<std::int64_t> wrong(turns.size());
        for (std::size_t i = 0; i < turns.size(); ++i) {
            for (int round = 0; round < plan_.checks; ++round) {
                fill_exact(turns[i].in, ranks_.rank(), ranks_.size(), round);
                turns[i].run();
                wrong[i] +=
                    static_cast<std::int64_t>(count_wrong(turns[i].out, ranks_.size(), round));
            }
            std::ranges::fill(turns[i].in, 0.0f);  // sums of zeros never overflow
        }
        ranks_.all_reduce_sum(wrong);
        return wrong;
    }

    /// Returns the number of sums in a block, by contestant.
    std::vector<int> warm_up(std::vector<Contestant>& turns) {
        std::vector<std::int64_t> ns;
        for (Contestant& one : turns) {
            (void)time_block(one, std::max(plan_.warmup - 1, 0));
            ns.push_back(std::llround(1e9 * time_block(one, 1)));
        }
        ranks_.all_reduce_max(ns);
        std::vector<int> iterations;
        for (const std::int64_t each : ns) {
            const double fitting =
                plan_.block_s / (1e-9 * static_cast<double>(std::max(each, {1})));
            iterations.push_back(plan_.iterations > 0
                                     ? plan_.iterations
                                     : static_cast<int>(std::clamp(fitting, 1.0, most_iterations)));
        }
        return iterations;
    }

    /// Seconds of one sum, by contestant, ascending over rounds.
    std::vector<std::vector<double>> time_all(std::vector<Contestant>& turns,
                                              const std::vector<int>& iterations) {
        const auto rounds = static_cast<std::size_t>(plan_.rounds);
        std::vector<std::int64_t> ns(turns.size() * rounds);
        for (std::size_t round = 0; round < rounds; ++round)
            for (std::size_t i = 0; i < turns.size(); ++i)
                ns[i * rounds + round] = std::llround(1e9 * time_block(turns[i], iterations[i]));
        ranks_.all_reduce_max(ns);
        std::vector<std::vector<double>> seconds(turns.size());
        for (std::size_t i = 0; i < turns.size(); ++i) {
            for (std::size_t round = 0; round < rounds; ++round)
                seconds[i].push_back(1e-9 * static_cast<double>(ns[i * rounds + round]) /
                                     iterations[i]);
            std::ranges::sort(seconds[i]);
        }
        return seconds;
    }

    double time_block(Contestant& one, int iterations) {
        ranks_.barrier();
        const double begin = now_s();
        for (int i = 0; i < iterations; ++i) one.run();
        return now_s() - begin;
    }

    const Communicator ranks_;
    const MeasurePlan& plan_;
    const AlignedFloats own_;
    std::vector<InPlaceSum> textbook_;  ///< by method; empty for the exchange
};

constexpr int largest_sum = 128;

/// Only so many ranks give anything but zero.
int givers(int ranks) {
    return std::min(ranks, largest_sum);
}

/// Values are 0 .. period - 1.
int period(int ranks) {
    return largest_sum / givers(ranks) + 1;
}

/// Neighbouring elements differ, and no stride or swap of chunks maps the pattern to itself.
std::size_t phase_of(std::size_t element, int round, int period) {
    const std::uint64_t mixed = (element + 1) * 0x9e3779b97f4a7c15u;
    return ((mixed >> 40) + static_cast<std::uint64_t>(round)) % static_cast<std::uint64_t>(period);
}

int value_of(int phase, int rank, int ranks) {
    return rank < givers(ranks) ? (phase + rank) % period(ranks) : 0;
}

/// By phase: the sum over ranks [first, end).
std::vector<float> table_of(int first, int end, int ranks) {
    std::vector<float> table;
    for (int phase = 0; phase < period(ranks); ++phase) {
        int value = 0;
        for (int rank = first; rank < end; ++rank) value += value_of(phase, rank, ranks);
        table.push_back(static_cast<float>(value));
    }
    return table;
}

}  // namespace

int mpi_thread_level() {
    constexpr std::array levels{
        MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    int initialized = 0, level = MPI_THREAD_MULTIPLE;
    check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
    if (initialized != 0) check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
    return static_cast<int>(std::ranges::find(levels, level) - levels.begin());
}

int tournament_rounds(int ranks) {
    return ranks < 2 ? 0 : ranks - 1 + ranks % 2;
}

int tournament_peer(int rank, int round, int ranks) {
    const int circle = tournament_rounds(ranks);  // odd; the one beyond it sits in the middle
    int peer = (2 * round - rank) % circle;
    if (peer < 0) peer += circle;
    if (rank == circle) peer = round;
    if (rank < circle && peer == rank) peer = circle;
    return peer < ranks ? peer : -1;
}

std::vector<LinkSpeed> measure_link_speeds(const Communicator& ranks, std::size_t bytes) {
    std::vector<LinkSpeed> speeds;
    std::vector<std::byte> out(bytes), in(bytes);
    for (int round = 0; round < tournament_rounds(ranks.size()); ++round) {
        const int peer = tournament_peer(ranks.rank(), round, ranks.size());
        ranks.barrier();
        if (peer < 0) continue;
        double best = std::numeric_limits<double>::infinity();
        for (int i = 0; i < repetitions; ++i)
            best = std::min(best, seconds_of_exchange(ranks, peer, out, in));
        speeds.push_back({peer, static_cast<double>(bytes) / std::max(best, 1e-9)});
    }
    return speeds;
}

ClockOffset measure_clock_offset(const Communicator& ranks,
                                 const Communicator& node,
                                 const std::function<double()>& clock) {
    const Communicator leaders = ranks.split(node.is_root() ? 0 : 1);
    ClockOffset offset;
    if (node.is_root() && leaders.is_root())
        serve(leaders, clock);
    else if (node.is_root())
        offset = ask(leaders, clock);
    // At most one rank of a node has another value than 0.
    std::array<double, 2> known = {offset.ahead_s, offset.error_s};
    node.all_reduce_sum(known);
    return {known[0], known[1]};
}

std::span<const SumMethod> all_sum_methods() {
    static constexpr std::array methods = {SumMethod::lockstep,
                                           SumMethod::ring,
                                           SumMethod::recursive_doubling,
                                           SumMethod::tree,
                                           SumMethod::parameter_server,
                                           SumMethod::open_mpi};
    return methods;
}

std::string_view name_of(SumMethod method) {
    constexpr std::array<std::string_view, 6> names = {
        "lockstep", "ring", "recursive-doubling", "tree", "parameter-server", "open-mpi"};
    return names[static_cast<std::size_t>(method)];
}

Measurements measure(const Communicator& ranks, const MeasurePlan& plan) {
    return Measuring(ranks, plan).run();
}

Measurements worst_of(const Communicator& groups, const Measurements& mine) {
    std::vector<std::int64_t> ps, wrong;
    for (const Measurement& row : mine.rows) {
        ps.push_back(std::llround(1e12 * row.best_s));
        ps.push_back(std::llround(1e12 * row.median_s));
        wrong.push_back(static_cast<std::int64_t>(row.wrong.value_or(0)));
    }
    groups.all_reduce_max(ps);
    groups.all_reduce_sum(wrong);
    Measurements worst = mine;
    for (std::size_t i = 0; i < worst.rows.size(); ++i) {
        worst.rows[i].best_s = 1e-12 * static_cast<double>(ps[2 * i]);
        worst.rows[i].median_s = 1e-12 * static_cast<double>(ps[2 * i + 1]);
        if (worst.rows[i].wrong) worst.rows[i].wrong = static_cast<std::uint64_t>(wrong[i]);
    }
    return worst;
}

double algorithm_gb_per_s(std::size_t bytes, double seconds) {
    return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}

double bus_gb_per_s(std::size_t bytes, double seconds, int ranks) {
    return algorithm_gb_per_s(bytes, seconds) * 2 * (ranks - 1) / ranks;
}

double shared_memory_bytes(std::size_t bytes, int ranks) {
    return static_cast<double>(bytes) * (ranks + 1);
}

double fraction_of(const MemoryLimit& limit, double seconds, int ranks) {
    return shared_memory_bytes(limit.bytes, ranks) / seconds / limit.bytes_per_s;
}

std::vector<std::size_t> size_steps(std::size_t min_bytes, std::size_t max_bytes, double factor) {
    expect(min_bytes > 0 && factor > 1, "sizes grow");
    std::vector<std::size_t> sizes;
    for (double size = static_cast<double>(min_bytes); size <= static_cast<double>(max_bytes);
         size *= factor) {
        const std::size_t whole = std::max<std::size_t>(static_cast<std::size_t>(size) / 8, 1) * 8;
        if (sizes.empty() || whole != sizes.back()) sizes.push_back(whole);
    }
    return sizes;
}

void fill_exact(std::span<float> data, int rank, int ranks, int round) {
    const std::vector<float> table = table_of(rank, rank + 1, ranks);
    for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = table[phase_of(i, round, period(ranks))];
}

std::uint64_t count_wrong(std::span<const float> data, int ranks, int round) {
    const std::vector<float> table = table_of(0, ranks, ranks);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < data.size(); ++i)
        wrong += data[i] != table[phase_of(i, round, period(ranks))];
    return wrong;
}

}  // namespace lockstep
