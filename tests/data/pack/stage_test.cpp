// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/check.hpp"
#include "lockstep/data/pack.hpp"

#include "data/fake_team.hpp"
#include "data/samples.hpp"
#include "pack/pack_space.hpp"
#include "support/unit.hpp"

#include <atomic>
#include <deque>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Runs `member` on nodes that are threads, each with a folder of its own.
std::vector<std::exception_ptr> run_nodes(int nodes,
                                          int width,
                                          const std::function<void(const StageTeam&)>& member) {
    std::deque<test::FakeGather> in_node, in_column;
    for (int node = 0; node < nodes; ++node) in_node.emplace_back(width);
    for (int column = 0; column < width; ++column) in_column.emplace_back(nodes);
    return test::run_team(nodes * width, [&](const Team& all) {
        const int node = all.rank / width, local = all.rank % width;
        auto& near = in_node[static_cast<std::size_t>(node)];
        auto& column = in_column[static_cast<std::size_t>(local)];
        const auto gather_near = [&](const std::string& bytes) { return near(local, bytes); };
        const auto broadcast = [&](const std::string& bytes, int owner) {
            return column(node, bytes)[static_cast<std::size_t>(owner)];
        };
        member({.all = all,
                .node = {local, width, gather_near},
                .node_number = node,
                .nodes = nodes,
                .columns = width,
                .broadcast = broadcast});
    });
}

class Stage : public InFolder {
  protected:
    void SetUp() override {
        test::IdxPack options = test::options_for(folder_, test::make_samples(900), "source");
        options.shards = 5;
        manifest_ = pack_dataset(options).manifest;
        for (const Shard& shard : manifest_.shards) bytes_ += shard.bytes;
    }
    fs::path copy(int node) const { return folder_ / fmt::format("node{}", node) / "data"; }

    /// Stages over `nodes` nodes; returns what each failed with, or "". Adds to read_ and sent_.
    std::vector<std::string> stage(int nodes,
                                   int width,
                                   StageTrust trust = StageTrust::sizes,
                                   const StageReport& report = {}) {
        read_ = 0;
        return test::codes_of(run_nodes(nodes, width, [&](const StageTeam& team) {
            const StageResult result = stage_dataset({.source = folder_ / "source",
                                                      .target = copy(team.node_number),
                                                      .trust = trust,
                                                      .piece_bytes = 1000,
                                                      .round_bytes = 12000,
                                                      .team = team},
                                                     report);
            read_ += result.read_bytes;
            sent_ = result.sent_bytes;
        }));
    }
    void expect_whole(int nodes) const {
        for (int node = 0; node < nodes; ++node) {
            EXPECT_THAT(verify_dataset(copy(node)), IsEmpty());
            EXPECT_EQ(test::open_index(copy(node))->digest(), manifest_.digest);
            for (const auto& entry : fs::directory_iterator(copy(node)))
                EXPECT_NE(entry.path().extension(), ".part");
        }
    }

    Manifest manifest_;
    std::uint64_t bytes_ = 0;
    std::atomic<std::uint64_t> read_ = 0, sent_ = 0;
};

TEST_F(Stage, ReadsTheSourceOnceHoweverManyNodes) {
    for (const int nodes : {1, 2, 3})
        for (const int width : {1, 2}) {
            EXPECT_THAT(stage(nodes, width), Each(""));
            EXPECT_EQ(read_, bytes_) << nodes << " " << width;
            expect_whole(nodes);
            for (int node = 0; node < nodes; ++node) unstage_dataset(copy(node));
            EXPECT_FALSE(fs::exists(copy(0)));
        }
}

TEST(StagePlan, SharesTheBytesEvenlyAndOnceInRoundsOfEnoughBytes) {
    Manifest manifest;
    for (const std::uint64_t bytes : {5000u, 1u, 12345u, 800u})
        manifest.shards.push_back({.name = "s", .bytes = bytes});
    std::map<int, std::uint64_t> by_node;
    std::map<std::size_t, std::uint64_t> by_shard;
    for (int column = 0; column < 3; ++column)
        for (const StagePiece& piece : pieces_of_column(manifest, {0, 2, 3}, 100, column, 3, 4)) {
            by_node[piece.owner] += piece.bytes;
            by_shard[piece.shard] += piece.bytes;
        }
    EXPECT_EQ(by_shard, (std::map<std::size_t, std::uint64_t>{{0, 5000}, {2, 12345}, {3, 800}}));
    for (const auto& [node, bytes] : by_node)
        EXPECT_NEAR(static_cast<double>(bytes), 18145 / 4, 400);
    Manifest small;
    for (const std::uint64_t bytes : {5u, 3u, 9u, 20u, 1u})
        small.shards.push_back({.name = "s", .bytes = bytes});
    using Rounds = std::vector<std::vector<std::size_t>>;
    EXPECT_EQ(stage_rounds(small, {0, 1, 2, 3, 4}, 8), (Rounds{{0, 1}, {2}, {3}, {4}}));
    EXPECT_EQ(stage_rounds(small, {0, 3, 4}, 100), (Rounds{{0, 3, 4}}));
    EXPECT_EQ(stage_rounds(small, {}, 8), Rounds{});
}

