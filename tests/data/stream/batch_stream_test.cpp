// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/batch_stream.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/data/resident.hpp"

#include "packed_samples.hpp"
#include "stream/memory.hpp"
#include "support/unit.hpp"

#include <deque>
#include <optional>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

// What one rank got in one step.
struct Seen {
    StreamPosition position, next;
    std::int64_t samples_in_step = 0;
    std::map<int, std::vector<std::uint64_t>> leaves;
    bool operator==(const Seen&) const = default;
};

Seen seen(const Batch& batch) {
    Seen step{batch.position, batch.next, batch.samples_in_step, {}};
    for (const LeafRows& leaf : batch.leaves) {
        const auto begin = batch.sample_ids.begin() + static_cast<std::ptrdiff_t>(leaf.first_row);
        step.leaves[leaf.leaf] = {begin, begin + static_cast<std::ptrdiff_t>(leaf.rows)};
    }
    return step;
}

std::vector<Seen> steps_of(std::shared_ptr<const DatasetIndex> index,
                           const StreamOptions& options,
                           std::size_t count,
                           StreamPosition start = {}) {
    BatchStream stream(std::move(index), options, start);
    std::vector<Seen> steps;
    for (std::size_t i = 0; i < count; ++i) steps.push_back(seen(stream.next()));
    return steps;
}

// The same steps computed from the order alone.
std::vector<Seen> expected_steps(const DatasetIndex& index,
                                 const StreamOptions& options,
                                 std::size_t count,
                                 StreamPosition position = {}) {
    std::vector<Seen> steps;
    while (steps.size() < count) {
        const EpochOrder order(index.blocks(),
                               {options.order, options.seed, options.lanes, options.window_blocks},
                               position.epoch);
        const auto lanes = static_cast<std::uint64_t>(order.lanes());
        const StreamPosition next =
            next_position(position, options.batch, index.samples(), options.short_step);
        const std::uint64_t end = std::min(
            position.consumed + static_cast<std::uint64_t>(options.batch), index.samples());
        Seen step{position, next, static_cast<std::int64_t>(end - position.consumed), {}};
        for (int leaf = options.first_leaf; leaf < options.last_leaf; ++leaf) {
            auto& ids = step.leaves[leaf];
            for (const LaneRange& part : leaf_slice(
                     position.consumed, end, order.lanes(), leaf, leaf + 1, options.virtual_ranks))
                for (std::uint64_t p = part.begin; p < part.end; ++p)
                    ids.push_back(
                        order.sample_at(p * lanes + static_cast<std::uint64_t>(part.lane)));
        }
        steps.push_back(std::move(step));
        position = next;
    }
    return steps;
}

using Stream = test::PackedSamples;

TEST_F(Stream, DeliversEachSampleOnceAnEpochWithItsContent) {
    for (const Codec codec : {Codec::none, Codec::deflate, Codec::lz4, Codec::zstd}) {
        const auto index = pack(codec);
        for (const OrderKind kind : {OrderKind::lanes, OrderKind::uniform, OrderKind::sequential}) {
            StreamOptions options = test::small_stream();
            options.order = kind;
            EXPECT_EQ(test::read_all(index, options), test::expected_content(samples_, options_));
        }
    }
}

TEST_F(Stream, GivesLeavesTheSameSamplesHoweverTheyAreSpread) {
    const auto index = pack();
    for (const int leaves : {1, 2, 4, 5}) {
        StreamOptions options = test::small_stream();
        options.virtual_ranks = options.last_leaf = leaves;
        const std::vector<Seen> whole = steps_of(index, options, 50);
        EXPECT_EQ(whole, expected_steps(*index, options, 50));
        for (int leaf = 0; leaf < leaves; ++leaf) {
            options.first_leaf = leaf;
            options.last_leaf = leaf + 1;
            const std::vector<Seen> part = steps_of(index, options, 50);
            for (std::size_t i = 0; i < part.size(); ++i)
                EXPECT_EQ(part[i].leaves.at(leaf), whole[i].leaves.at(leaf));
        }
    }
}

TEST_F(Stream, ResumesAtAnyStepWithTheSameTail) {
    const auto index = pack(Codec::lz4);
    const StreamOptions options = test::small_stream();
    const std::vector<Seen> whole = steps_of(index, options, 45);  // two epochs of 21 steps
    for (std::size_t start = 0; start < 43; start += 3) {
        const std::vector<Seen> tail = steps_of(index, options, 2, whole[start].position);
        EXPECT_EQ(tail[0], whole[start]);
        EXPECT_EQ(tail[1], whole[start + 1]);
    }
}

