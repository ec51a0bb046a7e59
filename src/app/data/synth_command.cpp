// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/sources.hpp"

#include "command.hpp"
#include "data/pack_output.hpp"

#include <memory>

namespace lockstep {
namespace {

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
        {choice_option<SynthKind>("kind",
                                  synth.kind,
                                  {{"cifar", SynthKind::classes},
                                   {"segmentation", SynthKind::segmentation},
                                   {"regression", SynthKind::regression},
                                   {"text", SynthKind::text}},
                                  "kind of samples"),
         whole_option("samples", synth.samples, 1, std::int64_t{1} << 40, "number of samples"),
         whole_option("first",
                      synth.first,
                      0,
                      std::int64_t{1} << 60,
                      "number of the first sample; a test set begins where the training data end"),
         whole_option("seed", synth.seed, 0, 1LL << 62, "seed of the data"),
         whole_option("size",
                      synth.size,
                      1,
                      65536,
                      "height and width of images, features of regression, or tokens of text"),
         whole_option(
             "classes", synth.classes, 2, 255, "classes of labels or masks; vocabulary of text")}};
}

}  // namespace

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

}  // namespace lockstep
