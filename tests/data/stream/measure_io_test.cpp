// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/measure_io.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/sources.hpp"

#include "data/samples.hpp"
#include "stream/io_ways.hpp"
#include "support/unit.hpp"

#include <array>
#include <atomic>
#include <barrier>
#include <map>
#include <set>
#include <system_error>

#include <pthread.h>

namespace lockstep::test {
namespace {

TEST(TimedThreads, ThatCannotAllBeStartedEndWithTheReason) {
    pthread_attr_t usual, huge;
    ASSERT_EQ(::pthread_getattr_default_np(&usual), 0);
    ASSERT_EQ(::pthread_attr_init(&huge), 0);
    ASSERT_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 47), 0);
    // Once the first thread is there, no other can be made. On busy cores it may come after all
    // others.
    const auto prepare = [&](int thread) -> std::function<void()> {
        if (thread == 0) ::pthread_setattr_default_np(&huge);
        return [] {};
    };
    bool has_ended = false;
    for (int turn = 0; turn < 20 && !has_ended; ++turn) {
        try {
            timed_threads(300, prepare);
        } catch (const std::system_error&) {
            has_ended = true;
        }
        ::pthread_setattr_default_np(&usual);
    }
    EXPECT_TRUE(has_ended);
    ::pthread_attr_destroy(&huge);
    ::pthread_attr_destroy(&usual);
}

std::shared_ptr<const DatasetIndex> packed(const TempDir& folder, Codec codec, int shards = 2) {
    PackOptions options;
    options.output = folder / "data";
    options.codec = codec;
    options.shuffle_seed.reset();
    options.shards = shards;
    options.block_rows = 64;
    pack_dataset(*scratch_rows({.samples = 1000, .image = {1, 14, 14}}), options);
    return open_index(options.output);
}

IoPlan small_plan() {
    IoPlan plan;
    plan.rounds = 2;
    plan.least_bytes = 1;
    plan.ring_bytes = 4u << 20;
    plan.memory_bytes = 64u << 20;
    return plan;
}

// How many of the samples lie in the ring after one pass.
std::size_t delivered_by(const IoBench& bench, IoWay way) {
    std::ranges::fill(bench.ring.bytes(), std::byte{0x5a});
    run_way(bench, {.way = way}, 1);
    const std::span<const std::byte> ring = bench.ring.bytes().first(512u << 10);
    const std::string_view bytes(reinterpret_cast<const char*>(ring.data()), ring.size());
    std::size_t found = 0;
    for (const auto& [id, sample] : read_all(bench.index))
        found += bytes.find(sample.image) != bytes.npos ? 1 : 0;
    return found;
}

using MeasureIo = InFolder;

TEST_F(MeasureIo, ReadsEveryRowByBlocks) {
    for (const Codec codec : {Codec::none, Codec::deflate}) {
        const TempDir folder;
        const IoPlan plan = small_plan();
        const IoBench bench(packed(folder, codec), plan);
        EXPECT_EQ(delivered_by(bench, IoWay::blocks), 1000u) << codec_name(codec);
    }
}

TEST_F(MeasureIo, ReadsTheStoredBytesOnceInRequestsOfAMebibyte) {
    const auto index = packed(folder_, Codec::zstd, 3);
    for (const std::uint64_t limit : {std::uint64_t{1} << 40, std::uint64_t{80} << 10}) {
        const Portion portion = first_rows(*index, limit);
        EXPECT_EQ(portion.rows, limit > 1u << 30 ? 1000u : 384u);
        std::set<std::tuple<std::uint32_t, std::uint64_t>> wanted, got;
        for (std::size_t f = 0; f < 2; ++f)
            for (const StoredBlock& block : index->stored_blocks(f))
                for (std::uint64_t i = 0; block.first_row < portion.rows && i < block.stored_bytes;
                     ++i)
                    wanted.insert({block.shard, block.offset + i});
        for (const FilePiece& piece : portion.files) {
            EXPECT_LE(piece.bytes, 1u << 20);
            for (std::uint64_t i = 0; i < piece.bytes; ++i)
                EXPECT_TRUE(got.insert({piece.shard, piece.offset + i}).second) << "read twice";
        }
        EXPECT_EQ(got, wanted);
        EXPECT_EQ(got.size(), portion.stored_bytes);
        std::array<std::uint64_t, 2> rows{};
        for (const RowSpan& span : portion.spans) rows.at(span.field) += span.rows;
        EXPECT_EQ(rows[0], portion.rows);
        EXPECT_EQ(rows[1], portion.rows);
        EXPECT_LT(portion.spans.size(), 2 * portion.rows / 64);
    }
}

