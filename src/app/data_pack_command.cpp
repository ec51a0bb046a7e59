// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/pack.hpp"

#include "command.hpp"
#include "staged_progress.hpp"

#include <memory>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct PackArguments {
    PackOptions pack;
    std::string codec = "none";
    std::uint64_t seed = 0;
    bool keep_order = false;
};

int pack(PackArguments& arguments) {
    PackOptions& options = arguments.pack;
    const auto need = [](bool given, const char* name) {
        check(given, [&] {
            return Error("E105", fmt::format("--{} is missing", name), "", "see --help");
        });
    };
    need(!options.images.empty(), "images");
    need(!options.labels.empty(), "labels");
    need(!options.output.empty(), "out");
    options.codec = parse_codec(arguments.codec);
    options.shuffle_seed.reset();
    if (!arguments.keep_order) options.shuffle_seed = arguments.seed;
    StagedProgress progress;
    const PackResult result = pack_dataset(options, [&](const PackProgress& at) {
        const bool bytes = at.stage == "verify";
        progress.update(
            at.stage, at.done, at.total, bytes ? ProgressUnit::bytes : ProgressUnit::count);
    });
    progress.finish();
    print_once(fmt::format("packed {} samples into {} ({} in {} shard(s), {})\n",
                           grouped(result.manifest.samples),
                           result.path.string(),
                           bytes_text(result.stored_bytes),
                           result.manifest.shards.size(),
                           codec_name(result.manifest.codec)));
    return 0;
}

}  // namespace

Command data_pack_command() {
    auto arguments = std::make_shared<PackArguments>();
    PackOptions& pack_options = arguments->pack;
    return {
        .name = "data pack",
        .summary = "pack IDX files into HDF5 shards",
        .usage = "lockstep data pack --images FILE --labels FILE --out DIR [options]",
        .text =
            "Writes a data set that 'lockstep train' streams: HDF5 shards with hashes and a\n"
            "manifest. Rows are shuffled once while packing. What is written is read back and\n"
            "verified; an interrupted pack leaves nothing and can simply be run again.\n\n"
            "Example:\n"
            "  lockstep data pack --images train-images-idx3-ubyte.gz \\\n"
            "      --labels train-labels-idx1-ubyte.gz --out data/fashion/train\n",
        .table =
            {{"Input",
              {path_option("images", "FILE", pack_options.images, "IDX images (u8), gzip or not"),
               path_option("labels", "FILE", pack_options.labels, "IDX labels (u8), gzip or not"),
               whole_option("classes",
                            pack_options.classes,
                            0,
                            1'000'000,
                            "expected number of classes; 0: largest label + 1")}},
             {"Output",
              {path_option("out", "DIR", pack_options.output, "new folder of the data set"),
               text_option("name", "NAME", pack_options.name, "of the shards; unset: of DIR"),
               text_option("split", "NAME", pack_options.split, "train, test, ..."),
               choice_option(
                   "codec", arguments->codec, {"none", "deflate", "lz4", "zstd"}, "compression"),
               whole_option("level", pack_options.level, 0, 22, "of the codec; 0: its usual one"),
               whole_option("shards",
                            pack_options.shards,
                            0,
                            100'000,
                            "number of files; 0: about 512 MiB each"),
               whole_option("block-rows",
                            pack_options.block_rows,
                            0,
                            1 << 30,
                            "rows hashed and compressed together; 0: at most 512 KiB"),
               whole_option("seed", arguments->seed, 0, 1LL << 62, "of the shuffling"),
               flag_option("keep-order", arguments->keep_order, "do not shuffle")}}},
        .run = [arguments](const Invocation&) { return pack(*arguments); }};
}

}  // namespace lockstep
