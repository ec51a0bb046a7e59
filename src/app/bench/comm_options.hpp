// SPDX-License-Identifier: Apache-2.0
// The options of `lockstep bench comm`: nccl-tests' names where they exist.
#pragma once

#include "lockstep/comm/measure.hpp"

#include "options.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The ranks that reduce together.
enum class RankSplit { all, intra, inter };
std::string_view split_name(RankSplit split);  ///< the enumerator's name

/// All values of the command line of `bench comm`.
struct BenchOptions {
    std::uint64_t min_bytes = 8, max_bytes = 256u << 20;
    double factor = 2;
    int iterations = 0, warmup = 5, rounds = 5, checks = 1;
    std::vector<std::string> beside = {"open-mpi"};
    RankSplit split = RankSplit::all;
    double min_busbw = 0;
    bool json = false;
    int np = 0;  ///< 0: not given
    bool oversubscribe = false;
};

/// Returns the table that fills `options`, which must outlive it.
OptionTable bench_option_table(BenchOptions& options);

/// Checks the combination of options. Errors: E106.
void check_bench_options(const BenchOptions& options);

}  // namespace lockstep
