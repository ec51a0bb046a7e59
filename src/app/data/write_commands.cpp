// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/manifest.hpp"

#include "command.hpp"
#include "data/pack_inputs.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Throws Error E242 if a signal asked this process to end; `doing` is "packing". For progress
/// callbacks while a SignalGuard is there.
void stop_if_asked(const std::string& doing) {
    check(stop_requested() == StopRequest::none, [&] {
        return Error("E242",
                     fmt::format("{} was interrupted", doing),
                     "a signal ended it; finished parts are kept",
                     "give the same command again to continue");
    });
}

/// What `data pack` and `data synth` write, and how.
struct PackArguments {
    PackOptions pack = {.shuffle_seed = {}, .threads = 0};
    std::uint64_t shuffle_seed = 0;
    bool keep_order = false, restart = false;
};

OptionSection rows_group(PackOptions& pack, bool& keep_order) {
    return {"Rows of a new data set",
            {text_option("split NAME", pack.split, "part of the data: train, test, ..."),
             whole_option("block-rows",
                          pack.block_rows,
                          {0, 1 << 30},
                          "rows per block; 0: at most 512 KiB. It decides the order in training; "
                          "shards and codec do not"),
             flag_option("keep-order", keep_order, "do not shuffle the rows")}};
}

/// What is written, how, and by whom. `seed_name` is what the seed of the shuffling is called.
OptionTable pack_output_table(PackArguments& arguments, const std::string& seed_name) {
    return {data_set_group(arguments.pack, arguments.restart),
            rows_group(arguments.pack, arguments.keep_order),
            {"Shuffling",
             {whole_option(
                 seed_name, arguments.shuffle_seed, {0, 1LL << 62}, "seed of the shuffling")}}};
}

/// Errors: E105 if --out is missing, E407 if it exists. Opening an input can take long: call this
/// before.
void check_output_given(const PackArguments& arguments) {
    check_given(!arguments.pack.output.empty(), "out");
    check_is_free(arguments.pack.output);
}

/// Prints what was written: `done` is "packed".
void say_packed(const std::string& done, const PackResult& result) {
    print_once(fmt::format("{} {} samples into {} ({} in {} shard(s), {})\n",
                           done,
                           grouped(result.manifest.samples),
                           result.path.string(),
                           bytes_text(result.stored_bytes),
                           result.manifest.shards.size(),
                           codec_name(result.manifest.codec)));
}

/// Collective. Packs on all `ranks`, shows progress, and reports the result. Errors: also E242 if a
/// signal ends it.
void pack_rows(const RowSource& source,
               PackArguments& arguments,
               const Communicator& ranks,
               Progress& progress) {
    PackOptions& options = arguments.pack;
    if (!arguments.keep_order) options.shuffle_seed = arguments.shuffle_seed;
    options.leftovers = arguments.restart ? Leftovers::discard : Leftovers::resume;
    options.team = team_of(ranks);
    const SignalGuard signals;
    const PackResult result = pack_dataset(source, options, pack_report("packing", progress));
    progress.finish();
    if (ranks.is_root()) say_packed("packed", result);
}

struct Arguments {
    PackInputs inputs;
    PackArguments output;
};

void pack(Arguments& arguments, const Communicator& ranks) {
    check_output_given(arguments.output);
    PackOptions& options = arguments.output.pack;
    if (options.classes == 0 && !arguments.inputs.text.empty()) options.classes = 256;  // of bytes
    Progress progress;
    const auto source = together(team_of(ranks), [&] {
        return open_inputs(
            arguments.inputs, options.split, [&](std::uint64_t done, std::uint64_t total) {
                progress.update("read", done, total, ProgressUnit::bytes);
            });
    });
    pack_rows(*source, arguments.output, ranks, progress);
}

