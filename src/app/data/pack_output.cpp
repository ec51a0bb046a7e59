// SPDX-License-Identifier: Apache-2.0
#include "data/pack_output.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/signals.hpp"

#include <fmt/format.h>

namespace lockstep {

OptionTable pack_output_table(PackArguments& arguments, const std::string& seed_name) {
    return {data_set_group(arguments.pack, arguments.restart),
            rows_group(arguments.pack, arguments.keep_order),
            {"Shuffling",
             {whole_option(
                 seed_name, arguments.shuffle_seed, {0, 1LL << 62}, "seed of the shuffling")}}};
}

void check_output_given(const PackArguments& arguments) {
    check_given(!arguments.pack.output.empty(), "out");
    check_is_free(arguments.pack.output);
}

void pack_rows(const RowSource& source,
               PackArguments& arguments,
               const Communicator& ranks,
               Progress& progress) {
    PackOptions& options = arguments.pack;
    options.shuffle_seed.reset();
    if (!arguments.keep_order) options.shuffle_seed = arguments.shuffle_seed;
    options.leftovers = arguments.restart ? Leftovers::discard : Leftovers::resume;
    options.team = team_of(ranks);
    const SignalGuard signals;
    const PackResult result = pack_dataset(source, options, pack_report("packing", progress));
    progress.finish();
    if (ranks.is_root()) say_packed("packed", result);
}

std::function<void(const PackProgress&)> pack_report(const std::string& doing, Progress& progress) {
    return [doing, &progress](const PackProgress& at) {
        stop_if_asked(doing);
        const bool bytes = at.stage == "verify";
        progress.update(
            at.stage, at.done, at.total, bytes ? ProgressUnit::bytes : ProgressUnit::count);
    };
}

void say_packed(const std::string& done, const PackResult& result) {
    print_once(fmt::format("{} {} samples into {} ({} in {} shard(s), {})\n",
                           done,
                           grouped(result.manifest.samples),
                           result.path.string(),
                           bytes_text(result.stored_bytes),
                           result.manifest.shards.size(),
                           codec_name(result.manifest.codec)));
}

Team team_of(const Communicator& ranks) {
    return {ranks.rank(), ranks.size(), [&ranks](const std::string& bytes) {
                return ranks.all_gather(bytes);
            }};
}

void stop_if_asked(const std::string& doing) {
    check(stop_requested() == StopRequest::none, [&] {
        return Error("E242",
                     fmt::format("{} was interrupted", doing),
                     "a signal ended it; finished parts are kept",
                     "give the same command again to continue");
    });
}

}  // namespace lockstep
