// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/inspect.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/verify.hpp"
#include "lockstep/observe/progress.hpp"

#include "command.hpp"

#include <memory>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Progress of something that comes in stages.
class StagedProgress {
  public:
    void update(std::string_view stage,
                std::uint64_t done,
                std::uint64_t total,
                ProgressUnit unit) {
        if (stage != stage_) {
            if (progress_) progress_->finish();
            progress_ = std::make_unique<Progress>(std::string(stage), total, unit);
            stage_ = stage;
        }
        progress_->update(done);
    }
    void finish() {
        if (progress_) progress_->finish();
    }

  private:
    std::string stage_;
    std::unique_ptr<Progress> progress_;
};

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

int verify(const std::string& folder) {
    StagedProgress progress;
    const auto findings = verify_dataset(folder, [&](const VerifyProgress& at) {
        progress.update("verify", at.done, at.total, ProgressUnit::bytes);
    });
    progress.finish();
    if (findings.empty()) {
        print_once(fmt::format("'{}' is whole\n", folder));
        return 0;
    }
    constexpr std::size_t shown = 8;
    for (std::size_t i = 0; i < std::min(shown, findings.size()); ++i)
        print_once(fmt::format("{} {}\n", findings[i].code, printable(findings[i].text)));
    throw Error(findings.front().code,
                fmt::format("'{}' is damaged: {} finding(s)", folder, findings.size()),
                findings.size() > shown ? "the first are listed above" : "they are listed above",
                "restore the named files from their source, or pack again");
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

Command data_inspect_command() {
    return {.name = "data inspect",
            .summary = "show what a data set holds",
            .usage = "lockstep data inspect DIR",
            .text = "Fields, shapes, sizes, compression, statistics and classes.\n",
            .positionals = 1,
            .run = [](const Invocation& call) {
                print_once(describe_dataset(DatasetIndex::open(call.positionals[0])));
                return 0;
            }};
}

Command data_verify_command() {
    return {.name = "data verify",
            .summary = "check every byte of a data set",
            .usage = "lockstep data verify DIR",
            .text =
                "Reads all shards, compares all hashes, decodes all blocks, checks labels.\n"
                "Names shard, field, block and offset of any damage.\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return verify(call.positionals[0]); }};
}

}  // namespace lockstep
