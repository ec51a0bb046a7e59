// SPDX-License-Identifier: Apache-2.0
#include "bad_inputs.hpp"

namespace lockstep::test {
namespace {

Words train_on(const std::string& data, const std::string& run = "<tmp>/run") {
    return {"train", "--data", data, "--run", run, "--model", "mlp"};
}

Words pack(const std::string& out = "<tmp>/out") {
    return typed("data pack --images <tmp>/images --labels <tmp>/labels --out %", {out});
}

/// A copy of the good data set in <tmp>/bad, changed by `damage`.
BadInput bad_data(const std::string& name,
                  const std::string& message,
                  const std::function<void(const fs::path&)>& damage) {
    return {name, train_on("<tmp>/bad"), message, [damage](const TempDir& folder) {
                copy_train_set(folder / "bad");
                damage(folder / "bad");
            }};
}

void flip_bit_of_last_image(const fs::path& folder) {
    const fs::path shard = SmallData::shard(folder);
    std::string bytes = content_of(shard);
    const std::size_t at = 200'000;
    overwrite(shard, at, std::string(1, static_cast<char>(bytes[at] ^ 4)));
}

BadInput flipped_bit() {
    BadInput flipped = bad_data(
        "FlippedBit",
        "lockstep: error E213: '<tmp>/bad/train-00000-of-00001.h5' is damaged: field 'images', "
        "block 7, 25,088 bytes at offset 183,808 (samples 224 to 255) <rank>\n"
        "  why: their XXH3-64 is b9aefb7ba3c2aa58, the index says 7a378e9d321d3910; read twice\n"
        "  fix: copy the file from its source, then run 'lockstep data verify'; 'lockstep train' "
        "with --on-bad-data mask leaves these samples out\n",
        flip_bit_of_last_image);
    flipped.words = flipped.words + typed("--max-steps 20 --data-mode resident");
    return flipped;
}

std::vector<BadInput> missing_data() {
    return {
        {"DataMissing",
         train_on("<tmp>/nowhere"),
         "lockstep: error E201: cannot open '<tmp>/nowhere': No such file or directory\n"
         "  fix: check the path; on a cluster, that this node has it\n"},
        bad_data("ShardMissing",
                 "lockstep: error E201: cannot open '<tmp>/bad/train-00000-of-00001.h5': No such "
                 "file or directory\n"
                 "  fix: check the path; on a cluster, that this node has it\n",
                 [](const fs::path& folder) { fs::remove(SmallData::shard(folder)); }),
    };
}

std::vector<BadInput> bad_data_sets() {
    return {
        {"FolderThatIsNoDataSet",
         train_on("<tmp>"),
         "lockstep: error E216: '<tmp>' is no data set\n"
         "  why: it has no manifest.json\n"
         "  fix: make one with 'lockstep data pack', or check the path\n"},
        bad_data("ShardIsAZip",
                 "lockstep: error E203: '<tmp>/bad/train-00000-of-00001.h5' is not HDF5\n"
                 "  why: it begins like a zip archive\n"
                 "  fix: copy it again from its source, or give the right folder\n",
                 [](const fs::path& folder) {
                     overwrite(SmallData::shard(folder), 0, std::string("PK\x03\x04", 4));
                 }),
        bad_data(
            "ShardCutShort",
            "lockstep: error E204: '<tmp>/bad/train-00000-of-00001.h5' is cut short: 250,000 of "
            "485,440 bytes\n"
            "  why: its writer or a copy of it was interrupted\n"
            "  fix: copy it again from its source, then run 'lockstep data verify'\n",
            [](const fs::path& folder) { fs::resize_file(SmallData::shard(folder), 250'000); }),
        bad_data("ShardOutsideItsFolder",
                 "lockstep: error E220: path '../../etc/passwd' in '<tmp>/bad' is not allowed\n"
                 "  why: it leaves the folder\n"
                 "  fix: restore the manifest from its source; do not edit it\n",
                 [](const fs::path& folder) {
                     rewrite_manifest(folder, [](Json& json) {
                         json["shards"][0]["path"] = "../../etc/passwd";
                     });
                 }),
        bad_data(
            "ManifestEdited",
            "lockstep: error E223: '<tmp>/bad/manifest.json' was changed after it was written\n"
            "  why: its digest says 06f9ad36a8b169d62a2864bf7e76fdb7\n"
            "  fix: restore it from its source; do not edit it\n",
            [](const fs::path& folder) {
                std::string text = content_of(folder / "manifest.json");
                text.replace(text.find("\"CHW\""), 5, "\"HWC\"");
                std::ofstream(folder / "manifest.json", std::ios::binary) << text;
            }),
        bad_data("ManifestIsNoJson",
                 "lockstep: error E222: '<tmp>/bad/manifest.json' makes no sense as JSON\n"
                 "  why: parse error at line 2, column 1: syntax error while parsing value - "
                 "unexpected end of input; expected '[', '{', or a literal\n"
                 "  fix: restore it from its source; do not edit it\n",
                 [](const fs::path& folder) {
                     std::ofstream(folder / "manifest.json") << "{\"format\": \n";
                 }),
    };
}

void copy_inputs(const TempDir& folder) {
    fs::copy_file(SmallData::get().images(), folder / "images");
    fs::copy_file(SmallData::get().labels(), folder / "labels");
}

std::vector<BadInput> missing_files() {
    return {
        {"PackMissingFile",
         pack(),
         "lockstep: error E201: cannot open '<tmp>/images': No such file or directory\n"
         "  fix: check the path; on a cluster, that this node has it\n"},
        {"NoCheckpoints",
         {"ckpt", "ls", "<tmp>"},
         "lockstep: error E301: no checkpoint in '<tmp>'\n"
         "  why: the run has not written one yet, or this is no run directory\n"
         "  fix: give the directory that was given to 'train --run'\n"},
        {"NoRun",
         {"ckpt", "verify", "<tmp>/run"},
         "lockstep: error E201: '<tmp>/run' does not exist\n"
         "  fix: give a run directory\n"},
    };
}

std::vector<BadInput> bad_files_to_pack() {
    return {
        {"PackLabelOutOfRange",
         pack() + Words{"--classes", "5"},
         "lockstep: error E210: label 5 of input sample 5 is out of range\n"
         "  why: 5 classes are numbered 0 to 4\n"
         "  fix: drop --classes: then the largest label decides the number of classes\n",
         copy_inputs},
        {"PackCountsDiffer",
         pack(),
         "lockstep: error E209: 600 images but 599 labels\n"
         "  why: in '<tmp>/images' and '<tmp>/labels'\n"
         "  fix: give the two files of the same split\n",
         [](const TempDir& folder) {
             copy_inputs(folder);
             folder.file("labels", idx_text({599}, std::string(599, '\1')));
         }},
        {"PackNotIdx",
         pack(),
         "lockstep: error E214: '<tmp>/images' is not a whole IDX file\n"
         "  why: it begins like a web page\n"
         "  fix: make or download it again, or check that it is the file you mean\n",
         [](const TempDir& folder) {
             folder.file("images", "<html>404</html>");
             folder.file("labels", "<html>404</html>");
         }},
        {"PackCutShort",
         pack(),
         "lockstep: error E214: '<tmp>/images' is not a whole IDX file\n"
         "  why: 600 x 28 x 28 need 470,400 bytes; it has 99,984\n"
         "  fix: make or download it again, or check that it is the file you mean\n",
         [](const TempDir& folder) {
             copy_inputs(folder);
             fs::resize_file(folder / "images", 100'000);
         }},
        {"VerifyFindsDamage",
         {"data", "verify", "<tmp>/bad"},
         "verify 474.1 KiB in <time>\n"
         "E213 '<tmp>/bad/train-00000-of-00001.h5' is damaged: field 'images', block 7, 25,088 "
         "bytes at offset 183,808 (samples 224 to 255): their XXH3-64 is b9aefb7ba3c2aa58, the "
         "index says 7a378e9d321d3910; read twice\n"
         "lockstep: error E213: '<tmp>/bad' is damaged: 1 finding(s)\n"
         "  why: they are listed above\n"
         "  fix: restore the named files from their source, or pack again\n",
         [](const TempDir& folder) {
             copy_train_set(folder / "bad");
             flip_bit_of_last_image(folder / "bad");
         }},
    };
}

}  // namespace

std::vector<BadInput> bad_files() {
    return joined(
        {all_with(66, Finder::first_rank, missing_data()),
         all_with(65, Finder::first_rank, bad_data_sets()),
         all_with(65, Finder::some_rank, {flipped_bit()}),
         all_with(66, Finder::command_line, missing_files()),
         all_with(65, Finder::command_line, bad_files_to_pack()),
         all_with(64,
                  Finder::command_line,
                  {{"PackOutputExists",
                    pack(),
                    "lockstep: error E407: '<tmp>/out' exists already\n"
                    "  why: a data set is never overwritten\n"
                    "  fix: give another name, or remove it first\n",
                    [](const TempDir& folder) {
                        copy_inputs(folder);
                        folder.file("out/thesis.tex", "");
                    }}}),
         all_with(73,
                  Finder::command_line,
                  {{"PackOutputCannotBeMade",
                    pack("<tmp>/labels/out"),
                    "lockstep: error E401: cannot create folder '<tmp>/labels': File exists\n"
                    "  fix: a file has that name: give another one\n",
                    copy_inputs}}),
         all_with(78,
                  Finder::first_rank,
                  {{"RunCannotBeMade",
                    train_on("<data>", "<tmp>/file/run"),
                    "lockstep: error E613: check L7: '<tmp>/file/run' is a file, or lies below one "
                    "<rank>\n"
                    "  why: A run is a folder to which logs and checkpoints are written.\n"
                    "  fix: name a folder that you may write to: --run runs/NAME\n",
                    [](const TempDir& folder) { folder.file("file", ""); }}}),
         all_with(64,
                  Finder::first_rank,
                  {{"RunHasOtherFiles",
                    train_on("<data>", "<tmp>/home"),
                    "lockstep: error E407: '<tmp>/home' has files in it, but is no run\n"
                    "  why: a run directory is made by 'lockstep train' in an empty or new folder\n"
                    "  fix: give the name of a new folder\n",
                    [](const TempDir& folder) { folder.file("home/thesis.tex", ""); }}})});
}

}  // namespace lockstep::test
