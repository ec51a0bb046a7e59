// SPDX-License-Identifier: Apache-2.0
// The options of `lockstep bench comm`: nccl-tests' where it has one.
#pragma once

#include "lockstep/comm/measure.hpp"

#include "options.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

/// Which ranks reduce together.
enum class RankSplit { all, intra, inter };
std::string_view split_name(RankSplit split);  ///< the enumerator's word

/// Everything the command line of `bench comm` sets.
struct BenchOptions {
    std::uint64_t min_bytes = 8, max_bytes = 256u << 20;
    double factor = 2;
    int iterations = 0, warmup = 5, rounds = 5, checks = 1;
    std::vector<SumMethod> beside = {SumMethod::open_mpi};
    RankSplit split = RankSplit::all;
    double min_busbw = 0;
    bool json = false;
    int np = 0;  ///< 0: not given
    bool oversubscribe = false;
};

/// The table that fills `options`, which must outlive it.
OptionTable bench_option_table(BenchOptions& options);

/// Errors: E106 for options that do not go together.
void check_bench_options(const BenchOptions& options);

}  // namespace lockstep
