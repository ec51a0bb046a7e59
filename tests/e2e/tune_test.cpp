// SPDX-License-Identifier: Apache-2.0
// `lockstep tune` on a tiny training: what it tries, what it leaves, and the file it writes.
#include "program.hpp"

namespace lockstep::test {
namespace {

Words tune(const fs::path& out) {
    return Words{"tune", SmallData::get().train(), "--model", "mlp", "--batch", "48"} +
           Words{"--out", out};
}

// The gain is the machine's; that equal bits were seen, and by how many trainings, is not.
TEST(Tune, TriesInTurnsAndProvesThatNoBitChanges) {
    const TempDir folder;
    const std::string result =
        output_of(run_lockstep(tune(folder / "tuned.toml") +
                               Words{"--knobs", "leaves,transport", "--rounds", "2", "--json"} +
                               Words{"--np", "1", "--virtual-ranks", "4", "--steps", "30"}));
    const Json found = parse_json(result, "tune");
    EXPECT_EQ(found["virtual_ranks"].get<int>(), 4);
    EXPECT_EQ(found["parameters"].get<std::string>().size(), 32u);
    EXPECT_GE(found["tried"].size(), 2u) << found;
    for (const Json& way : found["tried"]) {
        EXPECT_FALSE(way["decides_bits"].get<bool>()) << way;
        EXPECT_EQ(way["parameters"], found["parameters"]) << way;
        EXPECT_GE(way["step_s"].size(), 2u) << way;
    }
    EXPECT_FALSE(found["changes_bits"].get<bool>());
    EXPECT_THAT(found["not_tried"].dump(), has("transport: it has one value here"));
    EXPECT_THAT(read_file(folder / "tuned.toml"), has("# Found by lockstep tune, "));
    EXPECT_THAT(run_lockstep(train_words(SmallData::get().train(), folder / "run", "mlp", 48) +
                             typed("--config % --max-steps 2", {folder / "tuned.toml"})),
                ends(0));
}

TEST(Tune, SaysWhatIsWrong) {
    const TempDir folder;
    const fs::path out = folder / "tuned.toml";
    const auto said = [](const Words& words) { return run_lockstep(words).output; };
    EXPECT_THAT(said({"tune"}), has("error E105: "));
    EXPECT_THAT(said({"tune", folder / "none"}), has("error E201: "));
    EXPECT_THAT(said(tune(folder / "none" / "tuned.toml")), has("error E401: "));
    EXPECT_THAT(said(tune(out) + Words{"--data", "x"}), has("error E106: "));
    EXPECT_THAT(said(tune(out) + Words{"--hosts", "a:1,b:1"}), has("error E106: "));
    EXPECT_THAT(said(tune(out) + Words{"--knobs", "io"}), has("'io' is none of np, "));
    write_file_atomically(out, "");
    EXPECT_THAT(said(tune(out)), has("error E407: "));
    EXPECT_EQ(read_file(out), "");
    const fs::path other = folder / "other.toml";
    EXPECT_THAT(run_lockstep(tune(other) + Words{"--minutes", "0.01"}),
                ends(64, "error E742: --minutes 0.01 is too little"));
    EXPECT_FALSE(fs::exists(other));
}

}  // namespace
}  // namespace lockstep::test
