// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/measure.hpp"

#include "lockstep/core/clock.hpp"

#include "collectives/private_memory.hpp"
#include "collectives/sum_kernels.hpp"
#include "measure/exact_pattern.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

namespace lockstep {
namespace {

constexpr double most_iterations = 20000;

/// What takes turns: an algorithm on its buffer, or the memory limit.
struct Contestant {
    std::byte* buffer = nullptr;
    std::function<void(std::size_t count, DataType type)> run;
};

/// Everything that is set up once for a plan.
class Measuring {
  public:
    Measuring(const Communicator& ranks, const MeasurePlan& plan) : ranks_(ranks), plan_(plan) {
        const std::size_t bytes = plan.sizes.back();
        for (const Algorithm algorithm : plan.algorithms) {
            AllReduce& reduce =
                *algorithms_.emplace_back(make_all_reduce(ranks.duplicate(), algorithm));
            contestants_.push_back(contestant(reduce, bytes));
            if (algorithm == Algorithm::shared_memory && plan.place == BufferPlace::lent)
                add_limit(contestants_.back().buffer);
        }
        if (has_limit_) contestants_.push_back(limit_);
    }

    Measurements run() {
        Measurements all;
        for (const DataType type : plan_.types)
            for (const std::size_t bytes : plan_.sizes) {
                if (plan_.on_size) plan_.on_size(bytes, type);
                run_size(bytes, type, all);
            }
        return all;
    }

  private:
    /// Algorithms without a window share one buffer: they never run at the same time.
    Contestant contestant(AllReduce& reduce, std::size_t bytes) {
        const bool has_window = dynamic_cast<Collectives*>(&reduce) != nullptr;
        const auto run = [&reduce](std::byte* buffer) {
            return [&reduce, buffer](std::size_t count, DataType type) {
                reduce.all_reduce(buffer, count, type);
            };
        };
        if (has_window && plan_.place == BufferPlace::lent) {
            std::byte* buffer = reduce.lend(bytes);
            return {buffer, run(buffer)};
        }
        if (own_ == nullptr) own_ = own_memory_.lend(bytes);
        return {own_, run(own_)};
    }

    /// Each rank adds the halves of its own buffer and writes the sum to both: as many bytes read
    /// and written, in the same mix, as an all-reduce over shared memory, but nobody to wait for.
    void add_limit(std::byte* buffer) {
        has_limit_ = true;
        limit_ = {buffer, [buffer](std::size_t count, DataType type) {
                      constexpr std::array merges = {0, 1};
                      std::byte* const other = buffer + count / 2 * size_of(type);
                      const std::array<const void*, 2> inputs = {buffer, other};
                      const std::array<void*, 2> outputs = {buffer, other};
                      sum_into(type, merges, inputs, outputs, count / 2);
                  }};
    }

    void run_size(std::size_t bytes, DataType type, Measurements& all) {
        const std::size_t count = bytes / size_of(type);
        const std::vector<std::int64_t> wrong = check_all(count, type);
        const std::vector<int> iterations = warm_up(count, type);
        const std::vector<std::vector<double>> seconds = time_all(count, type, iterations);
        for (std::size_t i = 0; i < contestants_.size(); ++i) {
            const double best = seconds[i].front(), median = seconds[i][seconds[i].size() / 2];
            if (i < plan_.algorithms.size())
                all.rows.push_back(
                    {plan_.algorithms[i], type, bytes, count, best, median, wrong_of(wrong[i])});
            else if (type == DataType::float32)
                all.limits.push_back({bytes, limit_bytes(bytes) / best});
        }
    }

    std::optional<std::uint64_t> wrong_of(std::int64_t wrong) const {
        if (plan_.checks == 0) return {};
        return static_cast<std::uint64_t>(wrong);
    }

    /// All of every rank's buffer is read once and written once.
    double limit_bytes(std::size_t bytes) const {
        return 2.0 * static_cast<double>(bytes) * ranks_.size();
    }

    std::vector<std::int64_t> check_all(std::size_t count, DataType type) {
        std::vector<std::int64_t> wrong(contestants_.size());
        for (std::size_t i = 0; i < plan_.algorithms.size(); ++i) {
            Contestant& one = contestants_[i];
            for (int round = 0; round < plan_.checks; ++round) {
                fill_exact(one.buffer, count, type, ranks_.rank(), ranks_.size(), round);
                one.run(count, type);
                wrong[i] += static_cast<std::int64_t>(
                    count_wrong(one.buffer, count, type, ranks_.size(), round));
            }
            std::memset(one.buffer, 0, count * size_of(type));  // sums of zeros never overflow
        }
        ranks_.all_reduce_sum(wrong);
        return wrong;
    }

    /// How many all-reduces make a block, by contestant.
    std::vector<int> warm_up(std::size_t count, DataType type) {
        std::vector<std::int64_t> ns;
        for (Contestant& one : contestants_) {
            (void)time_block(one, count, type, std::max(plan_.warmup - 1, 0));
            ns.push_back(std::llround(1e9 * time_block(one, count, type, 1)));
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

    /// Seconds of one all-reduce, by contestant, ascending over rounds.
    std::vector<std::vector<double>> time_all(std::size_t count,
                                              DataType type,
                                              const std::vector<int>& iterations) {
        const auto rounds = static_cast<std::size_t>(plan_.rounds);
        std::vector<std::int64_t> ns(contestants_.size() * rounds);
        for (std::size_t round = 0; round < rounds; ++round)
            for (std::size_t i = 0; i < contestants_.size(); ++i)
                ns[i * rounds + round] =
                    std::llround(1e9 * time_block(contestants_[i], count, type, iterations[i]));
        ranks_.all_reduce_max(ns);
        std::vector<std::vector<double>> seconds(contestants_.size());
        for (std::size_t i = 0; i < contestants_.size(); ++i) {
            for (std::size_t round = 0; round < rounds; ++round)
                seconds[i].push_back(1e-9 * static_cast<double>(ns[i * rounds + round]) /
                                     iterations[i]);
            std::ranges::sort(seconds[i]);
        }
        return seconds;
    }

    double time_block(Contestant& one, std::size_t count, DataType type, int iterations) {
        ranks_.barrier();
        const double begin = now_s();
        for (int i = 0; i < iterations; ++i) one.run(count, type);
        return now_s() - begin;
    }

    const Communicator ranks_;
    const MeasurePlan& plan_;
    std::vector<std::unique_ptr<AllReduce>> algorithms_;
    PrivateMemory own_memory_;
    std::byte* own_ = nullptr;
    std::vector<Contestant> contestants_;  ///< by algorithm, then perhaps the limit
    Contestant limit_;
    bool has_limit_ = false;
};

}  // namespace

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

}  // namespace lockstep
