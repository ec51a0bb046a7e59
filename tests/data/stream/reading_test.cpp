// SPDX-License-Identifier: Apache-2.0
// How a window's bytes come from the files: requests, the page cache, and gathering.
#include "packed_samples.hpp"
#include "stream/block_reader.hpp"
#include "stream/memory.hpp"
#include "stream/request_plan.hpp"
#include "support/unit.hpp"

#include <cerrno>
#include <set>

#include <fcntl.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace lockstep {
namespace {

class Reading : public test::PackedSamples {
  protected:
    Reading() { samples_ = test::make_samples(300); }
};

// What opening all its files throws where 40 may be open, and this process may allow itself `most`.
Error error_of_opening(std::shared_ptr<const DatasetIndex> index, rlim_t most) {
    rlimit usual{};
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
    const rlimit low{40, std::min(most, usual.rlim_max)};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    const Error error = test::error_of([&] {
        ShardFiles files(index);
        for (std::uint32_t shard = 0; shard < 70; ++shard) files.descriptor(shard);
    });
    ::setrlimit(RLIMIT_NOFILE, &usual);
    return error;
}

TEST_F(Reading, OpensMoreFilesThanTheSoftLimitAllowed) {
    EXPECT_EQ(error_of_opening(pack(Codec::none, 70, 4), RLIM_INFINITY).code(), "none");
}

TEST_F(Reading, NamesBothNumbersWhereTheHardLimitAllowsFewerFiles) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may raise a hard limit again";
    const Error error = error_of_opening(pack(Codec::none, 70, 4), 40);
    EXPECT_EQ(error.code(), "E402");
    EXPECT_STREQ(error.what(), "the data are 70 files, and this process may open 40");
    EXPECT_NE(error.fix().find("lockstep data pack"), std::string::npos) << error.fix();
}

TEST(BadData, IsWhatIsWrongWithDataAndNothingElse) {
    for (const char* code : {"E201", "E202", "E204", "E210", "E213", "E409"})
        EXPECT_TRUE(is_about_data(Error(code, ""))) << code;
    for (const int reason : {EMFILE, ENFILE, ENOMEM})
        EXPECT_FALSE(is_about_data(system_error("open", "x", reason))) << reason;
    EXPECT_TRUE(is_about_data(system_error("read", "x", EIO)));
    EXPECT_FALSE(is_about_data(Error("E700", "")));
}

// Rows of all fields, room for exactly the runs.
struct Rows {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<std::span<std::byte>> fields;

    Rows(const DatasetIndex& index, const std::vector<RowRun>& runs) {
        std::uint64_t rows = 0;
        for (const RowRun& run : runs) rows += run.rows;
        for (const Field& field : index.fields())
            bytes.emplace_back(rows * field.bytes_per_sample());
        for (auto& field : bytes) fields.emplace_back(field);
    }
};

std::vector<RowRun> any_runs(std::uint64_t samples) {
    std::vector<RowRun> runs;
    const auto count = *rc::gen::inRange(1, 12);
    for (int i = 0; i < count; ++i) {
        const auto first = *rc::gen::inRange<std::uint64_t>(0, samples);
        runs.push_back({first, *rc::gen::inRange<std::uint64_t>(1, samples - first + 1)});
    }
    return runs;
}

Codec any_codec() {
    return *rc::gen::element(Codec::none, Codec::deflate, Codec::lz4, Codec::zstd);
}

RC_GTEST_FIXTURE_PROP(Reading, GivesTheBytesOfSingleReadsHoweverRequestsAreCut, ()) {
    samples_ = test::make_samples(*rc::gen::inRange<std::uint64_t>(1, 200));
    const auto index =
        pack(any_codec(), samples_.count() < 80 ? 1 : 2, *rc::gen::inRange<std::uint32_t>(1, 40));
    const std::vector<RowRun> runs = any_runs(samples_.count());
    const RequestLimits limits{.bytes = *rc::gen::inRange<std::uint64_t>(1, 4000),
                               .gap_bytes = *rc::gen::inRange<std::uint64_t>(0, 4097),
                               .pieces = *rc::gen::inRange<std::size_t>(1, 20)};
    ShardFiles files(index);
    BlockReader reader(files), single(files);
    Rows together(*index, runs), expected(*index, runs);
    RequestPlan plan(*index, limits);
    plan.add(runs, together.fields);
    plan.arrange();
    for (const ReadRequest& request : plan.requests()) reader.read(plan, request);
    for (std::size_t f = 0; f < index->fields().size(); ++f) {
        const std::size_t bytes = index->fields()[f].bytes_per_sample();
        std::span<std::byte> rest = expected.fields[f];
        for (const RowRun& run : runs)
            for (std::uint64_t row = run.first; row < run.first + run.rows; ++row) {
                single.read_rows(f, row, 1, rest.first(bytes));
                rest = rest.subspan(bytes);
            }
        RC_ASSERT(together.bytes[f] == expected.bytes[f]);
    }
}