constexpr const char* data_pack_help =
    "Writes a data set that 'lockstep train' streams: HDF5 shards with hashes and a\n"
    "manifest. Rows are shuffled once while packing. What is written is read back and\n"
    "verified. An interrupted pack keeps its finished shards in .NAME.partial beside DIR: the\n"
    "same command goes on from there. Under mpirun, ranks share the shards; the bytes are the\n"
    "same with any ranks and threads. Inputs that cannot be read at random (gzip, CSV, HDF5) are "
    "expanded into\n"
    "a nameless file in $TMPDIR first.\n\n"
    "Examples:\n"
    "  lockstep data pack --images train-images-idx3-ubyte.gz \\\n"
    "      --labels train-labels-idx1-ubyte.gz --out data/fashion/train\n"
    "  lockstep data pack --cifar10 cifar-10-batches-bin --split test --out data/cifar/test\n"
    "  lockstep data pack --folder photos --resize 224x224 --out data/photos\n"
    "  lockstep data pack --folder images --masks masks --resize 256x256 --out data/cells\n"
    "  lockstep data pack --csv iris.csv --label species --out data/iris\n"
    "  lockstep data pack --csv houses.csv --target price --drop id --categorical district \\\n"
    "      --missing mean --out data/houses\n"
    "  lockstep data pack --hdf5 scans.h5 --field images=/scan --field masks=/truth --out data/s\n"
    "  lockstep data pack --text books/*.txt --length 256 --out data/book\n";

struct SynthArguments {
    SynthOptions synth;
    PackArguments output;
};

void synthesize(SynthArguments& arguments, const Communicator& ranks) {
    check_output_given(arguments.output);
    const bool has_classes = arguments.synth.kind != SynthKind::regression;
    arguments.output.pack.classes = has_classes ? arguments.synth.classes : 0;
    Progress progress;
    pack_rows(*make_synthetic(arguments.synth), arguments.output, ranks, progress);
}

constexpr const char* data_synth_help =
    "Every sample is a function of seed and number: the same data set on any machine.\n"
    "  cifar          images u8 [3,SIZE,SIZE] and labels: a pattern per class, under noise\n"
    "  segmentation   images u8 [3,SIZE,SIZE] and masks u8 [SIZE,SIZE]: shapes, 0 is the ground\n"
    "  regression     features f32 [SIZE] and targets f32: a quadratic function, with noise\n"
    "  text           tokens u8 [SIZE+1]: a chain in which one or two decide most of the next\n\n"
    "Example:\n"
    "  lockstep data synth --kind cifar --samples 50000 --out data/made-up/train\n"
    "  lockstep data synth --kind cifar --samples 10000 --first 50000 --split test \\\n"
    "      --out data/made-up/test\n";

OptionSection samples_section(SynthOptions& synth) {
    return {
        "Samples",
        {enum_option("kind cifar|segmentation|regression|text", synth.kind, "kind of samples"),
         whole_option("samples", synth.samples, {1, std::int64_t{1} << 40}, "number of samples"),
         whole_option("first",
                      synth.first,
                      {0, std::int64_t{1} << 60},
                      "number of the first sample; a test set begins where the training data end"),
         whole_option("seed", synth.seed, {0, 1LL << 62}, "seed of the data"),
         whole_option("size",
                      synth.size,
                      {1, 65536},
                      "height and width of images, features of regression, or tokens of text"),
         whole_option("classes",
                      synth.classes,
                      {2, 255},
                      "classes of labels or masks; vocabulary of text")}};
}

constexpr std::int64_t no_seed = -1;

struct ReshardArguments {
    PackOptions pack = {.split = "", .shuffle_seed = {}, .threads = 0};
    std::int64_t seed = no_seed;
    std::uint64_t memory = std::uint64_t{1} << 30;
    bool restart = false;
};

