// SPDX-License-Identifier: Apache-2.0
#include "bad_inputs.hpp"

namespace lockstep::test {
namespace {

Words train(const Words& more) {
    return Words{"train", "--data", "<data>", "--run", "<tmp>/run"} + more;
}

std::vector<BadInput> bad_words() {
    return {
        {"UnknownOption",
         train({"--bach", "64"}),
         "lockstep: error E101: unknown option '--bach'<same>\n"
         "  fix: did you mean '--batch'?\n"},
        {"UnknownCommand",
         {"trian"},
         "lockstep: error E101: unknown command 'trian'\n"
         "  fix: did you mean 'train'?\n"},
        {"UnknownSecondWord",
         {"data", "pakc"},
         "lockstep: error E101: unknown command 'data pakc'\n"
         "  why: this group of commands needs a second word\n"
         "  fix: did you mean 'data pack'?\n"},
        {"NoNumber",
         train({"--epochs", "ten"}),
         "lockstep: error E103: --epochs is 'ten' (from command line)<same>\n"
         "  why: it is not a whole number\n"
         "  fix: for example --epochs 2\n"},
        {"PeriodWithoutUnit",
         train({"--checkpoint-every", "500"}),
         "lockstep: error E103: --checkpoint-every is '500' (from command line)<same>\n"
         "  why: it must be a count with a unit: steps, epochs, s, m or h\n"
         "  fix: for example --checkpoint-every 500steps\n"},
        {"TimeOfAnotherUnit",
         train({"--comm-timeout", "1ms"}),
         "lockstep: error E103: --comm-timeout is '1ms' (from command line)<same>\n"
         "  why: it must be a whole number of s, m or h, or 0\n"
         "  fix: for example --comm-timeout 10m\n"},
        {"OptionWithoutValue",
         {"train", "--data", "<data>", "--run"},
         "lockstep: error E105: --run needs a value<same>\n"
         "  fix: --help shows what each option takes\n"},
        {"RequiredOptionMissing",
         {"train", "--data", "<data>"},
         "lockstep: error E105: --run is missing<same>\n"
         "  fix: name a run directory: --run runs/NAME\n"},
        {"UnexpectedArgument",
         train({"more"}),
         "lockstep: error E101: unexpected argument 'more'<same>\n"
         "  fix: usage: lockstep train --data DIR --run DIR [--np N] [options]\n"},
        {"UnknownErrorCode",
         {"explain", "E999"},
         "lockstep: error E101: no error has code 'E999'\n"
         "  fix: give a code as error messages show it, for example E204, or an exit code\n"},
    };
}

std::vector<BadInput> bad_profiles() {
    return {
        {"ProfileOfUnknownInputs",
         {"profile", "net.pt"},
         "lockstep: error E105: --input is missing\n"
         "  why: 'net.pt' is not built in: its inputs are not known\n"
         "  fix: for example --input 3x32x32\n"},
        {"ProfileOfHalfAnImage",
         {"profile", "cnn", "--input", "3x32"},
         "lockstep: error E103: --input is '3x32'\n"
         "  why: it must be channels x height x width, or a number of features\n"
         "  fix: for example --input 3x32x32\n"},
        {"ProfileOfTokensAsAnImage",
         {"profile", "gpt", "--input", "3x32x32"},
         "lockstep: error E103: --input is '3x32x32'\n"
         "  why: it must be the number of tokens in a sequence\n"
         "  fix: for example --input 128\n"},
        {"ProfileOfNoModel",
         {"profile", "cnm", "--input", "1x8x8"},
         "lockstep: error E103: no model 'cnm'\n"
         "  why: there are cnn, cnn-bn, densenet121, efficientnet_b0, efficientnet_b7, gpt, "
         "mlp, resnet18, resnet34, resnet50, unet, vit_b_16\n"
         "  fix: did you mean 'cnn'?\n"},
    };
}

Words bench(const Words& more) {
    return Words{"bench", "comm"} + more;
}

std::vector<BadInput> bad_bench_options() {
    return {
        {"BenchWithoutRanks",
         bench({}),
         "lockstep: error E105: --np is missing\n"
         "  why: an all-reduce needs ranks, and no launcher started any\n"
         "  fix: for example: lockstep bench comm --np 2\n"},
        {"BenchFromLargeToSmall",
         bench({"-b", "1MiB", "-e", "64KiB"}),
         "lockstep: error E106: --min-bytes 1 MiB is more than --max-bytes 64 KiB\n"
         "  why: sizes go from the smallest to the largest\n"
         "  fix: for example -b 65536 -e 1048576\n"},
        {"BenchOfTooLittle",
         bench({"--min-bytes", "4"}),
         "lockstep: error E103: --min-bytes is '4' (from command line)\n"
         "  why: it must be a size of at least 8 B\n"
         "  fix: for example --min-bytes 256MiB\n"},
    };
}

// Of those without effect, all are in tests/plan/settings_test.cpp.
std::vector<BadInput> unfit_settings() {
    return {
        {"UnknownModel",
         train({"--model", "cnm"}),
         "lockstep: error E103: no model 'cnm'<same>\n"
         "  why: there are cnn, cnn-bn, densenet121, efficientnet_b0, efficientnet_b7, gpt, "
         "mlp, resnet18, resnet34, resnet50, unet, vit_b_16\n"
         "  fix: did you mean 'cnn'?\n"},
        {"WeightsOfOtherClasses",
         train({"--class-weights", "1,2"}),
         "lockstep: error E103: --class-weights is '1,2'<same>\n"
         "  why: it must be none, balanced, or 10 numbers of 0 or more\n"
         "  fix: give one weight for each class, with commas between\n"},
        {"BestByAMetricOfAnotherTask",
         train({"--test-data", "<data>", "--keep-best", "r2"}),
         "lockstep: error E103: --keep-best is 'r2'<same>\n"
         "  why: the task's metrics are accuracy, auc, f1, loss\n"
         "  fix: give one of these\n"},
        {"LossOfAnotherTask",
         train({"--loss", "mae"}),
         "lockstep: error E107: --loss has no effect<same>\n"
         "  why: --task classification has none\n"
         "  fix: drop it, or use --task regression\n"},
        {"NoSuchTransform",
         train({"--transform", "flop"}),
         "lockstep: error E247: there is no transform 'flop' (in 'flop')<same>\n"
         "  why: did you mean 'flip'?\n"
         "  fix: the steps and presets are: resize, crop, centre-crop, flip, rotate, blur, cutout, "
         "normalise, mixup, cutmix, none, cifar, book\n"},
        {"VirtualRanksThatAreNoPowerOfTwo",
         train({"--virtual-ranks", "3"}),
         "lockstep: error E640: 3 virtual ranks are not a power of two<same>\n"
         "  why: they are the leaves of a binary tree, in whose order gradients are summed\n"
         "  fix: use --virtual-ranks 4\n"},
        {"MoreRanksThanVirtualRanks",
         train({"--virtual-ranks", "2"}),
         "lockstep: error E640: 2 virtual ranks cannot run on 3 ranks<same>\n"
         "  why: every rank needs a virtual rank of its own\n"
         "  fix: use at most 2 rank(s), or create the run with --virtual-ranks 4\n"},
        {"MoreVirtualRanksThanSamples",
         train({"--virtual-ranks", "1024", "--batch", "1024"}),
         "lockstep: error E215: 600 samples for 1024 virtual ranks<same>\n"
         "  why: each needs at least one in a step\n"
         "  fix: use --virtual-ranks 512 or fewer ranks\n"},
        {"BatchThatDoesNotDivide",
         train({"--batch", "10"}),
         "lockstep: error E106: --batch 10 does not divide into 4 virtual ranks<same>\n"
         "  why: every leaf of a step has the same number of samples\n"
         "  fix: use --batch 12 or another multiple of 4\n"},
        {"MomentumOfAdam",
         train({"--momentum", "0.9"}),
         "lockstep: error E107: --momentum has no effect<same>\n"
         "  why: --optimizer adam has none\n"
         "  fix: drop it, or use --optimizer sgd\n"},
        {"BatchAboveTheSamples",
         train({"--batch", "1024"}),
         "lockstep: error E107: --batch 1024 is more than the 600 samples<same>\n"
         "  why: no step would have that many\n"
         "  fix: use --batch 576 or less\n"},
    };
}

std::vector<BadInput> unfit_models() {
    return {
        {"ModelOfAnotherTask",
         train({"--model", "unet", "--width", "2", "--virtual-ranks", "4"}),
         "lockstep: error E217: the model is not for this task<same>\n"
         "  why: its output for 32 sample(s) is [32, 10, 28, 28], the task's targets need "
         "[32, 10]\n"
         "  fix: 'lockstep models' says which model takes what, and is for which task\n"},
        {"BatchNormOfTheLastSamples",
         train({"--model", "resnet18", "--virtual-ranks", "4", "--batch", "596"}),
         "lockstep: error E217: batch norm has no statistics of a single sample<same>\n"
         "  why: the last step of an epoch has 4 of 600 samples, for 4 virtual ranks: some compute "
         "one by itself\n"
         "  fix: leave that step out with --drop-last, or use another --batch\n"},
        {"BatchNormOfSingleSamples",
         train(typed("--model resnet18 --virtual-ranks 4 --batch 8 --micro-batches 2")),
         "lockstep: error E217: batch norm has no statistics of a single sample<same>\n"
         "  why: each step has 8 samples, for 4 virtual ranks in 2 micro-batches each: some "
         "compute one by itself\n"
         "  fix: use a larger --batch, fewer --virtual-ranks or --micro-batches\n"},
        {"ModelOfOtherData",
         train({"--model", "gpt"}),
         "lockstep: error E217: gpt takes tokens, and the data have none<same>\n"
         "  why: it is given whole numbers [n, T]\n"
         "  fix: pack text with 'lockstep data pack --text' or --tokens, or use another model\n"},
        {"TaskWithoutItsField",
         train({"--task", "segmentation"}),
         "lockstep: error E207: data set '<data>' has no field 'masks'<same>\n"
         "  why: its fields are images, labels\n"
         "  fix: for a command that trains on them: lockstep data inspect <data>\n"},
    };
}

BadInput bad_config(const std::string& name, const std::string& text, const std::string& message) {
    return {name, train({"--config", "<tmp>/train.toml"}), message, [text](const TempDir& folder) {
                folder.file("train.toml", text);
            }};
}

std::vector<BadInput> bad_configs() {
    return {
        bad_config("ConfigSyntax",
                   "epochs = 2\nlr = = 0.1\n",
                   "lockstep: error E110: <tmp>/train.toml:2:6: Error while parsing value: could "
                   "not determine value type<same>\n"
                   "  why: this line:\n"
                   "    lr = = 0.1\n"
                   "         ^\n"
                   "  fix: write it as KEY = VALUE, texts in quotes\n"),
        bad_config("ConfigUnknownKey",
                   "epochs = 2\nmomentm = 0.9\n",
                   "lockstep: error E111: <tmp>/train.toml:2:11: unknown key 'momentm'<same>\n"
                   "  fix: did you mean 'momentum'?\n"),
        bad_config("ConfigWrongType",
                   "batch = \"64\"\n",
                   "lockstep: error E112: <tmp>/train.toml:1:9: batch is \"64\" (text)<same>\n"
                   "  why: it needs a whole number\n"
                   "  fix: remove the quotes\n"),
        bad_config("ConfigNotText",
                   "batch = 64 # \xff\n",
                   "lockstep: error E115: '<tmp>/train.toml' is not UTF-8 text<same>\n"
                   "  why: byte 13 belongs to no character\n"
                   "  fix: save it as UTF-8, or give another file\n"),
        {"VariableThatIsNoNumber",
         train({}),
         "lockstep: error E113: LOCKSTEP_BATCH is 'many'<same>\n"
         "  why: it is not a whole number\n"
         "  fix: unset LOCKSTEP_BATCH, or set it to what --batch takes\n",
         [](const TempDir&) {},
         {{"LOCKSTEP_BATCH", "many"}}},
    };
}

}  // namespace

std::vector<BadInput> bad_options() {
    return joined({all_with(64, Finder::command_line, bad_words()),
                   all_with(64, Finder::every_rank, unfit_settings()),
                   all_with(65, Finder::every_rank, unfit_models()),
                   all_with(78, Finder::command_line, bad_configs()),
                   all_with(66,
                            Finder::command_line,
                            {{"ConfigMissing",
                              train({"--config", "<tmp>/train.toml"}),
                              "lockstep: error E116: cannot read config '<tmp>/train.toml'<same>\n"
                              "  why: it does not exist\n"
                              "  fix: give the path of a TOML file\n"}}),
                   all_with(64, Finder::command_line, bad_bench_options()),
                   all_with(64, Finder::command_line, bad_profiles()),
                   all_with(65,
                            Finder::command_line,
                            {{"ProfileOfTooSmallAnImage",
                              {"profile", "cnn", "--input", "1x3x3"},
                              "lockstep: error E217: images are 3x3\n"
                              "  why: this model halves them twice and needs at least 4x4\n"
                              "  fix: use --model mlp, or larger images\n"}})});
}

}  // namespace lockstep::test
