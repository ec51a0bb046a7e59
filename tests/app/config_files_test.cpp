// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"

#include "command.hpp"
#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::caught_code;
using test::caught_text;

class StandingConfigs : public testing::Test {
  protected:
    StandingConfigs() { make_directories(folder_.path() / ".config/lockstep"); }

    std::vector<Config> values(Command command) {
        return standing_values(command,
                               all_commands(),
                               Environment({{"HOME", folder_.path().string()},
                                            {"LOCKSTEP_SITE_CONFIG", site_.string()}}));
    }

    test::TempDir folder_;
    std::filesystem::path site_;
};

TEST_F(StandingConfigs, AreTheUsersAndThenTheSites) {
    site_ = folder_.file("site.toml", "[train]\nlr = 0.25\n");
    const auto user = folder_.file(".config/lockstep/config.toml", "[train]\nlr = 0.5\n");
    const auto found = values(train_command());
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].at("lr").origin, user.string() + ":2:6");
    EXPECT_EQ(found[1].at("lr").origin, site_.string() + ":2:6");
}

TEST_F(StandingConfigs, NeedNotExist) {
    EXPECT_TRUE(values(train_command()).empty());
    site_ = folder_.path() / "missing.toml";
    EXPECT_EQ(caught_code([&] { values(train_command()); }), "E116");
}

TEST_F(StandingConfigs, KeepEachCommandsOptionsApart) {
    site_ = folder_.file("site.toml", "[train]\nbatch = 64\n[data.inspect]\nbatch = 32\n");
    EXPECT_EQ(config_text(values(train_command())[0].at("batch").value), "64");
    EXPECT_EQ(config_text(values(data_inspect_command())[0].at("batch").value), "32");
    EXPECT_TRUE(values(doctor_command())[0].empty());
}

TEST_F(StandingConfigs, OfTrainServeCommandsThatTakeItsOptionsAlong) {
    site_ = folder_.file("site.toml", "[train]\nbatch = 64\nlr = 0.5\n[verify]\nlr = 0.25\n");
    const Config found = values(verify_command())[0];
    EXPECT_EQ(config_text(found.at("batch").value), "64");
    EXPECT_EQ(config_text(found.at("lr").value), "0.25");
}

TEST_F(StandingConfigs, KnowEveryTableAndKey) {
    site_ = folder_.file("site.toml", "[trian]\nlr = 0.5\n");
    EXPECT_EQ(caught_text([&] { values(train_command()); }),
              "lockstep: error E111: " + site_.string() +
                  ":2:6: unknown key 'trian.lr'\n"
                  "  why: options stand in a table with their command's name, such as [train]\n"
                  "  fix: did you mean 'train.lr'?");
    site_ = folder_.file("flat.toml", "lr = 0.5\n");
    EXPECT_EQ(caught_code([&] { values(doctor_command()); }), "E111");
    site_ = folder_.file("config.toml", "[train]\nconfig = \"a.toml\"\n");
    EXPECT_EQ(caught_code([&] { values(train_command()); }), "E111");
}

}  // namespace
}  // namespace lockstep
