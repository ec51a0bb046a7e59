// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/pack.hpp"

#include "command.hpp"
#include "data/pack_output.hpp"
#include "option_groups.hpp"

#include <memory>

namespace lockstep {
namespace {

constexpr std::int64_t no_seed = -1;

struct ReshardArguments {
    PackOptions pack;
    std::int64_t seed = no_seed;
    std::uint64_t memory = std::uint64_t{1} << 30;
    bool restart = false;
};

void reshard(const std::string& input, ReshardArguments& arguments, const Communicator& ranks) {
    PackOptions& options = arguments.pack;
    check_given(!options.output.empty(), "out");
    options.split.clear();
    options.shuffle_seed.reset();
    if (arguments.seed != no_seed)
        options.shuffle_seed = static_cast<std::uint64_t>(arguments.seed);
    options.leftovers = arguments.restart ? Leftovers::discard : Leftovers::resume;
    options.team = team_of(ranks);
    const auto index = together(options.team, [&] {
        check_is_packed(input);
        return std::make_shared<const DatasetIndex>(DatasetIndex::open(input));
    });
    const SignalGuard signals;
    Progress progress;
    const PackResult result =
        reshard_dataset(index, options, arguments.memory, pack_report("resharding", progress));
    progress.finish();
    if (ranks.is_root()) say_packed("resharded", result);
}

OptionTable table_of(ReshardArguments& arguments) {
    PackOptions& options = arguments.pack;
    return {data_set_group(options, arguments.restart),
            {"Layout",
             {whole_option("block-rows",
                           options.block_rows,
                           0,
                           1 << 30,
                           "rows per block; 0: as in DIR. Another number changes the order in "
                           "training, and so the bits of a model"),
              whole_option("shuffle-seed",
                           arguments.seed,
                           no_seed,
                           1LL << 62,
                           "shuffle rows again; -1: keep their order"),
              bytes_option("memory", arguments.memory, "memory of each rank for shuffling")}}};
}

}  // namespace

Command data_reshard_command() {
    auto arguments = std::make_shared<ReshardArguments>();
    arguments->pack.threads = 0;
    return {
        .name = "data reshard",
        .summary = "write a data set in another layout",
        .usage = "lockstep data reshard DIR --out DIR [options]",
        .text =
            "The same samples in other shards, blocks or with another codec, in the same order\n"
            "unless --shuffle-seed is given. Another --block-rows is another order in training,\n"
            "hence a model of other bits; shards and codec change none. Streams in bounded\n"
            "memory; parallel, resumable, verified and atomic like 'data pack'. Shuffling needs\n"
            "room for one more copy beside the output.\n\n"
            "Example:\n"
            "  lockstep data reshard data/train --out data/train-lz4 --codec lz4 --shards 64\n",
        .table = table_of(*arguments),
        .positionals = 1,
        .run = [arguments](const Invocation& call) {
            const Communicator& ranks = call.process.ranks;
            agree(ranks, [&] { reshard(call.positionals[0], *arguments, ranks); });
            return 0;
        }};
}

}  // namespace lockstep
