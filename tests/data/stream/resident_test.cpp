// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/resident.hpp"

#include "packed_samples.hpp"
#include "stream/read_plan.hpp"
#include "stream/request_plan.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <thread>

namespace lockstep {
namespace {

class Resident : public test::PackedSamples {
  protected:
    static std::shared_ptr<const ResidentRows> load(std::shared_ptr<const DatasetIndex> index,
                                                    const LoadOptions& options = {}) {
        auto rows = ResidentRows::in_own_memory(std::move(index));
        rows->load(options);
        rows->seal();
        return rows;
    }
};

StreamOptions small(OrderKind kind) {
    StreamOptions options = test::small_stream();
    options.order = kind;
    options.virtual_ranks = options.last_leaf = 3;
    return options;
}

// Whether two streams give the same batches, to the last bit.
void expect_equal(BatchStream& left, BatchStream& right, int steps) {
    for (int i = 0; i < steps; ++i) {
        const Batch a = left.next(), b = right.next();
        ASSERT_EQ(a.position, b.position);
        ASSERT_EQ(a.next, b.next);
        ASSERT_EQ(a.samples_in_step, b.samples_in_step);
        ASSERT_TRUE(std::ranges::equal(a.sample_ids, b.sample_ids));
        ASSERT_TRUE(std::ranges::equal(a.valid, b.valid));
        ASSERT_EQ(a.leaves.size(), b.leaves.size());
        for (std::size_t leaf = 0; leaf < a.leaves.size(); ++leaf) {
            ASSERT_EQ(a.leaves[leaf].first_row, b.leaves[leaf].first_row);
            ASSERT_EQ(a.leaves[leaf].rows, b.leaves[leaf].rows);
        }
        for (std::size_t f = 0; f < a.fields.size(); ++f)
            ASSERT_TRUE(std::ranges::equal(a.fields[f], b.fields[f])) << "field " << f;
    }
}

TEST_F(Resident, GivesTheBatchesOfAStreamBitForBit) {
    for (const Codec codec : {Codec::none, Codec::lz4, Codec::deflate}) {
        const auto index = pack(codec);
        const auto rows = load(index, {.threads = 2});
        for (const OrderKind kind : {OrderKind::lanes, OrderKind::uniform, OrderKind::sequential})
            for (const int threads : {0, 1, 3}) {
                StreamOptions options = small(kind);
                BatchStream stream(index, options, {1, 96});
                options.io_threads = threads;
                BatchStream resident(index, options, {1, 96}, rows);
                expect_equal(stream, resident, 50);
                EXPECT_EQ(resident.stats().bytes_read, 0u);
                EXPECT_LE(resident.memory_bytes(), options.memory_bytes);
            }
    }
}

TEST_F(Resident, AndAStreamGiveThePartOfTheSamplesThatIsAskedFor) {
    const auto index = pack(Codec::lz4);
    const auto rows = load(index, {.threads = 2});
    for (const OrderKind kind : {OrderKind::lanes, OrderKind::uniform, OrderKind::sequential}) {
        StreamOptions options = small(kind);
        std::vector<std::uint64_t> all;
        for (const SamplePart& part : {SamplePart::first(0.8), SamplePart::second(0.8)}) {
            options.part = part;
            BatchStream stream(index, options), resident(index, options, {}, rows);
            expect_equal(stream, resident, 20);
            BatchStream epoch(index, options, {}, rows);
            for (Batch batch; batch.next.epoch == 0;) {
                batch = epoch.next();
                all.insert(all.end(), batch.sample_ids.begin(), batch.sample_ids.end());
            }
        }
        std::ranges::sort(all);
        ASSERT_EQ(all.size(), index->samples());
        for (std::uint64_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
    }
}

TEST_F(Resident, DeliversEachSampleOnceWithItsContentWithoutTheFiles) {
    const auto index = pack(Codec::zstd);
    const auto rows = load(index);
    fs::remove_all(options_.output);
    BatchStream stream(index, small(OrderKind::uniform), {}, rows);
    std::map<std::uint64_t, test::Delivered> all;
    for (;;) {
        const Batch batch = stream.next();
        for (std::size_t row = 0; row < batch.sample_ids.size(); ++row)
            EXPECT_TRUE(all.emplace(batch.sample_ids[row], test::delivered(batch, row)).second);
        if (batch.next.epoch > 0) break;
    }
    EXPECT_EQ(all, test::expected_content(samples_, options_));
}

// As the ranks of a node go about it: one memory, several processes, each its part.
TEST_F(Resident, IsLoadedByPartsIntoSharedMemory) {
    const auto index = pack(Codec::lz4);
    const auto whole = load(index);
    const auto needed = ResidentRows::bytes_needed(*index);
    auto memory = std::make_shared<std::vector<std::byte>>(needed + 64, std::byte{0xA5});
    auto* const begin = reinterpret_cast<std::byte*>(
        (reinterpret_cast<std::uintptr_t>(memory->data()) + 63) / 64 * 64);
    for (const int parts : {1, 2, 5, 64}) {
        std::ranges::fill(*memory, std::byte{0xA5});
        std::vector<ResidentRows> ranks;
        for (int part = 0; part < parts; ++part)
            ranks.emplace_back(index, std::span(begin, needed), memory);
        std::vector<std::jthread> threads;
        for (int part = 0; part < parts; ++part)
            threads.emplace_back([&ranks, part, parts] {
                ranks[static_cast<std::size_t>(part)].load({.part = part, .parts = parts});
            });
        threads.clear();
        for (ResidentRows& rank : ranks) {
            rank.seal();
            for (std::size_t f = 0; f < index->fields().size(); ++f)
                EXPECT_TRUE(std::ranges::equal(rank.rows(f), whole->rows(f)));
        }
    }
}

TEST_F(Resident, NoticesThatAPartIsMissing) {
    const auto index = pack();
    auto rows = ResidentRows::in_own_memory(index);
    rows->load({.part = 0, .parts = 3});
    rows->load({.part = 2, .parts = 3});
    EXPECT_EQ(caught_code([&] { rows->seal(); }), "E700");
    EXPECT_EQ(caught_code([&] { BatchStream(index, small(OrderKind::lanes), {}, rows); }), "E700");
    rows->load({.part = 1, .parts = 3});
    rows->seal();
    EXPECT_TRUE(rows->is_sealed());
}

TEST_F(Resident, CutsBlocksIntoDisjointPartsOfNearEqualBytes) {
    samples_ = test::make_samples(197);
    const auto index = pack();
    const std::uint64_t total = index->samples() * index->manifest().bytes_per_sample();
    for (int parts = 1; parts <= 30; ++parts) {
        std::set<std::pair<std::size_t, std::size_t>> all;
        std::size_t count = 0;
        for (int part = 0; part < parts; ++part) {
            std::uint64_t bytes = 0;
            for (const FieldBlock& block : blocks_of_part(*index, part, parts)) {
                all.emplace(block.field, block.block);
                ++count;
                bytes += block.bytes;
            }
            EXPECT_LE(bytes, total / static_cast<std::uint64_t>(parts) + 2 * 16 * 16);
        }
        EXPECT_EQ(all.size(), count);
        EXPECT_EQ(count, index->stored_blocks(0).size() + index->stored_blocks(1).size());
    }
}

TEST_F(Resident, NamesDamageOrMasksItsSamples) {
    const auto index = pack(Codec::zstd);
    test::damage_block(*index, 0, 20);  // samples 320 to 335
    test::damage_block(*index, 1, 21);  // samples 336 to 351
    const Error error = test::error_of([&] { load(index, {.threads = 2}); });
    EXPECT_EQ(error.code(), "E213");
    EXPECT_THAT(error.what(), HasSubstr("samples 3"));

    const auto rows = load(index, {.threads = 2, .on_bad_data = BadData::mask});
    EXPECT_EQ(rows->masked_samples(), 32u);
    const auto content = test::expected_content(samples_, options_);
    BatchStream stream(index, small(OrderKind::uniform), {}, rows);
    std::uint64_t seen = 0, masked = 0;
    while (seen < samples_.count()) {
        const Batch batch = stream.next();
        const bool holds_bad = std::ranges::any_of(
            batch.sample_ids, [](std::uint64_t id) { return id >= 320 && id <= 351; });
        EXPECT_EQ(batch.valid.size(), holds_bad ? batch.sample_ids.size() : 0);
        for (std::size_t row = 0; row < batch.sample_ids.size(); ++row) {
            const std::uint64_t id = batch.sample_ids[row];
            const bool is_bad = id >= 320 && id <= 351;
            EXPECT_EQ(batch.valid.empty() || batch.valid[row] == 1, !is_bad);
            EXPECT_EQ(test::delivered(batch, row),
                      is_bad ? (test::Delivered{std::string(16, '\0'), 0}) : content.at(id));
            masked += is_bad;
        }
        seen += batch.sample_ids.size();
    }
    EXPECT_EQ(masked, 32u);
    EXPECT_GE(stream.stats().masked_samples, 32u);  // it is ahead
}

TEST_F(Resident, ShowsOtherProcessesWhatIsMasked) {
    const auto index = pack();
    test::damage_block(*index, 0, 3);
    const auto first = load(index, {.on_bad_data = BadData::mask});
    const auto own = std::as_writable_bytes(std::span(const_cast<std::byte*>(first->rows(0).data()),
                                                      ResidentRows::bytes_needed(*index)));
    ResidentRows second(index, own);  // over the same memory, without loading anything
    second.seal();
    EXPECT_EQ(second.masked_samples(), 16u);
    EXPECT_TRUE(second.is_masked(48));
    EXPECT_FALSE(second.is_masked(64));
}

TEST_F(Resident, ReportsHowFarItIs) {
    const auto index = pack();
    std::vector<std::uint64_t> done;
    std::uint64_t total = 0;
    load(index, {.threads = 2, .report = [&](std::uint64_t so_far, std::uint64_t of) {
                     done.push_back(so_far);
                     total = of;
                 }});
    EXPECT_TRUE(std::ranges::is_sorted(done));
    EXPECT_EQ(done.front(), 0u);
    EXPECT_EQ(done.back(), total);
    EXPECT_EQ(total, 500u * 24);
}

TEST_F(Resident, LendsThreeBatchesAtOnceAndSaysSoIfMoreAreAskedFor) {
    const auto index = pack();
    const auto rows = load(index);
    for (const int threads : {1, 2}) {
        StreamOptions options = small(OrderKind::uniform);
        options.io_threads = threads;
        BatchStream stream(index, options, {}, rows);
        std::vector<Batch> held;
        for (int i = 0; i < 4; ++i) held.push_back(stream.next());
        EXPECT_EQ(caught_code([&] { stream.next(); }), "E700");
        held.erase(held.begin());
        EXPECT_EQ(caught_code([&] { stream.next(); }), "");
    }
}

TEST_F(Resident, NeedsNoThreadOfItsOwnOnASingleCore) {
    const auto index = pack();
    const auto rows = load(index);
    std::jthread([&] {
        test::keep_to_one_core();
        BatchStream stream(index, small(OrderKind::uniform));
        BatchStream resident(index, small(OrderKind::uniform), {}, rows);
        expect_equal(stream, resident, 50);
        EXPECT_EQ(resident.stats().io_threads, 0);
        std::deque<Batch> held;
        StreamPosition expected = resident.next().next;
        for (int i = 0; i < 50; ++i) {
            if (held.size() == 4) held.pop_front();
            held.push_back(resident.next());
            EXPECT_EQ(held.back().position, expected);
            expected = held.back().next;
        }
    });
}

TEST_F(Resident, StopsAtOnceAndSaysHowMuchMemoryItsBatchesTake) {
    const auto index = pack();
    const auto rows = load(index);
    for (int i = 0; i < 30; ++i) BatchStream(index, small(OrderKind::lanes), {}, rows);
    Batch kept = BatchStream(index, small(OrderKind::lanes), {}, rows).next();
    EXPECT_EQ(test::delivered(kept, 0),
              test::expected_content(samples_, options_).at(kept.sample_ids[0]));
    for (const auto& field : kept.fields)
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(field.data()) % 64, 0u);
    StreamOptions options = small(OrderKind::uniform);
    options.memory_bytes = 1000;
    EXPECT_EQ(caught_code([&] { BatchStream(index, options, {}, load(index)); }), "E106");
}

// What a seek costs is the same everywhere in the epoch: one window a lane, one epoch's permutation
// in order 'uniform'.
TEST(SampleWalk, SeeksWithTheSameWorkAnywhere) {
    constexpr std::uint64_t samples = 100'000;
    const std::vector<RowBlock> blocks = row_blocks(samples, 64);
    for (const OrderKind kind : {OrderKind::lanes, OrderKind::uniform, OrderKind::sequential}) {
        StreamOptions options;
        options.order = kind;
        options.seed = 5;
        options.batch = 256;
        const EpochOrder order(blocks, {kind, 5, options.lanes, options.window_blocks}, 3);
        const std::uint64_t bound =
            static_cast<std::uint64_t>(order.lanes()) * order.max_window_rows();
        for (std::uint64_t at = 0; at + 256 < samples; at += samples / 17) {
            SampleWalk walk(blocks, options, {3, at});
            walk.next();
            // A step of this size touches two windows of a lane at most, but more of few rows.
            EXPECT_LE(walk.rows_permuted(), 2 * bound + 256) << at;
            EXPECT_TRUE(kind != OrderKind::uniform || walk.rows_permuted() == samples);
        }
    }
}

TEST(SampleWalk, KeepsToTheOrderAcrossEpochsWhereItLooksAhead) {
    constexpr std::uint64_t samples = 40'000;  // enough to use a thread for the next epoch
    const std::vector<RowBlock> blocks = row_blocks(samples, 64);
    StreamOptions options;
    options.order = OrderKind::uniform;
    options.batch = 7000;
    SampleWalk walk(blocks, options, {2, 21'000});
    for (int i = 0; i < 9; ++i) {
        const StepSamples step = walk.next();
        const EpochOrder order(blocks, {OrderKind::uniform, 0, 64, 4}, step.step.position.epoch);
        const auto all = order.samples_of(order.window_at(0, 0));
        EXPECT_TRUE(
            std::equal(step.ids.begin(),
                       step.ids.end(),
                       all.begin() + static_cast<std::ptrdiff_t>(step.step.position.consumed)));
    }
}

TEST(DataMode, IsResidentWhereEverythingFits) {
    constexpr std::uint64_t gib = std::uint64_t{1} << 30;
    const MemoryFacts fits{.bytes_needed = gib,
                           .samples = 1000,
                           .budget_bytes = 2 * gib,
                           .free_bytes = 4 * gib,
                           .shared_bytes = 4 * gib};
    EXPECT_EQ(choose_mode(fits).mode, DataMode::resident);
    EXPECT_THAT(choose_mode(fits).why, HasSubstr("1 GiB"));
    check_resident(fits);

    const auto expect_stream = [&](auto change, const char* why) {
        MemoryFacts facts = fits;
        change(facts);
        EXPECT_EQ(choose_mode(facts).mode, DataMode::stream);
        EXPECT_THAT(choose_mode(facts).why, HasSubstr(why));
        EXPECT_EQ(caught_code([&] { check_resident(facts); }), "E227");
    };
    expect_stream([](MemoryFacts& facts) { facts.budget_bytes = gib / 2; }, "512 MiB are allowed");
    expect_stream([](MemoryFacts& facts) { facts.loading_bytes = 2 * gib; }, "2 GiB are allowed");
    expect_stream([](MemoryFacts& facts) { facts.free_bytes = gib; }, "free");
    expect_stream([](MemoryFacts& facts) { facts.shared_bytes = gib - 1; }, "shared memory");
    expect_stream([](MemoryFacts& facts) { facts.samples = std::uint64_t{1} << 33; }, "too many");
}

}  // namespace
}  // namespace lockstep