RC_GTEST_FIXTURE_PROP(Reading, PlansEachBlockOnceInTheOrderOfTheFilesWithinLimits, ()) {
    const auto index = pack(any_codec(), 2, *rc::gen::inRange<std::uint32_t>(1, 40));
    const std::vector<RowRun> runs = any_runs(samples_.count());
    const RequestLimits limits{.bytes = *rc::gen::inRange<std::uint64_t>(1, 20000),
                               .gap_bytes = *rc::gen::inRange<std::uint64_t>(0, 4097)};
    RequestPlan plan(*index, limits);
    plan.add(runs, std::vector<std::span<std::byte>>(index->fields().size()));
    plan.arrange();
    std::set<std::pair<std::size_t, std::size_t>> seen;
    std::pair<std::uint32_t, std::uint64_t> reached{0, 0};
    for (const ReadRequest& request : plan.requests()) {
        RC_ASSERT(std::pair(request.shard, request.begin) >= reached);
        reached = {request.shard, request.end};
        std::set<std::pair<std::size_t, std::size_t>> here;
        for (const BlockPiece& piece : plan.pieces_of(request)) {
            const StoredBlock& block = index->stored_blocks(piece.field)[piece.block];
            RC_ASSERT(block.shard == request.shard);
            RC_ASSERT(block.offset >= request.begin);
            RC_ASSERT(block.offset + block.stored_bytes <= request.end);
            here.insert({piece.field, piece.block});
        }
        RC_ASSERT(here.size() == 1 || request.end - request.begin <= limits.bytes);
        for (const auto& block : here) RC_ASSERT(seen.insert(block).second);
    }
}

TEST_F(Reading, NeedsFewRequestsForNeighbours) {
    const auto index = pack(Codec::none, 1, 4);
    const std::vector<RowRun> runs{{0, 300}};
    Rows rows(*index, runs);
    ShardFiles files(index);
    BlockReader reader(files);
    RequestPlan plan(*index);
    plan.add(runs, rows.fields);
    plan.arrange();
    for (const ReadRequest& request : plan.requests()) reader.read(plan, request);
    const StreamStats stats = reader.take_stats();
    EXPECT_EQ(stats.blocks_read, 2u * 75);
    EXPECT_LE(stats.requests, 2u);
    EXPECT_LE(stats.bytes_read, 300u * 24 + 4096);
}

TEST_F(Reading, KeepsNeighboursOfABlockThatIsDamagedOrCutOff) {
    for (const Codec codec : {Codec::none, Codec::lz4}) {
        const auto index = pack(codec, 1, 10);
        const fs::path shard = options_.output / index->shards()[0].name;
        test::damage_block(*index, 0, 3);
        const StoredBlock& last = index->stored_blocks(0).back();
        const StoredBlock& label = index->stored_blocks(1).back();
        const bool is_image_last = last.offset > label.offset;
        fs::resize_file(shard, std::max(last.offset, label.offset) + 1);
        const std::vector<RowRun> runs{{0, 300}};
        Rows rows(*index, runs);
        ShardFiles files(index);
        BlockReader reader(files);
        RequestPlan plan(*index);
        plan.add(runs, rows.fields);
        plan.arrange();
        std::map<std::pair<std::size_t, std::size_t>, std::string> bad;
        for (const ReadRequest& request : plan.requests())
            reader.read(plan, request, [&](const BlockPiece& piece, const Error& error) {
                bad[{piece.field, piece.block}] = error.code();
            });
        EXPECT_EQ((bad[{0, 3}]), "E213");
        EXPECT_EQ((bad[{is_image_last ? 0u : 1u, 29}]), "E204");
        EXPECT_EQ(bad.size(), 2u);
        const auto packed = test::expected_content(samples_, options_);
        for (std::uint64_t row = 0; row < 290; ++row)
            if (row < 30 || row >= 40) {
                EXPECT_EQ(std::memcmp(&rows.bytes[0][row * 16], packed.at(row).image.data(), 16),
                          0);
            }
        EXPECT_THAT((std::set<std::string>{"E204", "E213"}), Contains(caught_code([&] {
                        for (const ReadRequest& request : plan.requests())
                            reader.read(plan, request);
                    })));
    }
}

// Which pages of a file are in the page cache.
std::vector<bool> cached_pages(const fs::path& path) {
    const UniqueFd file = open_for_reading(path);
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = fs::file_size(path);
    void* const map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.value(), 0);
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    EXPECT_EQ(::mincore(map, bytes, pages.data()), 0);
    ::munmap(map, bytes);
    std::vector<bool> cached;
    for (const unsigned char flags : pages) cached.push_back(flags & 1);
    return cached;
}

std::size_t count_cached(const fs::path& path) {
    const std::vector<bool> pages = cached_pages(path);
    return static_cast<std::size_t>(std::ranges::count(pages, true));
}

