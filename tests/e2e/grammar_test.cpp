// SPDX-License-Identifier: Apache-2.0
// Every command that reads data takes the same words for them.
#include "data/foreign_files.hpp"
#include "program.hpp"

namespace lockstep::test {
namespace {

class DataGrammar : public RunsTest {
  protected:
    DataGrammar() {
        fs::create_directory(folder_ / "d");
        for (const char* name : {"a.h5", "b.h5"})
            write_foreign(folder_ / "d" / name, images_and_labels(60, 1));
    }
    std::string output(const Words& words) const {
        const ProcessResult result = run_lockstep(words);
        EXPECT_EQ(result.exit_code, 0)
            << fmt::format("{}\n", fmt::join(words, " ")) << result.output;
        return result.output;
    }
    // The words for both files, in every way.
    std::vector<Words> ways() const {
        const std::string a = folder_ / "d/a.h5", b = folder_ / "d/b.h5";
        return {{a, b}, {a + "," + b}, {folder_ / "d"}, {folder_ / "d/?.h5"}};
    }
    static Words repeated(const std::string& option, const Words& values) {
        Words words;
        for (const std::string& value : values) words = words + Words{option, value};
        return words;
    }

    Words fields_{"--field", "images=/x/data:HW", "--field", "labels=/y"};
};

TEST_F(DataGrammar, IsThatOfCommandsThatTakeWords) {
    for (const Words& where : ways()) {
        EXPECT_THAT(output(Words{"data", "inspect"} + where + fields_), has("samples    120 in"));
        EXPECT_THAT(output(Words{"data", "verify"} + where + fields_), has("every block"));
        EXPECT_THAT(output(Words{"data", "export", "--out", folder_ / "npy"} + where + fields_),
                    has("labels.npy: 120 samples of i64"));
        fs::remove_all(folder_ / "npy");
        output(Words{"data", "pack", "--out", folder_ / "p"} + repeated("--hdf5", where) + fields_);
        EXPECT_THAT(output({"data", "inspect", folder_ / "p"}), has("samples    120 in"));
        fs::remove_all(folder_ / "p");
    }
}

TEST_F(DataGrammar, IsThatOfCommandsWithTheOptionData) {
    const Words once{
        "bench", "io", "--rounds", "1", "--threads", "1", "--pass", "1MiB", "--cache", "hot"};
    const Words train{"train", "--model", "mlp", "--batch", "8", "--max-steps", "2"};
    for (const Words& where : ways()) {
        const Words data = repeated("--data", where) + fields_;
        EXPECT_THAT(output(once + data), has(" 120 samples of "));
        const std::string run = folder_ / "run";
        output(train + data + Words{"--run", run} + repeated("--test-data", where));
        const Words used = Words{run} + repeated("--data", where);
        EXPECT_THAT(output(Words{"eval"} + used), has("samples       120"))
            << "whose fields are the run's";
        EXPECT_THAT(output(Words{"predict", "--out", folder_ / "o.npy"} + used + fields_),
                    has("f32 [120, 7]"));
        fs::remove_all(run);
        fs::remove(folder_ / "o.npy");
    }
}

TEST_F(DataGrammar, IsRefusedAlikeWhereItIsNone) {
    const std::string where = folder_ / "d";
    const std::vector<Words> commands{
        {"data", "inspect", where},
        {"data", "verify", where},
        {"data", "export", "--out", folder_ / "o", where},
        {"data", "pack", "--out", folder_ / "o", "--hdf5", where},
        {"bench", "io", "--data", where},
        {"train", "--run", folder_ / "o", "--data", where},
        {"eval", folder_ / "none", "--data", where},
        {"predict", folder_ / "none", "--out", folder_ / "o", "--data", where}};
    for (const Words& command : commands) {
        const auto refused = [&](const std::string& field) {
            return output_of(run_lockstep(command + Words{"--field", field}), testing::Ne(0));
        };
        EXPECT_THAT(refused("images=/x/data:banana"), has("'banana' is no layout"));
        EXPECT_THAT(refused("images"), has("E235"));
        EXPECT_FALSE(fs::exists(folder_ / "o"));
    }
}

// A link is followed if that is said, and a run remembers.
TEST_F(DataGrammar, FollowsLinksWhereTheyAreTrusted) {
    write_foreign(folder_ / "data.h5", images_and_labels(60, 1));
    const std::string file = folder_ / "links.h5";
    link_foreign(file, {{"x", folder_ / "data.h5", "/x/data"}, {"y", folder_ / "data.h5", "/y"}});
    const Words fields{"--field", "images=/x:HW", "--field", "labels=/y"};
    EXPECT_THAT(run_lockstep(Words{"data", "inspect", file} + fields),
                says("E205", "if you trust what the file names, add --follow-links"));
    const Words followed = fields + Words{"--follow-links"};
    for (const char* command : {"inspect", "verify"})
        output(Words{"data", command, file} + followed);
    output(Words{"data", "export", file, "--out", folder_ / "npy"} + followed);
    output(Words{"data", "pack", "--hdf5", file, "--out", folder_ / "packed"} + followed);
    const std::string run = folder_ / "run";
    output(typed("train --model mlp --batch 8 --max-steps 2 --data % --run %", {file, run}) +
           followed);
    EXPECT_THAT(output({"eval", run, "--data", file}), has("samples       60"));
    output(typed("train --model mlp --batch 8 --max-steps 4 --data % --run %", {file, run}) +
           followed);
}

TEST_F(DataGrammar, OfWhatIsForPackedDataNamesTheCommandThatPacks) {
    write_foreign(folder_ / "d/a.h5", images_and_labels(60, 1));
    const std::string file = folder_ / "d/a.h5";
    const std::vector<Words> commands{{"data", "reshard", file, "--out", folder_ / "o"},
                                      {"data", "stage", file, "--to", folder_ / "o"},
                                      {"data", "stage", folder_ / "d", "--to", folder_ / "o"}};
    for (const Words& command : commands) {
        EXPECT_THAT(run_lockstep(command),
                    ends(testing::Ne(0),
                         "E216",
                         "pack it first, such as lockstep data pack --hdf5 " + file,
                         " --field images=/x/data --field labels=/y --out NAME\n"));
        EXPECT_FALSE(fs::exists(folder_ / "o"));
    }
}

TEST_F(DataGrammar, OfDamagedFilesNamesTheBlock) {
    auto datasets = images_and_labels(60, 1);
    datasets[0].chunk = {10, 3, 5};
    datasets[0].filters = {{H5Z_FILTER_FLETCHER32, {}}};
    write_foreign(folder_ / "d/a.h5", datasets);
    const std::string before = read_file(folder_ / "d/a.h5");
    const std::string chunk(reinterpret_cast<const char*>(datasets[0].bytes.data()) + 300, 60);
    const std::size_t at = before.find(chunk);
    ASSERT_NE(at, std::string::npos);
    std::string bad = before;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    write_file_atomically(folder_ / "d/a.h5", bad);
    EXPECT_THAT(run_lockstep(Words{"data", "verify", folder_ / "d"} + fields_),
                fails("E213", "field 'images', block 2", "1 finding(s)"));
}

}  // namespace
}  // namespace lockstep::test
