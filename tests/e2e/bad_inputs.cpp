// SPDX-License-Identifier: Apache-2.0
#include "bad_inputs.hpp"

#include <regex>
#include <sstream>

namespace lockstep::test {
namespace {

// Below "# FINDER CODE", each is "NAME: COMMAND", with variables in the command, and the message. A
// line that ends with "\" goes on in the next one. All settings without effect are in
// tests/plan/settings_test.cpp.
constexpr const char* table_of_bad_inputs = R"(
# command_line 64
UnknownOption: train --data <data> --run <tmp>/run --bach 64
lockstep: error E101: unknown option '--bach'<same>
  fix: did you mean '--batch'?
UnknownCommand: trian
lockstep: error E101: unknown command 'trian'
  fix: did you mean 'train'?
UnknownSecondWord: data pakc
lockstep: error E101: unknown command 'data pakc'
  why: this group of commands needs a second word
  fix: did you mean 'data pack'?
CommandOfAnotherName: resume run
lockstep: error E101: unknown command 'resume'
  why: 'lockstep train --resume' does it
  fix: lockstep train --resume
NoNumber: train --data <data> --run <tmp>/run --epochs ten
lockstep: error E103: --epochs is 'ten' (from command line)<same>
  why: it is not a whole number
  fix: for example --epochs 2
PeriodWithoutUnit: train --data <data> --run <tmp>/run --checkpoint-every 500
lockstep: error E103: --checkpoint-every is '500' (from command line)<same>
  why: it must be a count with a unit: steps, epochs, s, m or h
  fix: for example --checkpoint-every 500steps
TimeOfAnotherUnit: train --data <data> --run <tmp>/run --comm-timeout 1ms
lockstep: error E103: --comm-timeout is '1ms' (from command line)<same>
  why: it must be a whole number of s, m or h, or 0
  fix: for example --comm-timeout 10m
OptionWithoutValue: train --data <data> --run
lockstep: error E105: --run needs a value<same>
  fix: --help shows what each option takes
RequiredOptionMissing: train --data <data>
lockstep: error E105: --run is missing<same>
  fix: name a run directory: --run runs/NAME
UnexpectedArgument: train --data <data> --run <tmp>/run more
lockstep: error E101: unexpected argument 'more'<same>
  fix: usage: lockstep train --data DIR --run DIR [--np N] [options]
NoCheckLeft: doctor --preflight --only T
lockstep: error E106: --only, --skip and --preflight leave no check<same>
  why: --preflight leaves out slow checks, such as all of family T
  fix: drop one of them
UnknownErrorCode: explain E999
lockstep: error E101: no error has code 'E999'
  fix: give a code as messages show it, for example E204 or C2, or an exit code
BenchWithoutRanks: bench comm
lockstep: error E105: --np is missing
  why: an all-reduce needs ranks, and no launcher started any
  fix: for example: lockstep bench comm --np 2
BenchFromLargeToSmall: bench comm -b 1MiB -e 64KiB
lockstep: error E106: --min-bytes 1 MiB is more than --max-bytes 64 KiB
  why: sizes go from the smallest to the largest
  fix: for example -b 65536 -e 1048576
BenchOfTooLittle: bench comm --min-bytes 4
lockstep: error E103: --min-bytes is '4' (from command line)
  why: it must be a size of at least 8 B
  fix: for example --min-bytes 256MiB
ProfileOfUnknownInputs: profile net.pt
lockstep: error E105: --input is missing
  why: 'net.pt' is not built in: its inputs are not known
  fix: for example --input 3x32x32
ProfileOfHalfAnImage: profile cnn --input 3x32
lockstep: error E103: --input is '3x32'
  why: it must be channels x height x width, or a number of features
  fix: for example --input 3x32x32
ProfileOfTokensAsAnImage: profile gpt --input 3x32x32
lockstep: error E103: --input is '3x32x32'
  why: it must be the number of tokens in a sequence
  fix: for example --input 128
PackOutputExists: data pack --images <tmp>/images --labels <tmp>/labels --out <tmp>/out
lockstep: error E407: '<tmp>/out' exists already
  why: a data set is never overwritten
  fix: give another name, or remove it first
# every_rank 64
UnknownModel: train --data <data> --run <tmp>/run --model cnm
lockstep: error E103: no model 'cnm'<same>
  why: there are cnn, cnn-bn, densenet121, efficientnet_b0, efficientnet_b7, gpt, mlp, resnet18, \
resnet34, resnet50, unet, vit_b_16
  fix: did you mean 'cnn'?
WeightsOfOtherClasses: train --data <data> --run <tmp>/run --class-weights 1,2
lockstep: error E103: --class-weights is '1,2'<same>
  why: it must be none, balanced, or 10 numbers of 0 or more
  fix: give one weight for each class, with commas between
BestByAMetricOfAnotherTask: train --data <data> --run <tmp>/run --test-data <data> --keep-best r2
lockstep: error E103: --keep-best is 'r2'<same>
  why: the task's metrics are accuracy, auc, f1, loss
  fix: give one of these
LossOfAnotherTask: train --data <data> --run <tmp>/run --loss mae
lockstep: error E107: --loss has no effect<same>
  why: --task classification has none
  fix: drop it, or use --task regression
NoSuchTransform: train --data <data> --run <tmp>/run --transform flop
lockstep: error E247: there is no transform 'flop' (in 'flop')<same>
  why: did you mean 'flip'?
  fix: the steps and presets are: resize, crop, centre-crop, flip, rotate, blur, cutout, \
normalise, mixup, cutmix, none, cifar, book
VirtualRanksThatAreNoPowerOfTwo: train --data <data> --run <tmp>/run --virtual-ranks 3
lockstep: error E640: 3 virtual ranks are not a power of two<same>
  why: they are the leaves of a binary tree, in whose order gradients are summed
  fix: use --virtual-ranks 4
MoreRanksThanVirtualRanks: train --data <data> --run <tmp>/run --virtual-ranks 2
lockstep: error E640: 2 virtual ranks cannot run on 3 ranks<same>
  why: every rank needs a virtual rank of its own
  fix: use at most 2 rank(s), or create the run with --virtual-ranks 4
MoreVirtualRanksThanSamples: train --data <data> --run <tmp>/run --virtual-ranks 1024 --batch 1024
lockstep: error E215: 600 samples for 1024 virtual ranks<same>
  why: each needs at least one in a step
  fix: use --virtual-ranks 512 or fewer ranks
BatchThatDoesNotDivide: train --data <data> --run <tmp>/run --batch 10
lockstep: error E106: --batch 10 does not divide into 4 virtual ranks<same>
  why: every leaf of a step has the same number of samples
  fix: use --batch 12 or another multiple of 4
BatchAboveTheSamples: train --data <data> --run <tmp>/run --batch 1024
lockstep: error E107: --batch 1024 is more than the 600 samples<same>
  why: no step would have that many
  fix: use --batch 576 or less
# every_rank 65
ModelOfAnotherTask: train --data <data> --run <tmp>/run --model unet --width 2 --virtual-ranks 4
lockstep: error E217: the model is not for this task<same>
  why: its output for 32 sample(s) is [32, 10, 28, 28], the task's targets need [32, 10]
  fix: 'lockstep models' says which model takes what, and is for which task
BatchNormOfTheLastSamples: train --data <data> --run <tmp>/run --model resnet18 \
--virtual-ranks 4 --batch 596
lockstep: error E217: batch norm has no statistics of a single sample<same>
  why: the last step of an epoch has 4 of 600 samples, for 4 virtual ranks: some compute one by \
itself
  fix: leave that step out with --drop-last, or use another --batch
BatchNormOfSingleSamples: train --data <data> --run <tmp>/run --model resnet18 \
--virtual-ranks 4 --batch 8 \
--micro-batches 2
lockstep: error E217: batch norm has no statistics of a single sample<same>
  why: each step has 8 samples, for 4 virtual ranks in 2 micro-batches each: some compute one by \
itself
  fix: use a larger --batch, fewer --virtual-ranks or --micro-batches
ModelOfOtherData: train --data <data> --run <tmp>/run --model gpt
lockstep: error E217: gpt takes tokens, and the data have none<same>
  why: it is given whole numbers [n, T]
  fix: pack text with 'lockstep data pack --text' or --tokens, or use another model
TaskWithoutItsField: train --data <data> --run <tmp>/run --task segmentation
lockstep: error E207: data set '<data>' has no field 'masks'<same>
  why: its fields are images, labels
  fix: for a command that trains on them: lockstep data inspect <data>
# command_line 78
ConfigSyntax: train --data <data> --run <tmp>/run --config <tmp>/train.toml
lockstep: error E110: <tmp>/train.toml:2:6: Error while parsing value: could not determine value \
type<same>
  why: this line:
    lr = = 0.1
         ^
  fix: write it as KEY = VALUE, texts in quotes
ConfigUnknownKey: train --data <data> --run <tmp>/run --config <tmp>/train.toml
lockstep: error E111: <tmp>/train.toml:2:11: unknown key 'momentm'<same>
  fix: did you mean 'momentum'?
ConfigWrongType: train --data <data> --run <tmp>/run --config <tmp>/train.toml
lockstep: error E112: <tmp>/train.toml:1:9: batch is "64" (text)<same>
  why: it needs a whole number
  fix: remove the quotes
ConfigNotText: train --data <data> --run <tmp>/run --config <tmp>/train.toml
lockstep: error E115: '<tmp>/train.toml' is not UTF-8 text<same>
  why: byte 13 belongs to no character
  fix: save it as UTF-8, or give another file
VariableThatIsNoNumber: LOCKSTEP_BATCH=many train --data <data> --run <tmp>/run
lockstep: error E113: LOCKSTEP_BATCH is 'many'<same>
  why: it is not a whole number
  fix: unset LOCKSTEP_BATCH, or set it to what --batch takes
# command_line 66
ConfigMissing: train --data <data> --run <tmp>/run --config <tmp>/train.toml
lockstep: error E116: cannot read config '<tmp>/train.toml'<same>
  why: it does not exist
  fix: give the path of a TOML file
PackMissingFile: data pack --images <tmp>/images --labels <tmp>/labels --out <tmp>/out
lockstep: error E201: cannot open '<tmp>/images': No such file or directory
  fix: check the path; on a cluster, that this node has it
NoCheckpoints: ckpt ls <tmp>
lockstep: error E301: no checkpoint in '<tmp>'
  why: the run has not written one yet, or this is no run directory
  fix: give the directory that was given to 'train --run'
NoRun: ckpt verify <tmp>/run
lockstep: error E201: '<tmp>/run' does not exist
  fix: give a run directory
# command_line 65
ProfileOfTooSmallAnImage: profile cnn --input 1x3x3
lockstep: error E217: images are 3x3
  why: this model halves them twice and needs at least 4x4
  fix: use --model mlp, or larger images
PackLabelOutOfRange: data pack --images <tmp>/images --labels <tmp>/labels --out <tmp>/out \
--classes 5
lockstep: error E210: label 5 of input sample 5 is out of range
  why: 5 classes are numbered 0 to 4
  fix: drop --classes: then the largest label decides the number of classes
PackCountsDiffer: data pack --images <tmp>/images --labels <tmp>/labels --out <tmp>/out
lockstep: error E209: 600 images but 599 labels
  why: in '<tmp>/images' and '<tmp>/labels'
  fix: give the two files of the same split
PackNotIdx: data pack --images <tmp>/images --labels <tmp>/labels --out <tmp>/out
lockstep: error E214: '<tmp>/images' is not a whole IDX file
  why: it begins like a web page
  fix: make or download it again, or check that it is the file you mean
PackCutShort: data pack --images <tmp>/images --labels <tmp>/labels --out <tmp>/out
lockstep: error E214: '<tmp>/images' is not a whole IDX file
  why: 600 x 28 x 28 need 470,400 bytes; it has 99,984
  fix: make or download it again, or check that it is the file you mean
VerifyFindsDamage: data verify <tmp>/bad
verify 474.1 KiB in <time>
E213 '<tmp>/bad/train-00000-of-00001.h5' is damaged: field 'images', block 7, 25,088 bytes at \
offset 183,808 (samples 224 to 255): their XXH3-64 is b9aefb7ba3c2aa58, the index says \
7a378e9d321d3910; read twice
lockstep: error E213: '<tmp>/bad' is damaged: 1 finding(s)
  why: they are listed above
  fix: restore the named files from their source, or pack again
# first_rank 66
DataMissing: train --data <tmp>/nowhere --run <tmp>/run --model mlp
lockstep: error E201: cannot open '<tmp>/nowhere': No such file or directory
  fix: check the path; on a cluster, that this node has it
ShardMissing: train --data <tmp>/bad --run <tmp>/run --model mlp
lockstep: error E201: cannot open '<tmp>/bad/train-00000-of-00001.h5': No such file or directory
  fix: check the path; on a cluster, that this node has it
# first_rank 65
FolderThatIsNoDataSet: train --data <tmp> --run <tmp>/run --model mlp
lockstep: error E216: '<tmp>' is no data set
  why: it has no manifest.json
  fix: make one with 'lockstep data pack', or check the path
FolderOfDataSets: train --data <data>/.. --run <tmp>/run --model mlp
lockstep: error E216: '<data>/..' is no data set
  why: it has no manifest.json
  fix: give one that is in it, such as '<data>/../train'
ShardInPlaceOfItsDataSet: train --data <data>/train-00000-of-00001.h5 --run <tmp>/run --model mlp
lockstep: error E216: '<data>/train-00000-of-00001.h5' is no data set
  why: it is a part of the packed data set in its folder
  fix: give the folder: <data>
ShardIsAZip: train --data <tmp>/bad --run <tmp>/run --model mlp
lockstep: error E203: '<tmp>/bad/train-00000-of-00001.h5' is not HDF5
  why: it begins like a zip archive
  fix: copy it again from its source, or give the right folder
ShardCutShort: train --data <tmp>/bad --run <tmp>/run --model mlp
lockstep: error E204: '<tmp>/bad/train-00000-of-00001.h5' is cut short: 250,000 of 485,440 bytes
  why: its writer or a copy of it was interrupted
  fix: copy it again from its source, then run 'lockstep data verify'
ShardOutsideItsFolder: train --data <tmp>/bad --run <tmp>/run --model mlp
lockstep: error E220: path '../../etc/passwd' in '<tmp>/bad' is not allowed
  why: it leaves the folder
  fix: restore the manifest from its source; do not edit it
ManifestEdited: train --data <tmp>/bad --run <tmp>/run --model mlp
lockstep: error E223: '<tmp>/bad/manifest.json' was changed after it was written
  why: its digest says 06f9ad36a8b169d62a2864bf7e76fdb7
  fix: restore it from its source; do not edit it
ManifestIsNoJson: train --data <tmp>/bad --run <tmp>/run --model mlp
lockstep: error E222: '<tmp>/bad/manifest.json' makes no sense as JSON
  why: parse error at line 2, column 1: syntax error while parsing value - unexpected end of \
input; expected '[', '{', or a literal
  fix: restore it from its source; do not edit it
# some_rank 65
FlippedBit: train --data <tmp>/bad --run <tmp>/run --model mlp --max-steps 20 --data-mode resident
lockstep: error E213: '<tmp>/bad/train-00000-of-00001.h5' is damaged: field 'images', block 7, \
25,088 bytes at offset 183,808 (samples 224 to 255) <rank>
  why: their XXH3-64 is b9aefb7ba3c2aa58, the index says 7a378e9d321d3910; read twice
  fix: copy the file from its source, then run 'lockstep data verify'; 'lockstep train' with \
--on-bad-data mask leaves these samples out
# command_line 73
PackOutputCannotBeMade: data pack --images <tmp>/images --labels <tmp>/labels --out <tmp>/labels/out
lockstep: error E401: cannot create folder '<tmp>/labels': File exists
  fix: a file has that name: give another one
# first_rank 78
RunCannotBeMade: train --data <data> --run <tmp>/file/run --model mlp
lockstep: error E613: check L7: '<tmp>/file/run' is a file, or lies below one <rank>
  why: A run is a folder to which logs and checkpoints are written.
  fix: name a folder that you may write to: --run runs/NAME
# first_rank 64
RunHasOtherFiles: train --data <data> --run <tmp>/home --model mlp
lockstep: error E407: '<tmp>/home' has files in it, but is no run
  why: a run directory is made by 'lockstep train' in an empty or new folder
  fix: give the name of a new folder
)";

void flip_bit_of_last_image(const fs::path& folder) {
    const fs::path shard = shard_of(folder);
    std::string bytes = content_of(shard);
    const std::size_t at = 200'000;
    overwrite(shard, at, std::string(1, static_cast<char>(bytes[at] ^ 4)));
}

void copy_inputs(const TempDir& folder) {
    fs::copy_file(train_images(), folder / "images");
    fs::copy_file(train_labels(), folder / "labels");
}

using Preparation = std::function<void(const TempDir&)>;

/// A copy of the good data set in <tmp>/bad, changed by `damage`.
Preparation with_damage(const std::function<void(const fs::path&)>& damage) {
    return [damage](const TempDir& folder) {
        copy_train_set(folder / "bad");
        damage(folder / "bad");
    };
}

Preparation with_file(const std::string& name, const std::string& content) {
    return [=](const TempDir& folder) { folder.file(name, content); };
}

// By the names of the cases that need files.
std::map<std::string, Preparation> preparations() {
    return {
        {"ConfigSyntax", with_file("train.toml", "epochs = 2\nlr = = 0.1\n")},
        {"ConfigUnknownKey", with_file("train.toml", "epochs = 2\nmomentm = 0.9\n")},
        {"ConfigWrongType", with_file("train.toml", "batch = \"64\"\n")},
        {"ConfigNotText", with_file("train.toml", "batch = 64 # \xff\n")},
        {"RunCannotBeMade", with_file("file", "")},
        {"RunHasOtherFiles", with_file("home/thesis.tex", "")},
        {"ShardMissing", with_damage([](auto& bad) { fs::remove(shard_of(bad)); })},
        {"ShardIsAZip",
         with_damage([](auto& bad) { overwrite(shard_of(bad), 0, std::string("PK\x03\x04", 4)); })},
        {"ShardCutShort", with_damage([](auto& bad) { fs::resize_file(shard_of(bad), 250'000); })},
        {"ShardOutsideItsFolder", with_damage([](auto& bad) {
             rewrite_manifest(bad,
                              [](Json& json) { json["shards"][0]["path"] = "../../etc/passwd"; });
         })},
        {"ManifestEdited", with_damage([](auto& bad) {
             std::string text = content_of(bad / "manifest.json");
             text.replace(text.find("\"CHW\""), 5, "\"HWC\"");
             std::ofstream(bad / "manifest.json", std::ios::binary) << text;
         })},
        {"ManifestIsNoJson",
         with_damage([](auto& bad) { std::ofstream(bad / "manifest.json") << "{\"format\": \n"; })},
        {"FlippedBit", with_damage(flip_bit_of_last_image)},
        {"VerifyFindsDamage", with_damage(flip_bit_of_last_image)},
        {"PackLabelOutOfRange", copy_inputs},
        {"PackOutputCannotBeMade", copy_inputs},
        {"PackCountsDiffer",
         [](auto& folder) {
             copy_inputs(folder);
             folder.file("labels", idx_text({599}, std::string(599, '\1')));
         }},
        {"PackNotIdx",
         [](auto& folder) {
             for (const char* name : {"images", "labels"}) folder.file(name, "<html>404</html>");
         }},
        {"PackCutShort",
         [](auto& folder) {
             copy_inputs(folder);
             fs::resize_file(folder / "images", 100'000);
         }},
        {"PackOutputExists",
         [](auto& folder) {
             copy_inputs(folder);
             folder.file("out/thesis.tex", "");
         }},
    };
}

// Lines that go on are whole.
std::string whole_lines(std::string text) {
    for (std::size_t at = 0; (at = text.find("\\\n", at)) != text.npos;) text.erase(at, 2);
    return text;
}

}  // namespace

std::vector<BadInput> bad_inputs() {
    const std::map<std::string, Finder> finders = {{"command_line", Finder::command_line},
                                                   {"every_rank", Finder::every_rank},
                                                   {"first_rank", Finder::first_rank},
                                                   {"some_rank", Finder::some_rank}};
    const auto prepared = preparations();
    std::vector<BadInput> found;
    const std::regex begin("([A-Z][A-Za-z]+): (.*)");
    std::smatch parts;
    Words section;
    std::istringstream lines(whole_lines(table_of_bad_inputs));
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("# ")) {
            section = typed(line.substr(2));
        } else if (std::regex_match(line, parts, begin)) {
            found.push_back({.name = parts[1],
                             .finder = finders.at(section.at(0)),
                             .exit_code = std::stoi(section.at(1))});
            if (prepared.contains(parts[1])) found.back().prepare = prepared.at(parts[1]);
            for (const std::string& word : typed(parts[2])) {
                const std::size_t equals = word.find('=');
                if (equals == word.npos)
                    found.back().words.push_back(word);
                else
                    found.back().variables[word.substr(0, equals)] = word.substr(equals + 1);
            }
        } else if (!line.empty()) {
            found.back().message += line + "\n";
        }
    }
    return found;
}

}  // namespace lockstep::test
