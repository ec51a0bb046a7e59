// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/pack.hpp"

#include "lockstep/data/check.hpp"

#include "data/fake_team.hpp"
#include "data/samples.hpp"
#include "support/unit.hpp"

#include <cmath>
#include <csignal>
#include <cstdlib>

#include <fmt/format.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace lockstep {
namespace {

class Pack : public InFolder {
  protected:
    std::vector<std::string> leftovers() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(folder_.path()))
            if (entry.is_directory()) names.push_back(entry.path().filename());
        return names;
    }

    test::Samples samples_ = test::make_samples(100);
};

TEST_F(Pack, RoundTripsWithEveryCodecAndShardCount) {
    for (const Codec codec : {Codec::none, Codec::deflate, Codec::lz4, Codec::zstd})
        for (const int shards : {1, 3, 7}) {
            test::IdxPack options = test::options_for(
                folder_, samples_, fmt::format("{}-{}", codec_name(codec), shards), codec);
            options.shards = shards;
            const PackResult result = pack_dataset(options);
            EXPECT_EQ(result.manifest.shards.size(), static_cast<std::size_t>(shards));
            EXPECT_EQ(test::read_all(test::open_index(options.output)),
                      test::expected_content(samples_, options))
                << codec_name(codec);
        }
}

RC_GTEST_PROP(PackProperty, AnySmallDataSetComesBackAsItWas, ()) {
    const TempDir folder;
    const auto size = [](std::uint32_t most) { return *rc::gen::inRange<std::uint32_t>(1, most); };
    const test::Samples samples = test::make_samples(*rc::gen::inRange<std::uint64_t>(1, 200),
                                                     *rc::gen::arbitrary<std::uint64_t>(),
                                                     {size(4), size(9), size(9), {}, {}});
    test::IdxPack options =
        test::options_for(folder,
                          samples,
                          "any",
                          *rc::gen::element(Codec::none, Codec::deflate, Codec::lz4, Codec::zstd));
    options.block_rows = size(50);
    const auto blocks = static_cast<int>((samples.count() - 1) / options.block_rows + 1);
    options.shards = *rc::gen::inRange(0, std::min(blocks, 2) + 1);
    options.threads = *rc::gen::inRange(1, 4);
    options.shuffle_seed.reset();
    if (*rc::gen::arbitrary<bool>()) options.shuffle_seed = *rc::gen::arbitrary<std::uint64_t>();
    const auto index = test::packed(options);
    const StreamOptions stream{.batch = *rc::gen::inRange(1, 100)};
    RC_ASSERT(test::read_all(index, stream) == test::expected_content(samples, options));
}

TEST_F(Pack, IsForSharingAsTheUmaskSays) {
    const test::IdxPack options = test::options_for(folder_, samples_, "toy");
    const mode_t before = ::umask(027);
    pack_dataset(options);
    ::umask(before);
    EXPECT_EQ(fs::status(options.output).permissions(), fs::perms(0750));
    for (const auto& entry : fs::directory_iterator(options.output))
        EXPECT_EQ(entry.status().permissions(), fs::perms(0640)) << entry.path();
}

TEST_F(Pack, NamesShardsAndCountsThem) {
    test::IdxPack options = test::options_for(folder_, samples_, "toy");
    options.shards = 2;
    options.name = "other";
    const Manifest manifest = pack_dataset(options).manifest;
    EXPECT_EQ(manifest.shards[0].name, "other-00000-of-00002.h5");
    EXPECT_EQ(manifest.shards[1].name, "other-00001-of-00002.h5");
    EXPECT_EQ(manifest.shards[0].samples + manifest.shards[1].samples, 100u);
    EXPECT_EQ(manifest.shards[0].samples % 16, 0u);
}

TEST_F(Pack, ComputesStatistics) {
    test::IdxPack options = test::options_for(folder_, samples_, "toy");
    options.class_names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    const Manifest manifest = pack_dataset(options).manifest;
    double sum = 0, squares = 0, count = 0;
    for (const std::string& image : samples_.images)
        for (const char pixel : image) {
            const double value = static_cast<unsigned char>(pixel) / 255.0;
            sum += value;
            squares += value * value;
            ++count;
        }
    EXPECT_NEAR(manifest.fields[0].mean.at(0), sum / count, 1e-12);
    EXPECT_NEAR(manifest.fields[0].std.at(0),
                std::sqrt(squares / count - sum / count * sum / count),
                1e-12);
    std::vector<std::uint64_t> counts(10);
    for (const std::uint8_t label : samples_.labels) ++counts[label];
    EXPECT_EQ(manifest.fields[1].class_counts, counts);
    EXPECT_EQ(manifest.fields[1].class_names, options.class_names);
}

