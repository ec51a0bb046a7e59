// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/manifest.hpp"

#include "command.hpp"
#include "data/pack_inputs.hpp"
#include "data/pack_output.hpp"

#include <memory>

namespace lockstep {
namespace {

struct Arguments {
    PackInputs inputs;
    PackArguments output;
    std::int64_t classes = 0;
};

void pack(Arguments& arguments, const Communicator& ranks) {
    check_output_given(arguments.output);
    PackOptions& options = arguments.output.pack;
    options.classes = arguments.classes > 0 ? arguments.classes : arguments.inputs.usual_classes();
    Progress progress;
    const auto source = together(team_of(ranks), [&] {
        return open_inputs(
            arguments.inputs, options.split, [&](std::uint64_t done, std::uint64_t total) {
                progress.update("read", done, total, ProgressUnit::bytes);
            });
    });
    pack_rows(*source, arguments.output, ranks, progress);
}

constexpr std::size_t most_files = 1 << 20;

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

}  // namespace

Command data_pack_command() {
    auto arguments = std::make_shared<Arguments>();
    OptionTable table = pack_input_sections(arguments->inputs);
    table[1].options.push_back(whole_option("classes",
                                            arguments->classes,
                                            0,
                                            max_classes,
                                            "number of classes of labels and masks, or of tokens "
                                            "(the vocabulary); 0: the largest + 1"));
    for (OptionSection& section : pack_output_table(arguments->output, "seed"))
        table.push_back(std::move(section));
    return {.name = "data pack",
            .summary = "pack images, tables and arrays into HDF5 shards",
            .usage = "lockstep data pack INPUT --out DIR [options]",
            .text = data_pack_help,
            .table = std::move(table),
            .optional_positionals = most_files,
            .run = [arguments](const Invocation& call) {
                const Communicator& ranks = call.process.ranks;
                agree(ranks, [&] {
                    add_files(arguments->inputs, call.positionals);
                    pack(*arguments, ranks);
                });
                return 0;
            }};
}

}  // namespace lockstep