RC_GTEST_FIXTURE_PROP(Stream, FollowsTheOrderForAnyOptions, ()) {
    samples_ = test::make_samples(*rc::gen::inRange<std::uint64_t>(1, 300));
    const auto index = pack(*rc::gen::element(Codec::none, Codec::deflate, Codec::lz4),
                            0,
                            *rc::gen::inRange<std::uint32_t>(1, 40));
    StreamOptions options;
    options.order = *rc::gen::element(OrderKind::lanes, OrderKind::uniform, OrderKind::sequential);
    options.seed = *rc::gen::arbitrary<std::uint64_t>();
    options.lanes = *rc::gen::inRange(1, 12);
    options.window_blocks = *rc::gen::inRange(1, 5);
    options.batch = *rc::gen::inRange(1, 100);
    options.virtual_ranks = *rc::gen::inRange(1, 6);
    // Leaf 0 always has a sample, so that the stream never has only empty steps.
    options.last_leaf = *rc::gen::inRange(1, options.virtual_ranks + 1);
    options.io_threads = *rc::gen::inRange(1, 4);
    const StreamPosition start{*rc::gen::inRange<std::uint64_t>(0, 3),
                               *rc::gen::inRange<std::uint64_t>(0, samples_.count())};
    RC_ASSERT(steps_of(index, options, 30, start) == expected_steps(*index, options, 30, start));
}

TEST_F(Stream, WorksWithTheLeastMemoryItAccepts) {
    const auto index = pack(Codec::deflate);
    StreamOptions options = test::small_stream();
    options.memory_bytes = 1;
    const Error error = test::error_of([&] { BatchStream(index, options); });
    EXPECT_EQ(error.code(), "E106");
    EXPECT_THAT(error.why(), HasSubstr("4 lanes"));
    while (caught_code([&] { BatchStream(index, options); }) == "E106")
        options.memory_bytes += options.memory_bytes / 16 + 1;
    EXPECT_LE(BatchStream(index, options).memory_bytes(), options.memory_bytes);
    EXPECT_EQ(steps_of(index, options, 50), expected_steps(*index, options, 50));
}

// Small batches last microseconds: more of them hide what happens to the threads that make them.
TEST_F(Stream, KeepsAsManyBatchesReadyAsMemoryAllows) {
    const auto index = pack();
    StreamOptions options = test::small_stream();
    const StreamMemory all = plan_memory(*index, options, {});
    EXPECT_EQ(all.batches, lendable_batches + 64);
    options.memory_bytes = all.bytes() - all.border_bytes - 60 * all.batch_bytes;
    const StreamMemory less = plan_memory(*index, options, {});
    EXPECT_EQ(less.batches, lendable_batches + 4);
    EXPECT_LE(less.bytes(), options.memory_bytes);
}

TEST_F(Stream, AlignsBuffersAndKeepsThemUntilTheBatchIsGone) {
    std::optional<Batch> kept;
    {
        BatchStream stream(pack(), test::small_stream());
        kept = stream.next();
        for (int i = 0; i < 30; ++i) stream.next();
    }
    for (const auto& field : kept->fields)
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(field.data()) % 64, 0u);
    const auto content = test::expected_content(samples_, options_);
    for (std::size_t row = 0; row < kept->sample_ids.size(); ++row)
        EXPECT_EQ(test::delivered(*kept, row), content.at(kept->sample_ids[row]));
}

TEST_F(Stream, HasRoomForAnotherWhicheverBatchIsGivenBack) {
    BatchStream stream(pack(), test::small_stream());
    std::vector<Batch> held;
    for (int i = 0; i < 4; ++i) held.push_back(stream.next());
    for (Batch& batch : held) {
        batch = {};
        batch = stream.next();
        EXPECT_EQ(caught_code([&] { stream.next(); }), "E700");
    }
    held.erase(held.begin() + 1, held.begin() + 3);
    for (int i = 0; i < 2; ++i) held.push_back(stream.next());
    EXPECT_EQ(caught_code([&] { stream.next(); }), "E700");
}

TEST_F(Stream, GoesOnForAConsumerThatAlwaysHoldsThree) {
    BatchStream stream(pack(), test::small_stream());
    std::deque<Batch> held;
    StreamPosition expected;
    for (int i = 0; i < 100; ++i) {
        if (held.size() == 4) held.pop_front();
        held.push_back(stream.next());
        EXPECT_EQ(held.back().position, expected);
        expected = held.back().next;
    }
}

