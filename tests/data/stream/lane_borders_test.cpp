// SPDX-License-Identifier: Apache-2.0
#include "stream/lane_borders.hpp"

#include "packed_samples.hpp"
#include "stream/memory.hpp"
#include "support/caught.hpp"

#include <map>
#include <numeric>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

constexpr std::uint64_t ample = 1u << 30;

// Few blocks, and lanes that begin within them.
class Borders : public test::PackedSamples {
  protected:
    std::shared_ptr<const DatasetIndex> pack(std::uint32_t block_rows = 63) {
        return PackedSamples::pack(Codec::deflate, 0, block_rows);
    }

    static StreamOptions one_lane_a_block() {
        StreamOptions options = test::small_stream();
        options.lanes = 8;
        options.io_threads = 2;
        return options;
    }
};

std::vector<EpochWindow> windows_of_an_epoch(const DatasetIndex& index,
                                             const StreamOptions& options) {
    WindowWalk walk(index.blocks(), options, {});
    std::vector<EpochWindow> windows;
    for (auto window = walk.next(); window && window->order->epoch() == 0; window = walk.next())
        windows.push_back(*window);
    return windows;
}

std::set<std::uint64_t> blocks_of(const EpochOrder& order,
                                  const LaneRange& rows,
                                  std::uint64_t block_rows) {
    std::set<std::uint64_t> blocks;
    for (const RowRun& run : order.rows_of(rows))
        for (std::uint64_t row = run.first; row < run.first + run.rows; ++row)
            blocks.insert(row / block_rows);
    return blocks;
}

// How often a block is read in an epoch, by the plan alone; each sample must come exactly once.
std::map<std::uint64_t, int> reads_of_blocks(const DatasetIndex& index,
                                             const StreamOptions& options,
                                             std::uint64_t bytes) {
    const std::uint64_t block_rows = index.manifest().block_rows;
    LaneBorders borders(lanes_held(index.blocks(), options, {}), {}, bytes);
    std::map<std::uint64_t, int> reads;
    std::uint64_t samples = 0;
    for (const EpochWindow& window : windows_of_an_epoch(index, options)) {
        const SharedRows shared = borders.of(window);
        const LaneRange rest = unkept_rows(window.range, shared);
        std::set<std::uint64_t> blocks = blocks_of(*window.order, rest, block_rows);
        for (const auto& kept : shared.keeps) {
            blocks.merge(blocks_of(*window.order, kept->rows(), block_rows));
            kept->settle(true);
        }
        for (const std::uint64_t block : blocks) ++reads[block];
        std::set<std::uint64_t> found;
        for (const auto& kept : shared.finds) {
            EXPECT_TRUE(kept->are_whole());
            for (std::uint64_t at = kept->rows().begin; at < kept->rows().end; ++at)
                found.insert(at);
        }
        samples += rest.size() + found.size();
    }
    EXPECT_EQ(samples, index.samples());
    return reads;
}

RC_GTEST_FIXTURE_PROP(Borders, ABlockOfTwoLanesIsReadOnce, ()) {
    samples_ = test::make_samples(*rc::gen::inRange<std::uint64_t>(2, 300));
    const auto index = pack(*rc::gen::inRange<std::uint32_t>(1, 60));
    StreamOptions options = test::small_stream();
    options.seed = *rc::gen::arbitrary<std::uint64_t>();
    options.lanes = *rc::gen::inRange(1, 12);
    options.window_blocks = *rc::gen::inRange(1, 5);
    options.batch = *rc::gen::inRange(1, 100);
    // A block of more than two lanes may be read for each border.
    const EpochOrder order(index->blocks(), order_spec(options), 0);
    RC_PRE(order.lane_samples(order.lanes() - 1) >= index->manifest().block_rows);
    for (const auto& [block, reads] : reads_of_blocks(*index, options, ample))
        RC_ASSERT(reads == 1);
}

TEST_F(Borders, AreReadTwiceWithoutMemory) {
    const auto index = pack();
    const auto twice = reads_of_blocks(*index, one_lane_a_block(), 0);
    const EpochOrder order(index->blocks(), order_spec(one_lane_a_block()), 0);
    const auto reads =
        std::accumulate(twice.begin(), twice.end(), 0u, [](std::uint64_t sum, const auto& block) {
            return sum + static_cast<std::uint64_t>(block.second);
        });
    EXPECT_EQ(reads, order.block_reads());
    EXPECT_GT(reads, index->blocks().size());
}

TEST_F(Borders, KeepNoMoreThanThereIsRoomFor) {
    const auto index = pack();
    const StreamOptions options = one_lane_a_block();
    const EpochOrder order(index->blocks(), order_spec(options), 0);
    const std::uint64_t bytes = row_memory(*index, 70);  // of a block and some rows
    LaneBorders borders(lanes_held(index->blocks(), options, {}), {}, bytes);
    std::vector<std::shared_ptr<KeptRows>> all;
    for (const EpochWindow& window : windows_of_an_epoch(*index, options))
        for (auto& kept : borders.of(window).keeps) all.push_back(std::move(kept));
    EXPECT_EQ(all.size(), order.block_reads() - index->blocks().size());
    std::uint64_t kept = 0;
    std::size_t refused = 0;
    for (const auto& rows : all)
        if (rows->take_room(*index))
            kept += row_memory(*index, rows->rows().size());
        else
            ++refused;
    EXPECT_GT(kept, 0u);
    EXPECT_LE(kept, bytes);
    EXPECT_GT(refused, 0u);
    const LaneRange most{0, 0, 70};
    EXPECT_FALSE(
        KeptRows(most, std::make_shared<std::atomic<std::uint64_t>>(bytes - 1)).take_room(*index));
    const auto room = std::make_shared<std::atomic<std::uint64_t>>(bytes);
    EXPECT_TRUE(KeptRows(most, room).take_room(*index));
    EXPECT_EQ(*room, bytes);  // given back
}