TEST_F(Pack, ShufflesRowsUnlessAskedNotTo) {
    test::IdxPack options = test::options_for(folder_, samples_, "kept");
    options.shuffle_seed.reset();
    EXPECT_EQ(pack_dataset(options).manifest.row_order, "source");
    const auto kept = test::read_all(test::open_index(options.output));
    EXPECT_EQ(kept.at(17).image, samples_.images[17]);
    options.output = folder_ / "shuffled";
    options.shuffle_seed = 5;
    EXPECT_EQ(pack_dataset(options).manifest.row_order, "shuffled:5");
    EXPECT_NE(test::read_all(test::open_index(options.output)), kept);
}

TEST_F(Pack, RefusesOptionsThatMakeNoSense) {
    const auto code_with = [&](auto change) {
        test::IdxPack options = test::options_for(folder_, samples_, "toy");
        change(options);
        return caught_code([&] { pack_dataset(options); });
    };
    EXPECT_EQ(code_with([](test::IdxPack& o) { o.shards = 8; }), "E106");
    EXPECT_EQ(code_with([](test::IdxPack& o) { o.shards = -1; }), "E102");
    EXPECT_EQ(code_with([](test::IdxPack& o) { o.name = "a/b"; }), "E102");
    EXPECT_EQ(code_with([](test::IdxPack& o) { o.name = ".."; }), "E102");
    EXPECT_EQ(code_with([](test::IdxPack& o) { o.level = 1; }), "E102");
    EXPECT_EQ(code_with([](test::IdxPack& o) { o.codec = Codec::lz4, o.level = 40; }), "E102");
    EXPECT_EQ(code_with([](test::IdxPack& o) { o.classes = 11, o.class_names = {"a"}; }), "E106");
    EXPECT_EQ(code_with([](test::IdxPack& o) { o.output = o.images / "toy"; }), "E401");
    EXPECT_THAT(leftovers(), ElementsAre());
}

TEST_F(Pack, LeavesNothingBehindWhenCancelledBeforeAnythingIsFinished) {
    const test::IdxPack options = test::options_for(folder_, samples_, "toy");
    for (const std::string_view stage : {"scan", "write"}) {
        EXPECT_THROW(pack_dataset(options, test::ending_at(stage)), std::runtime_error);
        EXPECT_THAT(leftovers(), ElementsAre()) << stage;
    }
}

// Exits with 7 if packing fails as it should where no file may have more than `bytes`.
[[noreturn]] void pack_and_exit(const test::IdxPack& options, rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::exit(caught_code([&] { pack_dataset(options); }) == "E402" ? 7 : 8);
}

// A limit on the size of files stands in for a full disk. HDF5 would crash at exit.
TEST_F(Pack, EndsInOrderWhenNothingMoreCanBeWritten) {
    for (const Codec codec : {Codec::none, Codec::lz4})
        for (const rlim_t bytes : {100, 3000, 7000, 9000}) {
            const test::IdxPack options = test::options_for(
                folder_, test::make_samples(2000), fmt::format("{}", bytes), codec);
            EXPECT_EXIT(pack_and_exit(options, bytes), testing::ExitedWithCode(7), "");
            EXPECT_THAT(leftovers(), ElementsAre());
        }
}

TEST_F(Pack, RefusesToOverwriteAndLetsOnlyOneWriteAtATime) {
    test::IdxPack options = test::options_for(folder_, samples_, "toy");
    std::string code;
    pack_dataset(options, [&](const PackProgress& progress) {
        if (progress.stage == "write" && code.empty())
            code = caught_code([&] { pack_dataset(options); });
    });
    EXPECT_EQ(code, "E404");
    EXPECT_EQ(caught_code([&] { pack_dataset(options); }), "E407");
    fs::create_directory(folder_ / "empty");
    options.output = folder_ / "empty";
    EXPECT_EQ(caught_code([&] { pack_dataset(options); }), "E407");
}

