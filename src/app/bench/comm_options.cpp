// SPDX-License-Identifier: Apache-2.0
#include "bench/comm_options.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::vector<std::string> algorithm_names() {
    std::vector<std::string> names;
    for (const Algorithm algorithm : all_algorithms()) names.emplace_back(name_of(algorithm));
    return names;
}

Algorithm algorithm_named(const std::string& name, const GivenValue& given) {
    for (const Algorithm algorithm : all_algorithms())
        if (name_of(algorithm) == name) return algorithm;
    const std::string nearest = did_you_mean(name, algorithm_names());
    throw Error("E103",
                fmt::format("--algo is '{}' (from {})", given.text, given.origin),
                fmt::format("no algorithm is named '{}'", name),
                nearest.empty() ? "see --help" : nearest);
}

std::vector<Algorithm> parse_algorithms(const GivenValue& given) {
    std::vector<Algorithm> algorithms;
    if (given.text == "all") return algorithms;
    for (const std::string& name : split(given.text, ',')) {
        const Algorithm found = algorithm_named(name, given);
        if (std::ranges::find(algorithms, found) == algorithms.end()) algorithms.push_back(found);
    }
    return algorithms;
}

Option algorithms_option(std::vector<Algorithm>& target) {
    return {"algo",
            "NAME[,NAME]",
            "all",
            fmt::format("all, or some of {}", fmt::join(algorithm_names(), ", ")),
            OptionKind::text,
            [&target](auto& given) { target = parse_algorithms(given); }};
}

std::vector<Choice<RankSplit>> split_choices() {
    std::vector<Choice<RankSplit>> choices;
    for (const RankSplit split : {RankSplit::all, RankSplit::intra, RankSplit::inter})
        choices.emplace_back(split_name(split), split);
    return choices;
}

std::vector<Choice<std::optional<DataType>>> type_choices() {
    std::vector<Choice<std::optional<DataType>>> choices;
    for (const DataType type : all_data_types()) choices.emplace_back(name_of(type), type);
    choices.emplace_back("all", std::nullopt);
    return choices;
}

OptionSection sizes(BenchOptions& o) {
    return {"Sizes",
            {with_letter("b", bytes_option("min-bytes", o.min_bytes, "smallest buffer", 8)),
             with_letter("e", bytes_option("max-bytes", o.max_bytes, "largest buffer", 8)),
             with_letter("f", real_option("factor", o.factor, 1.01, 1e6, "from size to size"))}};
}

OptionSection what(BenchOptions& o) {
    return {
        "What is measured",
        {with_letter("a", algorithms_option(o.algorithms)),
         with_letter("d", choice_option("type", o.type, type_choices(), "of the elements")),
         flag_option("in-window",
                     o.in_window,
                     "buffers in the memory that an algorithm lends (the default)"),
         flag_option(
             "private-memory", o.private_memory, "buffers in each process's own memory instead"),
         choice_option("split",
                       o.split,
                       split_choices(),
                       "all ranks together; those of each node, all nodes at once; or one rank "
                       "of each node")}};
}

OptionSection how(BenchOptions& o) {
    return {"How",
            {with_letter("n",
                         whole_option("iterations",
                                      o.iterations,
                                      0,
                                      1'000'000,
                                      "all-reduces in a timed block; 0: as many as fill 5 ms")),
             with_letter(
                 "w", whole_option("warmup", o.warmup, 0, 1'000'000, "untimed ones of each size")),
             whole_option("rounds", o.rounds, 1, 1000, "blocks of each size; algorithms alternate"),
             with_letter("c",
                         whole_option("check",
                                      o.checks,
                                      0,
                                      1000,
                                      "all-reduces of each size whose sum is compared exactly")),
             flag_option(
                 "fit", o.fit, "fit the cost model's constants and show how well they predict")}};
}

OptionSection output(BenchOptions& o) {
    return {"Output",
            {flag_option("json", o.json, "one JSON object instead of tables"),
             real_option("min-busbw",
                         o.min_busbw,
                         0,
                         1e6,
                         "fail unless every algorithm's best bus bandwidth is so many GB/s")}};
}

OptionSection ranks(BenchOptions& o) {
    return {"Ranks",
            {whole_option(
                 "np", o.np, 0, 65536, "outside mpirun and srun: start N ranks on this machine"),
             flag_option("oversubscribe", o.oversubscribe, "allow more ranks than cores")}};
}

}  // namespace

std::string_view split_name(RankSplit split) {
    constexpr std::string_view names[] = {"all", "intra", "inter"};
    return names[static_cast<int>(split)];
}

OptionTable bench_option_table(BenchOptions& options) {
    return {sizes(options), what(options), how(options), output(options), ranks(options)};
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
    check(!options.in_window || !options.private_memory, [] {
        return Error("E106",
                     "--in-window and --private-memory are both given",
                     "buffers lie in one of them",
                     "drop one; a second call measures the other");
    });
}

}  // namespace lockstep
