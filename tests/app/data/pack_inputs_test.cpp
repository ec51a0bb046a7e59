// SPDX-License-Identifier: Apache-2.0
#include "data/pack_inputs.hpp"

#include "lockstep/core/environment.hpp"

#include "command.hpp"
#include "support/unit.hpp"

namespace lockstep {
namespace {

std::unique_ptr<RowSource> opened(const std::vector<std::string>& words) {
    PackInputs inputs;
    const OptionTable table = pack_input_sections(inputs);
    const Environment no_environment(std::map<std::string, std::string>{});
    resolve_options(table, parse_line(words, table), no_environment);
    return open_inputs(inputs, "train", {});
}

std::string text_of(const std::vector<std::string>& words) {
    return caught_text([&] { opened(words); });
}

std::string code_of(const std::vector<std::string>& words) {
    return caught_code([&] { opened(words); });
}

TEST(PackInputs, TakeFurtherFilesOfAList) {
    PackInputs inputs;
    inputs.text = {"a"};
    add_files(inputs, {"b", "c"});
    EXPECT_THAT(inputs.text, ElementsAre("a", "b", "c"));
    PackInputs table;
    table.csv = "a";
    add_files(table, {});
    EXPECT_THAT(caught_text([&] { add_files(table, {"b"}); }),
                HasSubstr("E101: unexpected argument 'b'"));
}

TEST(PackInputs, AreOneOfManyKinds) {
    EXPECT_THAT(text_of({}), HasSubstr("E105: no input is given"));
    EXPECT_THAT(text_of({"--csv", "a", "--folder", "b"}),
                HasSubstr("E106: several inputs are given: --csv, --folder"));
    EXPECT_THAT(text_of({"--images", "a"}),
                HasSubstr("E105: --labels is missing; --images needs it"));
    EXPECT_EQ(code_of({"--hdf5", "a"}), "E105");
    EXPECT_THAT(text_of({"--text", "a"}), HasSubstr("E105: --length is missing; --text needs it"));
    EXPECT_EQ(code_of({"--tokens", "a", "--token-type", "u16"}), "E105");
}

TEST(PackInputs, TakeOptionsOfTheirOwnOnly) {
    EXPECT_THAT(text_of({"--csv", "a", "--resize", "2x2"}),
                HasSubstr("--resize does not go with --csv\n  why: it is for --folder"));
    EXPECT_EQ(code_of({"--folder", "a", "--layout", "hwc"}), "E106");
    EXPECT_EQ(code_of({"--csv", "a", "--label", "x", "--target", "y"}), "E106");
    EXPECT_EQ(code_of({"--csv", "a", "--length", "4"}), "E106");
    EXPECT_EQ(code_of({"--text", "a", "--length", "4", "--token-type", "u16"}), "E106");
    EXPECT_EQ(code_of({"--tokens", "a", "--length", "4", "--token-type", "u8"}), "E103");
    EXPECT_EQ(code_of({"--npy", "a"}), "E103");
    EXPECT_EQ(code_of({"--folder", "a", "--resize", "2"}), "E103");
    EXPECT_EQ(code_of({"--cifar10", "none"}), "E201");
}

TEST(PackInputs, AreOpenedAsTold) {
    const TempDir folder;
    const std::string csv = folder.file("x.csv", "1;2;a\n3;4;b\n");
    const auto source = opened(
        {"--csv", csv, "--label", "3", "--separator", "semicolon", "--real", "f64", "--header=no"});
    EXPECT_EQ(source->samples(), 2u);
    EXPECT_EQ(source->fields()[0].type, ElementType::f64);
    EXPECT_THAT(source->fields()[1].class_names, ElementsAre("a", "b"));
    const std::string text = folder.file("x.txt", "abcde");
    EXPECT_EQ(opened({"--text", text, "--text", text, "--length", "3"})->samples(), 3u);
    EXPECT_EQ(
        opened({"--tokens", folder.file("x.bin", "abcdef"), "--length", "1", "--token-type=u16"})
            ->samples(),
        2u);
}

}  // namespace
}  // namespace lockstep