TEST_F(Pack, ReportsProgressToTheEnd) {
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> last;
    pack_dataset(test::options_for(folder_, samples_, "toy"), [&](const PackProgress& progress) {
        last[std::string(progress.stage)] = {progress.done, progress.total};
    });
    ASSERT_EQ(last.size(), 3u);
    for (const auto& [stage, progress] : last) EXPECT_EQ(progress.first, progress.second) << stage;
}

class Reshard : public InFolder {
  protected:
    void SetUp() override {
        packed_ = test::options_for(folder_, samples_, "in", Codec::lz4);
        packed_.shards = 3;
        packed_.class_names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
        manifest_ = pack_dataset(packed_).manifest;
        options_.output = folder_ / "out";
        options_.split = "";
        options_.shuffle_seed.reset();
    }
    Manifest reshard(const Team& team = {}, std::uint64_t memory_bytes = 1 << 20) {
        test::IdxPack options = options_;
        options.team = team;
        return reshard_dataset(test::open_index(packed_.output), options, memory_bytes).manifest;
    }

    test::Samples samples_ = test::make_samples(700);
    test::IdxPack packed_, options_;
    Manifest manifest_;
};

TEST_F(Reshard, KeepsSamplesAndWhatIsKnownOfThem) {
    options_.codec = Codec::zstd;
    options_.shards = 5;
    options_.block_rows = 24;
    options_.threads = 3;
    const Manifest made = reshard();
    EXPECT_EQ(made.shards.size(), 5u);
    EXPECT_EQ(made.block_rows, 24u);
    EXPECT_EQ(made.row_order, "shuffled:0");
    EXPECT_EQ(made.split, manifest_.split);
    EXPECT_EQ(made.fields, manifest_.fields);
    EXPECT_THAT(verify_dataset(options_.output), IsEmpty());
    EXPECT_EQ(test::read_all(test::open_index(options_.output)),
              test::expected_content(samples_, packed_));
}

TEST_F(Reshard, KeepsTheBlocksByWhichTrainingIsOrdered) {
    options_.block_rows = 0;
    options_.shards = 2;
    EXPECT_EQ(reshard().block_rows, manifest_.block_rows);
}

TEST_F(Reshard, ShufflesAgainInLittleMemoryOnAnyRanks) {
    options_.shuffle_seed = 11;
    options_.shards = 4;
    options_.block_rows = 16;
    const auto before = test::expected_content(samples_, packed_);
    std::map<std::uint64_t, test::Delivered> expected;
    const auto order = test::packed_order(700, options_);
    for (std::uint64_t row = 0; row < 700; ++row) expected[row] = before.at(order[row]);
    const Manifest made = reshard({}, 4000);
    EXPECT_EQ(made.row_order, "shuffled:11");
    EXPECT_EQ(test::read_all(test::open_index(options_.output)), expected);
    EXPECT_FALSE(fs::exists(folder_ / ".out.shuffle.partial"));
    for (const int ranks : {2, 3}) {
        fs::remove_all(options_.output);
        options_.threads = ranks;
        test::run_team(ranks, [&](const Team& team) {
            EXPECT_EQ(reshard(team, 20000 * static_cast<std::uint64_t>(ranks)), made);
        });
    }
}

TEST_F(Reshard, GoesOnAfterAnInterruption) {
    options_.shards = 6;
    options_.block_rows = 16;
    const auto index = test::open_index(packed_.output);
    EXPECT_THROW(reshard_dataset(index, options_, 1 << 20, test::ending_at("write", 401)),
                 std::runtime_error);
    EXPECT_EQ(reshard_dataset(index, options_, 1 << 20).resumed_shards, 3u);
    EXPECT_EQ(test::read_all(test::open_index(options_.output)),
              test::expected_content(samples_, packed_));
}

TEST_F(Reshard, NamesDamageInItsInput) {
    test::damage_block(DatasetIndex::open(packed_.output), 0, 20);
    for (const bool shuffles : {false, true}) {
        if (shuffles) options_.shuffle_seed = 1;
        const Error error = test::error_of([&] { reshard(); });
        EXPECT_EQ(error.code(), "E213");
        EXPECT_THAT(error.what(), HasSubstr("field 'images'"));
        EXPECT_FALSE(fs::exists(options_.output));
    }
}

}  // namespace
}  // namespace lockstep
