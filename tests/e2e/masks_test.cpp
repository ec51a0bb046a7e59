// SPDX-License-Identifier: Apache-2.0
// Folders of images and masks, from files to predictions, by the page's own commands.
#include "lockstep/core/split.hpp"

#include "program.hpp"

namespace lockstep::test {
namespace {

// A bright square on a dark ground; its mask is 255 there.
void write_cell(const fs::path& folder, const std::string& name, int number, bool has_mask) {
    constexpr int side = 80;
    const int top = number * 7 % 40, left = number * 11 % 40;
    std::string image, mask;
    for (int y = 0; y < side; ++y)
        for (int x = 0; x < side; ++x) {
            const bool is_cell = y >= top && y < top + 32 && x >= left && x < left + 32;
            mask += is_cell ? '\xff' : '\0';
            for (int c = 0; c < 3; ++c)
                image +=
                    static_cast<char>((is_cell ? 170 : 40) + (y * 3 + x * 5 + c * number) % 30);
        }
    fs::create_directories(folder / "images");
    fs::create_directories(folder / "masks");
    fs::create_directories(folder / "new");
    const std::string size = fmt::format("{0} {0} 255\n", side);
    write_file_atomically(folder / (has_mask ? "images" : "new") / (name + ".ppm"),
                          "P6 " + size + image);
    if (has_mask) write_file_atomically(folder / "masks" / (name + ".pgm"), "P5 " + size + mask);
}

TEST(MaskFolders, AreTrainedOnByThePagesCommands) {
    const TempDir folder;
    for (int i = 0; i < 50; ++i) write_cell(folder.path(), fmt::format("c{:02}", i), i, true);
    for (int i = 50; i < 54; ++i) write_cell(folder.path(), fmt::format("c{:02}", i), i, false);
    const std::string page = content_of(LOCKSTEP_TRAINING_PAGE);
    const std::string from = page.substr(page.find("## Segmentation from two folders"));
    const std::size_t begin = from.find("```sh\n") + 6;
    const std::string block = from.substr(begin, from.find("```\n", begin) - begin);
    std::string said;
    for (std::string line : split(block, '\n')) {
        const std::size_t length = line.find("--epochs 20");
        if (length != line.npos) line.replace(length, 11, "--epochs 8 --batch 10");
        const ProcessResult result =
            in_shell(folder.path(), "export LOCKSTEP_OVERSUBSCRIBE=1; " + line);
        ASSERT_EQ(result.exit_code, 0) << line << '\n' << result.output;
        said += result.output;
    }
    EXPECT_THAT(said, has("packed 50 samples into D/cells", Not(has("do not occur"))));
    EXPECT_THAT(said, has("new.npy: i64 [4, 64, 64]", "names in new.names.json"));
    // 16 % of each photo; the training is short.
    EXPECT_THAT(said, has("['c50.ppm', 'c51.ppm', 'c52.ppm', 'c53.ppm'] [0."));
    const std::size_t at = said.find("iou ");
    ASSERT_NE(at, said.npos) << said;
    EXPECT_GT(std::stod(said.substr(at + 4)), 0.6) << said;
    // What the page does, too.
    EXPECT_THAT(
        in_shell(folder.path(), "lockstep data pack --folder images --masks masks --out many"),
        says("(a folder of masks: --mask-values 0,255)"));
    EXPECT_THAT(
        in_shell(folder.path(),
                 "rm masks/c07.pgm; lockstep data pack --folder images --masks masks --out no"),
        ends(65, "E214: 'images/c07.ppm' cannot be packed"));
}

}  // namespace
}  // namespace lockstep::test