void reshard(const std::string& input, ReshardArguments& arguments, const Communicator& ranks) {
    PackOptions& options = arguments.pack;
    check_given(!options.output.empty(), "out");
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

struct StageArguments {
    StageOptions stage;
    bool checks_hashes = false, removes = false;
};

// The communicators of a StageTeam, which refers to them.
class StageRanks {
  public:
    explicit StageRanks(const Communicator& all) : all_(all), node_(all.split_by_node()) {
        const std::string mine = node_.all_gather(std::to_string(all.rank()))[0];
        std::set<int> leaders;
        for (const std::string& leader : all.all_gather(mine)) leaders.insert(std::stoi(leader));
        number_ = static_cast<int>(std::distance(leaders.begin(), leaders.find(std::stoi(mine))));
        nodes_ = static_cast<int>(leaders.size());
        columns_ = node_.size();
        for (const std::string& size : all.all_gather(std::to_string(node_.size())))
            columns_ = std::min(columns_, std::stoi(size));
        column_ = all.split(std::min(node_.rank(), columns_));
        rank_of_node_.resize(leaders.size());
        const auto numbers = column_.all_gather(std::to_string(number_));
        if (node_.rank() >= columns_) return;
        for (std::size_t rank = 0; rank < numbers.size(); ++rank)
            rank_of_node_[static_cast<std::size_t>(std::stoi(numbers[rank]))] =
                static_cast<int>(rank);
    }
    StageRanks& operator=(StageRanks&&) = delete;

    StageTeam team() const {
        return {.all = team_of(all_),
                .node = team_of(node_),
                .node_number = number_,
                .nodes = nodes_,
                .columns = columns_,
                .broadcast = [this](std::string bytes, int owner) {
                    return column_.broadcast(std::move(bytes),
                                             rank_of_node_[static_cast<std::size_t>(owner)]);
                }};
    }

  private:
    const Communicator& all_;
    Communicator node_, column_;
    int number_ = 0, nodes_ = 1, columns_ = 1;
    std::vector<int> rank_of_node_;  // in the column
};

void stage(StageArguments& arguments, const Communicator& all) {
    StageOptions& options = arguments.stage;
    const StageRanks ranks(all);
    options.team = ranks.team();
    options.trust = arguments.checks_hashes ? StageTrust::hashes : StageTrust::sizes;
    const SignalGuard signals;
    Progress progress;
    const StageResult result = stage_dataset(options, [&](std::uint64_t done, std::uint64_t total) {
        stop_if_asked("staging");
        progress.update("stage", done, total, ProgressUnit::bytes);
    });
    progress.finish();
    if (!all.is_root()) return;
    print_once(fmt::format("'{}' has {} ({} read from '{}' for {} node(s))\n",
                           options.target.string(),
                           bytes_text(result.dataset_bytes),
                           bytes_text(result.sent_bytes),
                           options.source.string(),
                           options.team.nodes));
}

// One rank of each node removes its copy.
void unstage(const fs::path& target, const Communicator& all) {
    const Communicator node = all.split_by_node();
    agree(all, [&] {
        if (node.is_root()) unstage_dataset(target);
    });
    if (all.is_root()) print_once(fmt::format("removed '{}'\n", target.string()));
}

int run_stage(const Invocation& call, StageArguments& arguments) {
    const Communicator& all = call.process.ranks;
    StageOptions& options = arguments.stage;
    options.source = call.positionals[0];
    agree(all, [&] {
        check_given(arguments.removes || !options.target.empty(), "to");
        if (!arguments.removes && all.is_root()) check_is_packed(options.source);
    });
    if (arguments.removes)
        unstage(options.source, all);
    else
        agree(all, [&] { stage(arguments, all); });
    return 0;
}

}  // namespace

std::function<void(const PackProgress&)> pack_report(const std::string& doing, Progress& progress) {
    return [doing, &progress](const PackProgress& at) {
        stop_if_asked(doing);
        const bool bytes = at.stage == "verify";
        progress.update(
            at.stage, at.done, at.total, bytes ? ProgressUnit::bytes : ProgressUnit::count);
    };
}

Team team_of(const Communicator& ranks) {
    return {ranks.rank(), ranks.size(), [&ranks](const std::string& bytes) {
                return ranks.all_gather(bytes);
            }};
}

