// SPDX-License-Identifier: Apache-2.0
#include "bench/comm_options.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "option_groups.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::vector<std::string> names_beside() {
    std::vector<std::string> names{"all", "none"};
    for (const SumMethod method : all_sum_methods().subspan(1)) names.emplace_back(name_of(method));
    return names;
}

std::vector<Choice<RankSplit>> split_choices() {
    std::vector<Choice<RankSplit>> choices;
    for (const RankSplit split : {RankSplit::all, RankSplit::intra, RankSplit::inter})
        choices.emplace_back(split_name(split), split);
    return choices;
}

OptionSection sizes(BenchOptions& o) {
    return {
        "Sizes",
        {with_letter("b", bytes_option("min-bytes", o.min_bytes, "smallest buffer", 8)),
         with_letter("e", bytes_option("max-bytes", o.max_bytes, "largest buffer", 8)),
         with_letter(
             "f", real_option("factor", o.factor, 1.01, 1e6, "factor from one size to the next"))}};
}

OptionSection what(BenchOptions& o) {
    return {"What is measured",
            {with_letter("a",
                         some_option("beside",
                                     o.beside,
                                     names_beside(),
                                     fmt::format("all-reduces to compare with: {}",
                                                 fmt::join(names_beside(), ", ")))),
             choice_option("split",
                           o.split,
                           split_choices(),
                           "which ranks sum together: all; intra, those of each node; inter, one "
                           "rank of each node")}};
}

OptionSection how(BenchOptions& o) {
    return {
        "How",
        {with_letter("n",
                     whole_option("iterations",
                                  o.iterations,
                                  0,
                                  1'000'000,
                                  "sums in a timed block; 0: as many as fill 5 ms")),
         with_letter("w",
                     whole_option("warmup", o.warmup, 0, 1'000'000, "untimed sums of each size")),
         whole_option(
             "rounds", o.rounds, 1, 1000, "timed blocks of each size; the all-reduces take turns"),
         with_letter(
             "c",
             whole_option(
                 "check", o.checks, 0, 1000, "sums of each size that are checked exactly"))}};
}

OptionSection output(BenchOptions& o) {
    return {"Output",
            {real_option("min-busbw",
                         o.min_busbw,
                         0,
                         1e6,
                         "fail if Lockstep's best bus bandwidth is below this, in GB/s")}};
}

}  // namespace

std::string_view split_name(RankSplit split) {
    constexpr std::string_view names[] = {"all", "intra", "inter"};
    return names[static_cast<int>(split)];
}

OptionTable bench_option_table(BenchOptions& options) {
    return {sizes(options),
            what(options),
            how(options),
            output(options),
            json_group(options.json),
            ranks_section(options.np, options.oversubscribe)};
}

void check_bench_options(const BenchOptions& options) {
    check(options.min_bytes <= options.max_bytes, [&] {
        return Error("E106",
                     fmt::format("--min-bytes {} is more than --max-bytes {}",
                                 bytes_text(options.min_bytes),
                                 bytes_text(options.max_bytes)),
                     "sizes go from the smallest to the largest",
                     fmt::format("for example -b {} -e {}", options.max_bytes, options.min_bytes));
    });
}

}  // namespace lockstep
