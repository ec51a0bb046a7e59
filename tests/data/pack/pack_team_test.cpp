// SPDX-License-Identifier: Apache-2.0
// Packing by several, and in several goes.
#include "lockstep/data/check.hpp"
#include "lockstep/data/pack.hpp"

#include "data/fake_team.hpp"
#include "data/samples.hpp"
#include "support/unit.hpp"

#include <atomic>
#include <cmath>
#include <csignal>
#include <limits>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

using Content = std::map<std::string, std::string>;

Content files_in(const fs::path& folder) {
    Content content;
    for (const auto& entry : fs::directory_iterator(folder))
        content[entry.path().filename()] = content_of(entry.path());
    return content;
}

class PackTeam : public InFolder {
  protected:
    void SetUp() override {
        options_ = test::options_for(folder_, samples_, "reference", Codec::lz4);
        options_.name = "toy";
        options_.shards = 7;
        pack_dataset(options_);
        expected_ = files_in(folder_ / "reference");
        options_.output = folder_ / "toy";
    }
    fs::path partial() const { return folder_ / ".toy.partial"; }

    /// Packs in a child that kills itself once `done` samples are reported in `stage`.
    void pack_and_die(std::string_view stage, std::uint64_t done) const {
        const pid_t child = ::fork();
        if (child == 0) {
            pack_dataset(options_, [&](const PackProgress& at) {
                if (at.stage == stage && at.done >= done) ::kill(::getpid(), SIGKILL);
            });
            ::_exit(0);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status)) << stage << " " << done;
    }
    PackResult pack_as(const Team& team, int threads = 1, const PackReport& report = {}) const {
        test::IdxPack options = options_;
        options.team = team;
        options.threads = threads;
        return pack_dataset(options, report);
    }
    void pack_until(std::uint64_t done) const {
        EXPECT_THROW(pack_dataset(options_, test::ending_at("write", done)), std::runtime_error);
    }

    test::Samples samples_ = test::make_samples(500);
    test::IdxPack options_;
    Content expected_;
};

TEST_F(PackTeam, EndsOnAllRanksWhenOneIsInterruptedAtTheEndOfTheScan) {
    for (const int interrupted : {0, 1, 2}) {
        const auto failures = test::run_team(3, [&](const Team& team) {
            pack_as(team, 1, [&](const PackProgress& at) {
                if (team.rank == interrupted && at.stage == "scan" && at.done == at.total)
                    throw Error("E242", "pack was interrupted");
            });
        });
        EXPECT_THAT(test::codes_of(failures), Each("E242")) << interrupted;
    }
}

TEST_F(PackTeam, GivesTheSameBytesWithAnyRanksAndThreads) {
    for (const int ranks : {1, 2, 3, 4, 9})
        for (const int threads : {1, 3}) {
            std::atomic<int> done = 0;
            test::run_team(ranks, [&](const Team& team) {
                pack_as(team, threads);
                ++done;
            });
            EXPECT_EQ(done, ranks);
            EXPECT_EQ(files_in(options_.output), expected_) << ranks << " " << threads;
            fs::remove_all(options_.output);
        }
}

// Also those that have no shard to write in the last round.
TEST_F(PackTeam, TellsEveryRankWhenAllIsWritten) {
    test::run_team(4, [&](const Team& team) {
        std::uint64_t written = 0;
        pack_as(team, 1, [&](const PackProgress& at) {
            if (at.stage == "write") written = at.done;
        });
        EXPECT_EQ(written, 500u) << team.rank;
    });
}

TEST_F(PackTeam, GoesOnAfterBeingKilledAtAnyMoment) {
    struct Moment {
        std::string_view stage;
        std::uint64_t done;
        std::size_t finished;
    };
    // 32 blocks of 16 rows in shards of 4 or 5 blocks.
    for (const Moment& at : {Moment{"scan", 1, 0},
                             {"write", 1, 0},
                             {"write", 65, 1},
                             {"write", 300, 4},
                             {"write", 500, 6},
                             {"verify", 1, 7}}) {
        pack_and_die(at.stage, at.done);
        const PackResult result = pack_dataset(options_);
        EXPECT_EQ(result.resumed_shards, at.finished) << at.stage << " " << at.done;
        EXPECT_EQ(files_in(options_.output), expected_) << at.stage << " " << at.done;
        EXPECT_FALSE(fs::exists(partial()));
        fs::remove_all(options_.output);
    }
}

TEST_F(PackTeam, GoesOnAgainAndAgainWithOtherRanksAndThreads) {
    pack_and_die("write", 100);
    pack_until(250);
    pack_and_die("write", 400);
    test::run_team(3, [&](const Team& team) { EXPECT_EQ(pack_as(team, 2).resumed_shards, 5u); });
    EXPECT_EQ(files_in(options_.output), expected_);
}

TEST_F(PackTeam, DoesNotScanAgainAndWritesDamagedLeftoversAgain) {
    pack_until(250);
    test::overwrite(partial() / "toy-00001-of-00007.h5", 5000, "damage");
    test::overwrite(partial() / "toy-00000-of-00007.h5.done", 30, "x");
    const std::size_t left = pack_dataset(options_).resumed_shards;
    EXPECT_EQ(left, 1u);
    EXPECT_EQ(files_in(options_.output), expected_);
    fs::remove_all(options_.output);
    pack_until(250);
    pack_dataset(options_, [&](const PackProgress& at) { EXPECT_NE(at.stage, "scan"); });
    EXPECT_EQ(files_in(options_.output), expected_);
}