Command data_pack_command() {
    auto arguments = std::make_shared<Arguments>();
    OptionTable table = pack_input_sections(arguments->inputs);
    table[1].options.push_back(whole_option("classes",
                                            arguments->output.pack.classes,
                                            {0, max_classes},
                                            "number of classes of labels and masks, or of tokens "
                                            "(the vocabulary); 0: the largest + 1"));
    std::ranges::move(pack_output_table(arguments->output, "seed"), std::back_inserter(table));
    return {.name = "data pack",
            .summary = "pack images, tables and arrays into HDF5 shards",
            .usage = "lockstep data pack INPUT --out DIR [options]",
            .text = data_pack_help,
            .table = std::move(table),
            .optional_positionals = most_data_words,
            .run = [arguments](const Invocation& call) {
                const Communicator& ranks = call.process.ranks;
                agree(ranks, [&] {
                    add_files(arguments->inputs, call.positionals);
                    pack(*arguments, ranks);
                });
                return 0;
            }};
}

Command data_synth_command() {
    auto arguments = std::make_shared<SynthArguments>();
    OptionTable table = pack_output_table(arguments->output, "shuffle-seed");
    table.insert(table.begin(), samples_section(arguments->synth));
    return {.name = "data synth",
            .summary = "generate a data set that can be learned",
            .usage = "lockstep data synth --out DIR [options]",
            .text = data_synth_help,
            .table = std::move(table),
            .run = [arguments](const Invocation& call) {
                const Communicator& ranks = call.process.ranks;
                agree(ranks, [&] { synthesize(*arguments, ranks); });
                return 0;
            }};
}

Command data_reshard_command() {
    auto arguments = std::make_shared<ReshardArguments>();
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
        .table =
            {data_set_group(arguments->pack, arguments->restart),
             {"Layout",
              {whole_option("block-rows",
                            arguments->pack.block_rows,
                            {0, 1 << 30},
                            "rows per block; 0: as in DIR. Another number changes the order in "
                            "training, and so the bits of a model"),
               whole_option("shuffle-seed",
                            arguments->seed,
                            {no_seed, 1LL << 62},
                            "shuffle rows again; -1: keep their order"),
               bytes_option("memory", arguments->memory, "memory of each rank for shuffling")}}},
        .positionals = 1,
        .run = [arguments](const Invocation& call) {
            const Communicator& ranks = call.process.ranks;
            agree(ranks, [&] { reshard(call.positionals[0], *arguments, ranks); });
            return 0;
        }};
}

Command data_stage_command() {
    auto arguments = std::make_shared<StageArguments>();
    return {
        .name = "data stage",
        .summary = "copy a data set to each node's own disk",
        .usage = "lockstep data stage DIR --to LOCAL_DIR | lockstep data stage LOCAL_DIR --unstage",
        .text =
            "Under mpirun or srun, each of N nodes reads 1/N of the bytes from the shared file\n"
            "system and sends them to the others; the ranks of a node share the work. What "
            "arrives\n"
            "is compared with the manifest's hashes before it gets its name. A copy that is there\n"
            "already is used, and repaired where files are missing or have other sizes.\n\n"
            "Example:\n"
            "  mpirun -np 8 --map-by node lockstep data stage /shared/train --to /local/train\n"
            "  mpirun -np 8 --map-by node lockstep data stage /local/train --unstage\n",
        .table = {{"Copy",
                   {path_option(
                        "to DIR", arguments->stage.target, "target folder on each node's disk"),
                    flag_option("check",
                                arguments->checks_hashes,
                                "read an existing copy and compare its hashes"),
                    flag_option(
                        "unstage", arguments->removes, "remove the copy, DIR, from every node")}}},
        .positionals = 1,
        .run = [arguments](const Invocation& call) { return run_stage(call, *arguments); }};
}

}  // namespace lockstep