TEST_F(Stage, UsesAgainWhatIsWholeAndRepairsTheRest) {
    EXPECT_THAT(stage(2, 2), Each(""));
    EXPECT_THAT(stage(2, 2), Each(""));
    EXPECT_EQ(read_, 0u);
    fs::resize_file(copy(1) / manifest_.shards[3].name, 10);
    EXPECT_THAT(stage(2, 2), Each(""));
    EXPECT_EQ(read_, manifest_.shards[3].bytes);
    test::overwrite(copy(0) / manifest_.shards[1].name, 3000, "damage");
    fs::remove(copy(1) / manifest_.shards[1].name);
    fs::remove(copy(1) / manifest_.shards[2].name);
    EXPECT_THAT(stage(2, 2, StageTrust::hashes), Each(""));
    EXPECT_EQ(read_, manifest_.shards[1].bytes + manifest_.shards[2].bytes);
    expect_whole(2);
}

TEST_F(Stage, FailsOnAllNodesAlikeAndLeavesNothing) {
    const fs::path shard = folder_ / "source" / manifest_.shards[2].name;
    test::overwrite(shard, 3000, "damage");
    EXPECT_THAT(stage(2, 2), Each("E213"));
    fs::resize_file(shard, 5000);
    EXPECT_THAT(stage(3, 1), Each("E204"));
    fs::remove(shard);
    EXPECT_THAT(stage(2, 1), Each("E201"));
    for (int node = 0; node < 3; ++node) {
        const fs::path home = copy(node).parent_path();
        EXPECT_TRUE(!fs::exists(home) || fs::is_empty(home)) << home;
    }
}

TEST_F(Stage, TouchesNothingThatItDidNotMake) {
    fs::create_directories(copy(1));
    folder_.file("node1/data/precious", "mine");
    EXPECT_THAT(stage(2, 1), Each("E407"));
    EXPECT_EQ(caught_code([&] { unstage_dataset(copy(1)); }), "E243");
    EXPECT_EQ(content_of(copy(1) / "precious"), "mine");
    fs::remove_all(copy(1));
    EXPECT_THAT(stage(2, 1), Each(""));
    fs::remove_all(folder_ / "source");
    pack_dataset(test::options_for(folder_, test::make_samples(50, 7), "source"));
    EXPECT_THAT(stage(2, 1), Each("E243"));
}

TEST_F(Stage, KeepsWholeFilesWhenInterruptedAndGoesOn) {
    for (const auto& [nodes, width] : {std::pair(1, 1), std::pair(2, 2)}) {
        const StageReport interrupt = [](std::uint64_t done, std::uint64_t total) {
            if (2 * done > total) throw Error("E242", "staging was interrupted");
        };
        EXPECT_THAT(stage(nodes, width, StageTrust::sizes, interrupt), Each("E242"));
        EXPECT_FALSE(fs::exists(copy(0)));
        std::uint64_t kept = 0;
        for (const auto& entry : fs::directory_iterator(copy(0).parent_path() / ".data.partial")) {
            EXPECT_NE(entry.path().extension(), ".part");
            kept += entry.file_size();
        }
        EXPECT_GT(kept, 0u);
        folder_.file("node0/.data.partial/other.h5", "of another data set");
        EXPECT_THAT(stage(nodes, width), Each(""));
        EXPECT_EQ(read_, bytes_ - kept);
        EXPECT_FALSE(fs::exists(copy(0) / "other.h5"));
        expect_whole(nodes);
        for (int node = 0; node < nodes; ++node) unstage_dataset(copy(node));
    }
}

TEST_F(Stage, SaysHowFarItIsToTheEnd) {
    std::uint64_t last = 0, whole = 0;
    const StageReport report = [&](std::uint64_t done, std::uint64_t total) {
        EXPECT_GE(done, std::exchange(last, done));
        whole = total;
    };
    EXPECT_THAT(stage(1, 1, StageTrust::sizes, report), Each(""));
    EXPECT_EQ(last, bytes_);
    EXPECT_EQ(whole, bytes_);
}

TEST_F(Stage, GoesOnWithWholeFilesOfAKilledPredecessor) {
    const fs::path partial = copy(0).parent_path() / ".data.partial";
    fs::create_directories(partial);
    const auto name = [&](std::size_t shard) { return manifest_.shards[shard].name; };
    fs::copy_file(folder_ / "source" / name(0), partial / name(0));
    fs::copy_file(folder_ / "source" / name(1), partial / name(1));
    test::overwrite(partial / name(1), 4000, "damage");
    folder_.file(fmt::format("node0/.data.partial/{}.part", name(0)), "left");
    EXPECT_THAT(stage(1, 2), Each(""));
    EXPECT_EQ(read_, bytes_ - manifest_.shards[0].bytes);
    expect_whole(1);
}

}  // namespace
}  // namespace lockstep
