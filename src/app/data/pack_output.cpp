// SPDX-License-Identifier: Apache-2.0
#include "data/pack_output.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/signals.hpp"

#include "data/team.hpp"

#include <fmt/format.h>

namespace lockstep {

OptionSection pack_output_section(PackArguments& arguments, const std::string& seed_name) {
    PackOptions& o = arguments.pack;
    std::vector<Option> layout = data_set_options(o);
    layout.insert(layout.begin() + 2,
                  text_option("split", "NAME", o.split, "part of the data: train, test, ..."));
    return {"Output",
            joined(std::move(layout),
                   {whole_option("block-rows",
                                 o.block_rows,
                                 0,
                                 1 << 30,
                                 "rows per block; 0: at most 512 KiB. It decides the order in "
                                 "training; shards and codec do not"),
                    whole_option(
                        seed_name, arguments.shuffle_seed, 0, 1LL << 62, "seed of the shuffling"),
                    flag_option("keep-order", arguments.keep_order, "do not shuffle the rows")})};
}

OptionSection pack_how_section(PackArguments& arguments) {
    return {"How",
            {threads_option(arguments.pack.threads),
             flag_option("restart",
                         arguments.restart,
                         "discard the shards of an unfinished pack instead of continuing it")}};
}

void check_output_given(const PackArguments& arguments) {
    check(!arguments.pack.output.empty(),
          [] { return Error("E105", "--out is missing", "", "see --help"); });
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
    const PackResult result = pack_dataset(source, options, [&](const PackProgress& at) {
        stop_if_asked("packing");
        const bool bytes = at.stage == "verify";
        progress.update(
            at.stage, at.done, at.total, bytes ? ProgressUnit::bytes : ProgressUnit::count);
    });
    progress.finish();
    if (!ranks.is_root()) return;
    print_once(fmt::format("packed {} samples into {} ({} in {} shard(s), {})\n",
                           grouped(result.manifest.samples),
                           result.path.string(),
                           bytes_text(result.stored_bytes),
                           result.manifest.shards.size(),
                           codec_name(result.manifest.codec)));
}

}  // namespace lockstep
