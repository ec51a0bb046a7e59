// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/ranks_text.hpp"
#include "lockstep/run/trace.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "output_place.hpp"

#include <memory>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* merge_help =
    R"(Merges the traces of all ranks, which 'train --trace' wrote, into one JSON file for
https://ui.perfetto.dev and chrome://tracing. Times are those of rank 0's clock; a run measures the
offsets of the nodes' clocks when it starts. The file has a process for each rank, with a track for
its steps and their phases, and one for each bucket of gradients. Arrows lead from each sum to the same
sum on the next rank.

It reads the run directory alone, one rank at a time.

Examples:
  lockstep train --data D/train --run runs/a --np 4 --trace steps=50-60
  lockstep trace merge runs/a
  lockstep trace merge runs/a --out a.json
)";

struct MergeOptions {
    fs::path out;
    std::int64_t incarnation = 0;
};

std::string text_of(const MergedTraces& merged, const std::string& run) {
    std::string text = fmt::format("{}, start {}: {} of {} rank(s), {} slices",
                                   printable(run),
                                   merged.incarnation,
                                   trace_steps_text(merged.steps),
                                   merged.ranks.size(),
                                   grouped(merged.slices));
    if (merged.error_s > 0)
        text += fmt::format(" | clocks corrected by up to {:.3f} s, within {:.3f} ms",
                            merged.correction_s,
                            merged.error_s * 1e3);
    text += "\n";
    if (!merged.missing.empty())
        text += fmt::format("no trace of {}\n", ranks_text(merged.missing));
    if (merged.dropped > 0)
        text += fmt::format(
            "{} slices were not kept: a rank keeps {}, and --flight-entries collectives of a "
            "step\n",
            grouped(static_cast<std::uint64_t>(merged.dropped)),
            grouped(StepTrace::most_slices));
    return text + fmt::format("written: {}\n", printable(merged.file.string()));
}

int merge(const MergeOptions& options, const std::string& run) {
    if (!options.out.empty()) check_output_place(options.out);
    const MergedTraces merged = merge_traces(run, options.incarnation, options.out);
    print_once(text_of(merged, run));
    print_once("next: open it at https://ui.perfetto.dev, which keeps it in your browser\n");
    return 0;
}

}  // namespace

Command trace_merge_command() {
    auto options = std::make_shared<MergeOptions>();
    return {
        .name = "trace merge",
        .summary = "merge the traces of all ranks into one file for Perfetto",
        .usage = "lockstep trace merge RUN [--out FILE] [--incarnation N]",
        .text = merge_help,
        .table = {{"Options",
                   {path_option(
                        "out", "FILE", options->out, "file to write; unset: RUN/trace-iN.json"),
                    incarnation_option(
                        options->incarnation,
                        "start whose traces are merged; 0: the newest that has traces")}}},
        .positionals = 1,
        .run = [options](const Invocation& call) { return merge(*options, call.positionals[0]); }};
}

}  // namespace lockstep