TEST_F(MeasureIo, ReportsEveryWayHotAndColdBesideItsLimit) {
    const auto index = packed(folder_, Codec::deflate);
    IoPlan plan = small_plan();
    std::uint64_t passes = 0, announced = 0;
    plan.report = [&](std::uint64_t done, std::uint64_t total, const std::string&) {
        EXPECT_EQ(done, passes++);
        announced = total;
    };
    const IoMeasurements measured = measure_io(index, plan);
    EXPECT_EQ(passes, announced);
    for (const IoWay way : {IoWay::pread, IoWay::blocks, IoWay::stream})
        for (const CacheState state : {CacheState::hot, CacheState::cold})
            for (const int threads : {1, 2}) {
                const IoRow* const row = measured.find(way, state, threads);
                ASSERT_NE(row, nullptr) << way_name(way);
                EXPECT_GT(row->best_s, 0);
                EXPECT_GE(row->median_s, row->best_s);
                EXPECT_GE(row->stored_bytes, measured.stored_bytes);
                EXPECT_TRUE(measured.share_of_pread(*row).has_value());
                EXPECT_EQ(row->bytes, way == IoWay::pread ? 0 : measured.decoded_bytes);
            }
    const Json json = io_json(measured);
    EXPECT_EQ(json["results"].size(), measured.rows.size());
    EXPECT_EQ(json["verdicts"].size(), 2u);
}

TEST_F(MeasureIo, MeasuresOnlyColdWhatIsLargerThanTheLimit) {
    IoPlan plan = small_plan();
    plan.limit_bytes = 80u << 10;
    const IoMeasurements measured = measure_io(packed(folder_, Codec::none), plan);
    EXPECT_EQ(measured.samples, 384u);
    EXPECT_EQ(measured.find(IoWay::blocks, CacheState::hot, 1), nullptr);
    EXPECT_NE(measured.find(IoWay::blocks, CacheState::cold, 1), nullptr);
    EXPECT_THAT(measured.notes, Contains(HasSubstr("hot: not measured")));
}

TEST_F(MeasureIo, DropsTheShardsFromThePageCache) {
    const auto index = packed(folder_, Codec::none);
    const double left = drop_page_cache(*index);
    EXPECT_THAT(left, AnyOf(Le(0.05), Ge(0.99))) << "neither dropped nor a memory file system";
}

IoRow stream_row(double read_s, double decode_s, double assemble_s, double wait_s) {
    IoRow row{.way = IoWay::stream, .threads = 2, .best_s = 1, .bytes = 784'000'000};
    row.spent.read_s = read_s;
    row.spent.decode_s = decode_s;
    row.spent.assemble_s = assemble_s;
    row.spent.wait_s = wait_s;
    row.spent.io_threads = 2;
    return row;
}

TEST(IoVerdict, NamesTheStageThatBindsAndWhatHelps) {
    IoMeasurements measured;
    measured.bytes_per_sample = 784;
    const std::map<std::string, IoRow> cases = {{"decode binds", stream_row(0.3, 1.6, 0.4, 0.9)},
                                                {"I/O binds", stream_row(1.6, 0.3, 0.4, 0.9)},
                                                {"assemble binds", stream_row(0.3, 0.3, 0.9, 0.9)}};
    for (const auto& [words, row] : cases) {
        measured.rows = {row};
        ASSERT_EQ(io_verdicts(measured).size(), 1u);
        EXPECT_THAT(io_verdicts(measured)[0], has(words, "1,000,000 samples/s"));
    }
}

TEST(IoVerdict, ComparesOnlyEqualThreadsAndStates) {
    IoMeasurements measured;
    measured.rows = {
        {.way = IoWay::pread, .threads = 1, .best_s = 1, .stored_bytes = 100},
        {.way = IoWay::pread, .threads = 2, .best_s = 1, .stored_bytes = 180},
        {.way = IoWay::blocks, .threads = 2, .best_s = 2, .bytes = 720, .stored_bytes = 180}};
    EXPECT_DOUBLE_EQ(*measured.share_of_pread(measured.rows[2]), 0.5);
    measured.rows[2].threads = 4;
    EXPECT_FALSE(measured.share_of_pread(measured.rows[2]).has_value());
}

TEST(TimedThreads, RunTogetherAndLetTheFirstErrorOut) {
    std::barrier meet(3);
    std::atomic<int> met{0};
    const double since = now_s();
    const double seconds = timed_threads(3, [&](int) -> std::function<void()> {
        return [&] {
            meet.arrive_and_wait();
            for (const double began = now_s(); now_s() - began < 0.02;) ++met;
        };
    });
    EXPECT_GT(met, 0);
    EXPECT_GE(seconds, 0.02);
    EXPECT_LE(seconds, now_s() - since);
    EXPECT_THROW(timed_threads(2,
                               [&](int thread) -> std::function<void()> {
                                   return [thread] {
                                       if (thread == 1) throw Error("E204", "cut short");
                                   };
                               }),
                 Error);
}

TEST(ScratchRows, AreTheSameEachTimeAndCompressLikePhotographs) {
    const TempDir folder;
    PackOptions options;
    options.shuffle_seed.reset();
    std::map<Codec, double> ratios;
    for (const Codec codec : {Codec::deflate, Codec::lz4}) {
        options.codec = codec;
        options.output = folder / std::string(codec_name(codec));
        const PackResult result = pack_dataset(*scratch_rows({.samples = 300}), options);
        ratios[codec] =
            static_cast<double>(result.raw_bytes) / static_cast<double>(result.stored_bytes);
    }
    EXPECT_THAT(ratios[Codec::deflate], AllOf(Ge(1.2), Le(2.2)));
    EXPECT_THAT(ratios[Codec::lz4], AllOf(Ge(1.05), Le(1.9)));
    EXPECT_EQ(scratch_rows({.samples = 10})->fingerprint(),
              scratch_rows({.samples = 10})->fingerprint());
}

}  // namespace
}  // namespace lockstep::test
