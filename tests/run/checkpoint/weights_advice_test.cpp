// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/safetensors.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::caught_text;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

// The begin of a zip archive whose first file has this name.
std::string zip_of(const std::string& name) {
    std::string header = "PK\x03\x04" + std::string(26, '\0');
    header[26] = static_cast<char>(name.size());
    return header + name + std::string(100, 'x');
}

class OtherWeights : public testing::Test {
  protected:
    std::string error(const std::string& name, const std::string& content) {
        return caught_text([&] { WeightsFile{folder_.file(name, content)}; });
    }

    test::TempDir folder_;
};

TEST_F(OtherWeights, AreConvertedByACommand) {
    EXPECT_THAT(error("a.pth", zip_of("a/data.pkl")),
                AllOf(HasSubstr("it begins like a file of torch.save()"),
                      HasSubstr("torch.load(sys.argv[1]"),
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
    EXPECT_THAT(caught_text([&] { WeightsFile{folder_ / "run"}; }),
                AllOf(HasSubstr("E206"), HasSubstr(command)));
    EXPECT_THAT(export_command(folder_ / "run" / "ckpt" / "step-000001" / "shard"),
                HasSubstr(command));
    EXPECT_THAT(export_command("elsewhere/a"), HasSubstr("lockstep export RUN --out"));
}

}  // namespace
}  // namespace lockstep