class Pages : public Reading {
  protected:
    // Large enough that the system's own pages at the ends hardly count.
    void SetUp() override {
        samples_ = test::make_samples(1500, 1, {.channels = 3, .height = 32, .width = 32});
        index_ = pack(Codec::none, 1, 37);
        shard_ = options_.output / index_->shards()[0].name;
        const UniqueFd file = open_for_reading(shard_);
        ::fsync(file.value());
        ::posix_fadvise(file.value(), 0, 0, POSIX_FADV_DONTNEED);
        if (count_cached(shard_) > 0) GTEST_SKIP() << "this file system keeps its pages";
    }
    std::shared_ptr<const DatasetIndex> index_;
    fs::path shard_;
};

TEST_F(Pages, AreDroppedBehindTheReadersAndKeptOtherwise) {
    for (const PageCache use : {PageCache::keep, PageCache::drop}) {
        StreamOptions options;
        options.lanes = 4;
        options.window_blocks = 2;
        options.io_threads = 2;
        options.page_cache = use;
        EXPECT_EQ(test::read_all(index_, options), test::expected_content(samples_, options_));
        const std::size_t all = cached_pages(shard_).size();
        const std::size_t cached = count_cached(shard_);
        if (use == PageCache::keep) {
            EXPECT_GT(cached, all * 9 / 10);
        } else {  // pages that blocks of two epochs share, and those of the index
            EXPECT_LT(cached, all / 4);
        }
    }
}

TEST_F(Pages, AreDroppedAllButTheOnesThatOtherBlocksShare) {
    ShardFiles files(index_);
    BlockReader reader(files);
    PageDropper dropper(files);
    std::vector<std::byte> rows(1500 * 3072);
    RequestPlan plan(*index_);
    const auto read = [&](std::uint64_t first, std::uint64_t count) {
        plan.clear();
        plan.add(0, first, count, std::span(rows).first(count * 3072));
        plan.arrange();
        for (const ReadRequest& request : plan.requests()) {
            reader.read(plan, request);
            dropper.consumed(0, plan.pieces_of(request));
        }
    };
    const auto& blocks = index_->stored_blocks(0);
    const std::uint64_t page = 4096;
    reader.read_rows(0, 0, 1500, rows);  // all in the cache
    read(37, 37);
    const std::vector<bool> after_one = cached_pages(shard_);
    EXPECT_TRUE(after_one[blocks[1].offset / page]);  // block 0 has a part of it
    EXPECT_FALSE(after_one[blocks[1].offset / page + 1]);
    read(0, 37);
    EXPECT_FALSE(cached_pages(shard_)[blocks[1].offset / page]);
    EXPECT_TRUE(cached_pages(shard_)[blocks[3].offset / page]);
}

TEST_F(Pages, OfABlockAreAllDroppedBeforeItIsReadAgain) {
    const StoredBlock& block = index_->stored_blocks(0)[5];
    ASSERT_NE(block.offset % 4096, 0u);
    ASSERT_NE((block.offset + block.stored_bytes) % 4096, 0u);
    ShardFiles files(index_);
    BlockReader reader(files);
    std::vector<std::byte> rows(1500 * 3072);
    const auto pages_of_block = [&] {
        const std::vector<bool> pages = cached_pages(shard_);
        std::size_t cached = 0;
        for (std::uint64_t page = block.offset / 4096;
             page * 4096 < block.offset + block.stored_bytes;
             ++page)
            cached += pages[page] ? 1 : 0;
        return cached;
    };
    reader.read_rows(0, 0, 1500, rows);
    EXPECT_GE(pages_of_block() * 4096, block.stored_bytes);
    drop_pages(files.descriptor(0), block.offset, block.stored_bytes);
    EXPECT_EQ(pages_of_block(), 0u);
}

TEST_F(Pages, AreReadAheadWhereTheyAreNotCached) {
    ShardFiles files(index_);
    RequestPlan plan(*index_);
    plan.add(0, 370, 74, {});
    plan.arrange();
    read_ahead(files, plan);
    std::vector<std::byte> rows(74 * 3072);
    BlockReader(files).read_rows(0, 370, 74, rows);  // waits for what is under way
    const std::vector<bool> pages = cached_pages(shard_);
    const ReadRequest& request = plan.requests()[0];
    for (std::uint64_t at = request.begin; at < request.end; at += 4096)
        EXPECT_TRUE(pages[at / 4096]);
}

RC_GTEST_PROP(Gather, CopiesRowsOfAnySizeInTheOrderAsked, ()) {
    const auto bytes =
        *rc::gen::element<std::size_t>(1, 3, 4, 8, 63, 64, 784, 1025, 2049, 5000, 12288);
    const auto source = *rc::gen::inRange<std::size_t>(1, 30);
    std::vector<std::byte> memory(source * bytes);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 37 >> 3);
    std::vector<const std::byte*> rows;
    std::vector<std::byte> expected;
    for (int i = *rc::gen::inRange(0, 300); i > 0; --i) {
        const std::size_t row = *rc::gen::inRange<std::size_t>(0, source);
        rows.push_back(memory.data() + row * bytes);
        expected.insert(expected.end(), rows.back(), rows.back() + bytes);
    }
    std::vector<std::byte> gathered(expected.size());
    gather_rows(rows, bytes, gathered.data());
    RC_ASSERT(gathered == expected);
}

}  // namespace
}  // namespace lockstep