TEST_F(Stream, StopsAtOnceWhateverItIsDoing) {
    const auto index = pack();
    for (int i = 0; i < 50; ++i) BatchStream(index, test::small_stream());
    for (int i = 0; i < 20; ++i) {
        BatchStream stream(index, test::small_stream());
        stream.next();
    }
    BatchStream first(index, test::small_stream());
    const BatchStream moved(std::move(first));
}

TEST_F(Stream, NamesTheDamagedBlockInTheStepThatNeedsIt) {
    for (const Codec codec : {Codec::none, Codec::deflate, Codec::lz4, Codec::zstd}) {
        const auto index = pack(codec);
        const StoredBlock& block = index->stored_blocks(0)[20];
        test::damage_block(*index, 0, 20);
        StreamOptions options = test::small_stream();
        options.order = OrderKind::sequential;
        options.batch = 10;
        BatchStream stream(index, options);
        for (int step = 0; step < 32; ++step) stream.next();  // samples 0 to 319: blocks 0 to 19
        for (int again = 0; again < 2; ++again) {
            const Error error = test::error_of([&] { stream.next(); });
            EXPECT_EQ(error.code(), "E213") << codec_name(codec);
            EXPECT_THAT(error.what(), HasSubstr(index->shards()[block.shard].name));
            EXPECT_THAT(error.what(), HasSubstr("field 'images'"));
            EXPECT_THAT(error.what(), HasSubstr("offset " + grouped(block.offset)));
            EXPECT_THAT(error.what(), HasSubstr("samples 320 to 335"));
        }
        EXPECT_EQ(stream.stats().retries, 1u);
    }
}

TEST_F(Stream, NoticesAShardCutShortAfterItWasOpened) {
    const auto index = pack();
    fs::resize_file(options_.output / index->shards()[1].name, 3000);
    EXPECT_EQ(caught_code([&] { test::read_all(index); }), "E204");
}

TEST_F(Stream, NoticesLabelsOutOfRange) {
    const auto index = pack();
    std::vector<std::vector<StoredBlock>> blocks{index->stored_blocks(0), index->stored_blocks(1)};
    for (StoredBlock& block : blocks[1]) block.is_hashed = false;
    const auto unhashed = std::make_shared<const DatasetIndex>(DatasetIndex::of_blocks(
        options_.output, content_of(options_.output / manifest_name), blocks));
    const StoredBlock& block = blocks[1][9];
    test::overwrite(options_.output / index->shards()[block.shard].name, block.offset + 8, "\x63");
    const Error error = test::error_of([&] { test::read_all(unhashed); });
    EXPECT_EQ(error.code(), "E210");
    EXPECT_THAT(error.what(), HasSubstr("label 99 of sample 145"));
}

TEST_F(Stream, ReadsWithinItsLanesWhenTheNumbersDivide) {
    samples_ = test::make_samples(4096);
    const auto index = pack();
    StreamOptions options = test::small_stream();
    options.lanes = 16;
    options.batch = 64;
    options.virtual_ranks = 4;
    std::uint64_t bytes = 0;
    for (int rank = 0; rank < 4; ++rank) {
        options.first_leaf = rank;
        options.last_leaf = rank + 1;
        BatchStream stream(index, options);
        for (int step = 0; step < 63; ++step) stream.next();
        bytes += stream.stats().bytes_read;
    }
    // The next epoch may be read already; without lanes each rank would read all.
    EXPECT_LT(static_cast<double>(bytes), 4096 * 24 * 2.2);
}

TEST_F(Stream, GivesAnEmptyLeafNoRowsInAShortStep) {
    samples_ = test::make_samples(49);
    StreamOptions options = test::small_stream();
    options.virtual_ranks = options.last_leaf = 4;
    const std::vector<Seen> steps = steps_of(pack(), options, 3);
    EXPECT_EQ(steps[2].samples_in_step, 1);
    EXPECT_EQ(steps[2].leaves.at(0).size(), 1u);
    EXPECT_EQ(steps[2].leaves.at(3).size(), 0u);
    options.first_leaf = 3;
    EXPECT_EQ(steps_of(test::open_index(options_.output), options, 3)[2].leaves.at(3).size(), 0u);
}

TEST_F(Stream, DeliversEmptyStepsToARankThatNeverHasASample) {
    samples_ = test::make_samples(2);
    StreamOptions options = test::small_stream();
    options.virtual_ranks = options.last_leaf = 4;
    options.first_leaf = 3;
    const auto index = pack(Codec::none, 1);
    EXPECT_EQ(steps_of(index, options, 5), expected_steps(*index, options, 5));
}