TEST_F(Borders, AreNotSharedWithLanesOfOtherRanks) {
    const auto index = pack();
    const StreamOptions options = one_lane_a_block();
    LaneBorders borders({2, 3, 6}, {}, ample);
    for (const EpochWindow& window : windows_of_an_epoch(*index, options)) {
        const SharedRows shared = borders.of(window);
        const bool has_neighbour = window.range.lane == 2 || window.range.lane == 3;
        EXPECT_TRUE(has_neighbour || (shared.keeps.empty() && shared.finds.empty()));
        for (const auto& kept : shared.keeps) EXPECT_EQ(kept->rows().lane, 5 - window.range.lane);
    }
}

// With all that is read ahead.
std::uint64_t blocks_read(std::shared_ptr<const DatasetIndex> index,
                          const StreamOptions& options,
                          std::uint64_t epochs) {
    BatchStream stream(std::move(index), options);
    while (stream.next().next.epoch < epochs) continue;
    return stream.stats().blocks_read;
}

// From the middle of an epoch on a window may have passed: nobody keeps rows for it.
TEST_F(Borders, AreKeptForWhatIsToComeOnly) {
    const auto index = pack();
    const StreamOptions options = one_lane_a_block();
    for (const std::uint64_t consumed : {0, 24, 240, 480}) {
        const StreamPosition start{3, consumed};
        WindowWalk walk(index->blocks(), options, start);
        LaneBorders borders(lanes_held(index->blocks(), options, start), start, ample);
        std::set<KeptRows*> kept;
        for (auto window = walk.next(); window->order->epoch() == start.epoch;
             window = walk.next()) {
            const SharedRows shared = borders.of(*window);
            for (const auto& rows : shared.finds) EXPECT_EQ(kept.erase(rows.get()), 1u);
            for (const auto& rows : shared.keeps) kept.insert(rows.get());
        }
        EXPECT_TRUE(kept.empty()) << consumed;
    }
}

TEST_F(Borders, AreReadOnceAnEpochByTheStreamToo) {
    const auto index = pack();
    const std::uint64_t epochs = 60;
    std::uint64_t blocks = 0;
    for (std::size_t f = 0; f < index->fields().size(); ++f)
        blocks += index->stored_blocks(f).size();
    for (const int threads : {1, 3}) {
        StreamOptions options = one_lane_a_block();
        options.io_threads = threads;
        const StreamMemory all = plan_memory(*index, options, {});
        const std::uint64_t samples_ahead =
            all.batches * static_cast<std::uint64_t>(options.batch) + all.slabs * all.window_rows;
        const std::uint64_t epochs_ahead = samples_ahead / index->samples() + 2;
        EXPECT_LE(blocks_read(index, options, epochs), (epochs + epochs_ahead) * blocks);
        options.memory_bytes = all.bytes() - all.border_bytes;
        EXPECT_GT(blocks_read(index, options, epochs), (epochs + 2 * epochs_ahead) * blocks);
    }
    EXPECT_EQ(test::read_all(index, one_lane_a_block()),
              test::expected_content(samples_, options_));
}

// Each block in turn: some lie on borders, whichever window comes first.
TEST_F(Borders, AreMaskedOnBothSidesWhereTheyAreDamaged) {
    const auto index = pack();
    const auto content = test::expected_content(samples_, options_);
    StreamOptions options = one_lane_a_block();
    options.on_bad_data = BadData::mask;
    for (std::size_t bad = 0; bad < index->blocks().size(); ++bad) {
        const auto sound = pack();
        test::damage_block(*sound, 0, bad);
        BatchStream stream(sound, options);
        const RowBlock block = sound->blocks()[bad];
        for (Batch batch = stream.next(); batch.position.epoch < 2; batch = stream.next())
            for (std::size_t row = 0; row < batch.sample_ids.size(); ++row) {
                const std::uint64_t id = batch.sample_ids[row];
                const bool is_bad = id - block.first < block.rows;
                ASSERT_EQ(batch.valid.empty() || batch.valid[row] == 1, !is_bad) << id;
                ASSERT_TRUE(is_bad || test::delivered(batch, row) == content.at(id)) << id;
            }
        options.on_bad_data = BadData::fail;
        EXPECT_EQ(test::caught_code([&] { test::read_all(sound, options); }), "E213");
        options.on_bad_data = BadData::mask;
    }
}

TEST_F(Borders, HaveMemoryOnlyWhereTheyAreManyAndItIsThere) {
    const StreamOptions options = one_lane_a_block();
    EXPECT_EQ(plan_memory(*pack(3), options, {}).border_bytes, 0u);  // 167 blocks
    const auto index = pack();
    const StreamMemory all = plan_memory(*index, options, {});
    EXPECT_EQ(all.border_bytes, 2 * 7 * row_memory(*index, 63));
    EXPECT_NE(all.text().find("for blocks of two lanes"), std::string::npos);
    StreamOptions less = options;
    less.memory_bytes = all.bytes() - 100;
    EXPECT_EQ(plan_memory(*index, less, {}).border_bytes, all.border_bytes - 100);
    less.memory_bytes = all.bytes() - all.border_bytes;
    EXPECT_EQ(plan_memory(*index, less, {}).border_bytes, 0u);
    EXPECT_EQ(test::read_all(index, less), test::expected_content(samples_, options_));
}

}  // namespace
}  // namespace lockstep
