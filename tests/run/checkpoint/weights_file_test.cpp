// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/tensor_files.hpp"

#include "support/unit.hpp"

#include <cstring>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

// The begin of a zip archive whose first file has this name.
std::string zip_of(const std::string& name) {
    std::string header = "PK\x03\x04" + std::string(26, '\0');
    header[26] = static_cast<char>(name.size());
    return header + name + std::string(100, 'x');
}

class OtherWeights : public InFolder {
  protected:
    std::string error(const std::string& name, const std::string& content) {
        return caught_text([&] { WeightsFile{folder_.file(name, content)}; });
    }
};

TEST_F(OtherWeights, AreConvertedByACommand) {
    EXPECT_THAT(error("a.pth", zip_of("a/data.pkl")),
                AllOf(HasSubstr("it begins like a file of torch.save()"),
                      HasSubstr("torch.load(sys.argv[1]"),
                      HasSubstr("'model_state_dict', 'model') if k in d"),
                      EndsWith("a.pth " + (folder_ / "a.safetensors").string())));
    EXPECT_THAT(error("a.pt", zip_of("a/code/__torch__.py")), HasSubstr("torch.jit.load("));
    EXPECT_THAT(error("old.pth", "\x80\x02\x8a\x0a" + std::string(20, 'x')),
                HasSubstr("torch.load(sys.argv[1]"));
    EXPECT_THAT(error("a.npz", zip_of("fc.weight.npy")), HasSubstr("numpy.load("));
    EXPECT_THAT(error("a.safetensors", "version https://git-lfs.github.com/spec/v1\noid x\n"),
                HasSubstr("git lfs pull --include "));
    EXPECT_THAT(error("a.safetensors", "<!DOCTYPE html><html>"), HasSubstr("a page about it"));
    EXPECT_THAT(error("a.safetensors", "PK\x03\x04 of something else, cut"),
                HasSubstr("unpack it: unzip "));
    EXPECT_THAT(error("a.safetensors", ""), HasSubstr("it is empty\n  fix: make or download"));
}

TEST_F(OtherWeights, OfARunAreExported) {
    fs::create_directories(folder_ / "run" / "ckpt" / "step-000001");
    folder_.file("run/run.json", "{}");
    const std::string command = "lockstep export " + (folder_ / "run").string() + " --out";
    EXPECT_THAT(caught_text([&] { WeightsFile{folder_ / "run"}; }), has("E206", command));
    EXPECT_THAT(export_command(folder_ / "run" / "ckpt" / "step-000001" / "shard"),
                HasSubstr(command));
    EXPECT_THAT(export_command("elsewhere/a"), HasSubstr("lockstep export RUN --out"));
}

struct Written {
    TempDir folder;
    fs::path path = folder.path() / "a.safetensors";
    std::vector<float> first = {1, 2, 3, 4, 5, 6}, second = {7};

    Written() {
        SafetensorsEntry entries[] = {{.name = "w", .shape = {2, 3}, .values = first},
                                      {.name = "b[0:1]", .shape = {1}, .values = second}};
        write_safetensors(path, entries);
    }
};

// An independent reading of the format: length, JSON, data.
TEST(Safetensors, HoldsWhatTheFormatSays) {
    const Written written;
    const std::string bytes = read_file(written.path);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    EXPECT_EQ((8 + length) % 64, 0U);
    const Json header = parse_json(bytes.substr(8, length), "header");
    EXPECT_EQ(header["w"]["dtype"], "F32");
    EXPECT_EQ(header["w"]["shape"], Json({2, 3}));
    EXPECT_EQ(header["w"]["data_offsets"], Json({0, 24}));
    EXPECT_EQ(header["b[0:1]"]["data_offsets"], Json({24, 28}));
    EXPECT_EQ(bytes.size(), 8 + length + 28);
    EXPECT_EQ(std::memcmp(bytes.data() + 8 + length, written.first.data(), 24), 0);
    EXPECT_EQ(std::memcmp(bytes.data() + 8 + length + 24, written.second.data(), 4), 0);
}

// Its end and its header are no whole blocks.
TEST(Safetensors, AreTheSameAroundThePageCache) {
    const TempDir folder;
    std::vector<float> first(700'001), second(3);
    std::iota(first.begin(), first.end(), 0.5f);
    const auto written = [&](const char* name, FileAccess access) {
        SafetensorsEntry entries[] = {{.name = "w", .shape = {700'001}, .values = first},
                                      {.name = "b", .shape = {3}, .values = second}};
        write_safetensors(folder / name, entries, {}, access);
        return std::pair(read_file(folder / name), entries[0].hash.hex());
    };
    EXPECT_EQ(written("around", FileAccess::direct), written("through", FileAccess::cached));
}

TEST(Safetensors, RefusesToReplaceAFile) {
    const Written written;
    SafetensorsEntry entry{.name = "w", .shape = {1}, .values = written.second};
    EXPECT_THROW(write_safetensors(written.path, std::span(&entry, 1)), Error);
}

std::vector<BitContract> contracts_of_run_made_with(const fs::path& run, const Json& deciding) {
    RunDirectory::open(run, 0).create({.deciding = deciding});
    return recorded_contracts(run);
}

// Earlier versions could round gradients between ranks.
TEST(RecordedContracts, OfRunsThatSentFp32GoOn) {
    const TempDir folder;
    const auto found = contracts_of_run_made_with(
        folder.path() / "run", {{"seed", 1}, {"wire", "f32"}, {"powersgd-rank", 4}});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].deciding, Json({{"seed", 1}}));
}

TEST(RecordedContracts, OfRunsThatRoundedGradientsAreRefused) {
    const TempDir folder;
    const std::string text = caught_text([&] {
        contracts_of_run_made_with(folder.path() / "run", {{"seed", 1}, {"wire", "bf16"}});
    });
    EXPECT_THAT(text, HasSubstr("error E306: run '"));
    EXPECT_THAT(text, HasSubstr("was made with --wire bf16"));
    EXPECT_THAT(text, HasSubstr("begin another run with its weights: --from "));
}

}  // namespace
}  // namespace lockstep