TEST_F(PackTeam, RefusesToMixTwoPacks) {
    pack_until(250);
    const Content left = files_in(partial());
    options_.codec = Codec::zstd;
    const Error error = test::error_of([&] { pack_dataset(options_); });
    EXPECT_EQ(error.code(), "E240");
    EXPECT_THAT(error.what(), HasSubstr("3 finished shards"));
    EXPECT_THAT(error.why(), HasSubstr("codec was \"lz4\", now \"zstd\""));
    EXPECT_EQ(files_in(partial()), left);
    options_.codec = Codec::lz4;
    options_.labels = folder_.file("other", test::labels_text(test::make_samples(500, 9)));
    EXPECT_THAT(caught([&] { pack_dataset(options_); })->why(), HasSubstr("input was"));
    options_.leftovers = Leftovers::discard;
    EXPECT_EQ(pack_dataset(options_).resumed_shards, 0u);
    EXPECT_THAT(verify_dataset(options_.output), IsEmpty());
}

TEST_F(PackTeam, FailsOnAllRanksAlikeAndGoesOnAlone) {
    const auto failures = test::run_team(3, [&](const Team& team) {
        pack_as(team, 1, [&](const PackProgress& at) {
            if (team.rank == 1 && at.stage == "write" && at.done > 300)
                throw Error("E405", "the disk of rank 1 is full");
        });
    });
    EXPECT_THAT(test::codes_of(failures), Each("E405"));
    // What the other ranks wrote in the same round stays.
    EXPECT_EQ(pack_dataset(options_).resumed_shards, 5u);
    EXPECT_EQ(files_in(options_.output), expected_);
}

TEST_F(PackTeam, NamesTheFirstBadLabelWhoeverSeesIt) {
    options_.classes = 5;
    for (const int ranks : {1, 2, 4}) {
        for (const auto& failure :
             test::run_team(ranks, [&](const Team& team) { pack_as(team, 2); }))
            EXPECT_THAT(caught_text([&] { std::rethrow_exception(failure); }),
                        HasSubstr("E210: label 5 of input sample 5"));
    }
    for (const fs::path& left : {partial(), options_.output}) EXPECT_FALSE(fs::exists(left));
}

// Features f32[3], a target f64 with values that are not finite, an f32 image [2, 2, 2].
class RealSource : public RowSource {
  public:
    RealSource()
        : RowSource(
              1000,
              {{.name = "features", .type = ElementType::f32, .shape = {3}},
               {.name = "target", .type = ElementType::f64},
               {.name = "image", .type = ElementType::f32, .shape = {2, 2, 2}, .layout = "CHW"}}) {}
    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        if (field == 1) {
            const double value = row % 10 == 3 ? std::numeric_limits<double>::quiet_NaN()
                                               : 1e6 + static_cast<double>(row % 7);
            std::memcpy(out.data(), &value, sizeof value);
            return;
        }
        for (std::size_t i = 0; i < out.size() / 4; ++i) {
            const float value = value_of(row, i);
            std::memcpy(out.data() + 4 * i, &value, 4);
        }
    }
    static float value_of(std::uint64_t row, std::size_t i) {
        return 0.1f * static_cast<float>((row * 7919 + i * 104729) % 1013) + static_cast<float>(i);
    }
    Hash128 fingerprint() const override { return {1, 2}; }
};

TEST(PackScan, GivesRealFieldsTheSameStatisticsOnAnyRanks) {
    const TempDir folder;
    test::IdxPack options;
    options.output = folder / "alone";
    options.name = "toy";
    const Manifest alone = pack_dataset(RealSource(), options).manifest;
    double sum = 0, squares = 0;
    for (std::uint64_t row = 0; row < 1000; ++row) {
        const double value = RealSource::value_of(row, 1);
        sum += value / 1000;
        squares += value * value / 1000;
    }
    ASSERT_EQ(alone.fields[0].mean.size(), 3u);
    EXPECT_NEAR(alone.fields[0].mean[1], sum, 1e-9);
    EXPECT_NEAR(alone.fields[0].std[1], std::sqrt(squares - sum * sum), 1e-9);
    ASSERT_EQ(alone.fields[1].mean.size(), 1u);
    EXPECT_NEAR(alone.fields[1].mean[0], 1e6 + 3, 0.05);
    EXPECT_NEAR(alone.fields[1].std[0], 2, 0.05);
    EXPECT_EQ(alone.fields[2].mean.size(), 2u);
    for (const int ranks : {2, 3, 5}) {
        options.output = folder / fmt::format("team-{}", ranks);
        test::run_team(ranks, [&](const Team& team) {
            test::IdxPack mine = options;
            mine.team = team;
            mine.threads = team.rank + 1;
            EXPECT_EQ(pack_dataset(RealSource(), mine).manifest, alone);
        });
    }
}

}  // namespace
}  // namespace lockstep