// A device's library that keeps count of what it was told to lock.
struct CountedLocks {
    std::vector<std::span<std::byte>> locked;
    int unlocked = 0;

    PageLock how() {
        return {.lock = [this](auto pages) { locked.push_back(pages); },
                .unlock =
                    [this](auto pages) {
                        ++unlocked;
                        EXPECT_EQ(pages.data(), locked.at(0).data());
                    }};
    }
    bool has(std::span<const std::byte> bytes) const {
        return locked.size() == 1 && bytes.data() >= locked[0].data() &&
               bytes.data() + bytes.size() <= locked[0].data() + locked[0].size();
    }
};

// Whether the stream's batches are in locked memory until the last of them is gone.
void expect_locked_batches(std::shared_ptr<const DatasetIndex> index,
                           std::shared_ptr<const ResidentRows> resident) {
    CountedLocks locks;
    StreamOptions options = test::small_stream();
    options.page_lock = locks.how();
    {
        std::optional<BatchStream> stream(
            std::in_place, index, options, StreamPosition{}, resident);
        EXPECT_THAT(stream->memory_text(), HasSubstr("(page-locked)"));
        const Batch first = stream->next(), second = stream->next();
        for (const auto& field : first.fields) EXPECT_TRUE(locks.has(field));
        for (const auto& field : second.fields) EXPECT_TRUE(locks.has(field));
        stream.reset();
        EXPECT_EQ(locks.unlocked, 0);
    }
    EXPECT_EQ(locks.unlocked, 1);
}

TEST_F(Stream, KeepsBatchesInPageLockedMemory) {
    const auto index = pack();
    expect_locked_batches(index, {});
    const auto rows = ResidentRows::in_own_memory(index);
    rows->load({});
    rows->seal();
    expect_locked_batches(index, rows);
}

TEST_F(Stream, RefusesAStartBeyondTheDataAndMemoryThatCannotBeLocked) {
    const auto index = pack();
    EXPECT_EQ(caught_code([&] { BatchStream(index, test::small_stream(), {0, 501}); }), "E306");
    const std::vector<Seen> steps = steps_of(index, test::small_stream(), 1, {0, 500});
    EXPECT_EQ(steps[0].position, (StreamPosition{1, 0}));
    StreamOptions options = test::small_stream();
    options.page_lock = {.lock = [](auto) { throw Error("E681", "no", "none", "none"); },
                         .unlock = [](auto) { ADD_FAILURE() << "nothing was locked"; }};
    EXPECT_EQ(caught_code([&] { BatchStream(pack(), options); }), "E681");
}

TEST_F(Stream, LeavesOutShortSteps) {
    const auto index = pack();
    StreamOptions options = test::small_stream();
    options.batch = 48;  // 10 of them, and 20 of 500 samples
    options.short_step = ShortStep::drop;
    for (const OrderKind kind : {OrderKind::lanes, OrderKind::uniform}) {
        options.order = kind;
        const std::vector<Seen> steps = steps_of(index, options, 35);
        EXPECT_EQ(steps, expected_steps(*index, options, 35));
        EXPECT_EQ(steps[34].position, (StreamPosition{3, 192}));
        EXPECT_EQ(steps_of(index, options, 22, steps[13].position),
                  std::vector(steps.begin() + 13, steps.end()));
    }
    EXPECT_EQ(steps_of(index, options, 1, {0, 480})[0].position, (StreamPosition{1, 0}));
    options.batch = 501;
    EXPECT_EQ(caught_code([&] { BatchStream(index, options); }), "E106");
}

TEST(NextPosition, CrossesEpochsAndLeavesOutShortSteps) {
    EXPECT_EQ(next_position({0, 0}, 10, 25), (StreamPosition{0, 10}));
    EXPECT_EQ(next_position({0, 20}, 10, 25), (StreamPosition{1, 0}));
    EXPECT_EQ(next_position({3, 10}, 15, 25), (StreamPosition{4, 0}));
    EXPECT_EQ(next_position({0, 0}, 100, 25), (StreamPosition{1, 0}));
    EXPECT_EQ(next_position({0, 0}, 10, 25, ShortStep::drop), (StreamPosition{0, 10}));
    EXPECT_EQ(next_position({0, 10}, 10, 25, ShortStep::drop), (StreamPosition{1, 0}));
    EXPECT_EQ(next_position({0, 10}, 10, 30, ShortStep::drop), (StreamPosition{0, 20}));
    EXPECT_EQ(next_position({0, 20}, 10, 30, ShortStep::drop), (StreamPosition{1, 0}));
}

}  // namespace
}  // namespace lockstep
