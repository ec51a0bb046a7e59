// SPDX-License-Identifier: Apache-2.0
// What a stream does for its caller besides the batches: masks, threads, memory, time.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"

#include "packed_samples.hpp"
#include "stream/memory.hpp"
#include "stream/ordered_work.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include <sched.h>

namespace lockstep {
namespace {

using Service = test::PackedSamples;

// One epoch under BadData::mask: the ids in order, and what is wrong with it. Samples in `bad` are
// to be masked and all others to be as packed.
struct Masked {
    std::vector<std::uint64_t> ids;
    std::uint64_t wrong = 0, batches_with_valid = 0, masked = 0;
};

Masked masked_epoch(std::shared_ptr<const DatasetIndex> index,
                    StreamOptions options,
                    const std::map<std::uint64_t, test::Delivered>& content,
                    const std::set<std::uint64_t>& bad) {
    options.on_bad_data = BadData::mask;
    const std::string zeros(content.begin()->second.image.size(), '\0');
    BatchStream stream(std::move(index), options);
    Masked seen;
    for (;;) {
        const Batch batch = stream.next();
        seen.batches_with_valid += !batch.valid.empty();
        for (std::size_t row = 0; row < batch.sample_ids.size(); ++row) {
            const std::uint64_t id = batch.sample_ids[row];
            const bool is_bad = bad.contains(id);
            const bool is_valid = batch.valid.empty() || batch.valid[row] == 1;
            seen.ids.push_back(id);
            seen.masked += !is_valid;
            seen.wrong += is_valid == is_bad;
            seen.wrong += test::delivered(batch, row) !=
                          (is_bad ? test::Delivered{zeros, 0} : content.at(id));
        }
        if (batch.next.epoch > batch.position.epoch) break;
    }
    EXPECT_GE(stream.stats().masked_samples, seen.masked);
    return seen;
}

std::set<std::uint64_t> ids_between(std::uint64_t first, std::uint64_t end) {
    std::set<std::uint64_t> ids;
    for (std::uint64_t id = first; id < end; ++id) ids.insert(id);
    return ids;
}

TEST_F(Service, MasksAllFieldsOfDamagedSamplesInTheirSlots) {
    for (const Codec codec : {Codec::none, Codec::deflate, Codec::lz4, Codec::zstd}) {
        const auto index = pack(codec);
        const auto content = test::expected_content(samples_, options_);
        const Masked whole = masked_epoch(index, test::small_stream(), content, {});
        EXPECT_EQ(whole.batches_with_valid, 0u);
        test::damage_block(*index, 0, 20);
        test::damage_block(*index, 1, 7);
        std::set<std::uint64_t> bad = ids_between(320, 336);
        bad.merge(ids_between(112, 128));
        const Masked seen = masked_epoch(index, test::small_stream(), content, bad);
        EXPECT_EQ(seen.ids, whole.ids);
        EXPECT_EQ(seen.wrong, 0u) << codec_name(codec);
        EXPECT_EQ(seen.masked, 32u);
        EXPECT_GT(seen.batches_with_valid, 0u);
        EXPECT_EQ(caught_code([&] { test::read_all(index, test::small_stream()); }), "E213");
    }
}

TEST_F(Service, MasksAShardThatCannotBeReadAndWhatIsCutOff) {
    const auto index = pack();
    const auto content = test::expected_content(samples_, options_);
    const Shard& second = index->shards()[1];
    const auto bad = ids_between(second.first_sample, second.first_sample + second.samples);
    fs::resize_file(options_.output / second.name, 100);
    EXPECT_EQ(masked_epoch(index, test::small_stream(), content, bad).wrong, 0u);
    fs::remove(options_.output / second.name);
    EXPECT_EQ(masked_epoch(index, test::small_stream(), content, bad).wrong, 0u);
    StreamOptions dropping = test::small_stream();
    dropping.page_cache = PageCache::drop;
    EXPECT_EQ(masked_epoch(index, dropping, content, bad).wrong, 0u);
    EXPECT_EQ(caught_code([&] { test::read_all(index, test::small_stream()); }), "E201");
}

TEST_F(Service, WarnsOfADamagedBlockOnceWithItsPlace) {
    const auto index = pack();
    test::damage_block(*index, 0, 20);
    fs::remove(options_.output / index->shards()[0].name);
    open_log({.directory = folder_ / "log", .terminal_level = Level::error});
    StreamOptions options = test::small_stream();
    options.on_bad_data = BadData::mask;
    BatchStream stream(index, options);
    while (stream.next().position.epoch < 3) continue;
    const std::string log = content_of(folder_ / "log" / "rank-00000.log");
    const StoredBlock& block = index->stored_blocks(0)[20];
    const auto at = log.find("samples 320 to 335 are masked");
    ASSERT_NE(at, log.npos) << log;
    std::size_t warnings = 0;
    for (auto next = log.find("masked"); next != log.npos; next = log.find("masked", next + 1))
        ++warnings;
    EXPECT_EQ(warnings, 2u);  // of the block, and of the shard that is missing
    EXPECT_THAT(log, HasSubstr("samples 0 to 159 are masked: error E201"));
    const std::string line = log.substr(at, log.find('\n', at) - at);
    EXPECT_THAT(line, HasSubstr(index->shards()[block.shard].name));
    EXPECT_THAT(line, HasSubstr("field 'images'"));
    EXPECT_THAT(line, HasSubstr("offset " + grouped(block.offset)));
    EXPECT_THAT(line, HasSubstr("E213"));
}

StreamStats totals(int threads, double busy_s, double wait_s) {
    StreamStats stats;
    stats.io_threads = threads;
    stats.decode_s = busy_s;
    stats.wait_s = wait_s;
    return stats;
}

TEST(ThreadGrowth, AddsOneWhileTheCallerWaitsForBusyThreads) {
    using Advice = ThreadGrowth::Advice;
    ThreadGrowth growth(3);
    EXPECT_TRUE(growth.is_due(100));
    EXPECT_EQ(growth.look(100, totals(1, 5, 9)), Advice::none);
    EXPECT_FALSE(growth.is_due(100.1));
    EXPECT_EQ(growth.look(101, totals(1, 5.9, 9.02)), Advice::add);
    EXPECT_NEAR(growth.waited_share(), 0.02, 1e-9);
    EXPECT_EQ(growth.look(102, totals(2, 7.8, 9.025)), Advice::keep);  // 0.5 % is not noticed
    EXPECT_EQ(growth.look(103, totals(2, 8.1, 9.5)), Advice::keep);    // they were idle
    EXPECT_EQ(growth.look(104, totals(2, 10, 10)), Advice::add);
    EXPECT_EQ(growth.look(105, totals(3, 13, 11)), Advice::keep);  // no more are allowed
}

TEST(BindingStage, NamesTheBusiestIfTheCallerWaited) {
    StreamStats stats;
    stats.io_threads = 2;
    stats.read_s = 1;
    stats.decode_s = 3;
    stats.assemble_s = 1.5;
    stats.wait_s = 0.04;
    EXPECT_EQ(binding_stage(stats, 4), "not input-bound");
    stats.wait_s = 0.05;
    EXPECT_EQ(binding_stage(stats, 4), "decode");
    stats.assemble_s = 2.5;
    EXPECT_EQ(binding_stage(stats, 4), "assemble");
    stats.read_s = 6;
    EXPECT_EQ(binding_stage(stats, 4), "I/O");
    stats.verify_s = 7;
    EXPECT_EQ(binding_stage(stats - StreamStats{}, 4), "verify");
}

class Growing : public test::PackedSamples {
  protected:
    // Takes long to expand, compared with handing out.
    std::shared_ptr<const DatasetIndex> pack_slow() {
        samples_ = test::make_samples(3000, 1, {.channels = 3, .height = 32, .width = 32});
        return pack(Codec::deflate, 3, 64);
    }
    // Takes batches as fast as they come for at most `limit_s`, or until there are `threads`.
    static int threads_after(BatchStream& stream, int threads, double limit_s) {
        const double until = now_s() + limit_s;
        while (now_s() < until && stream.stats().io_threads < threads) stream.next();
        return stream.stats().io_threads;
    }
};

TEST_F(Growing, AddsThreadsUpToItsBoundAndChangesNoBatch) {
    const auto index = pack_slow();
    const int most = std::min(2, usable_cores());
    StreamOptions options = test::small_stream();
    options.batch = 64;
    options.most_io_threads = 2;
    BatchStream growing(index, options);
    options.io_threads = 1;
    BatchStream fixed(index, options);
    EXPECT_EQ(growing.stats().io_threads, 1);
    EXPECT_EQ(threads_after(growing, most, 10), most);
    EXPECT_EQ(threads_after(growing, most + 1, 0.7), most);
    EXPECT_EQ(threads_after(fixed, 2, 0.7), 1);
    const Batch here = growing.next();
    options.io_threads = 1;
    BatchStream again(index, options, here.position);
    const Batch same = again.next();
    EXPECT_TRUE(std::ranges::equal(same.sample_ids, here.sample_ids));
    for (std::size_t f = 0; f < here.fields.size(); ++f)
        EXPECT_TRUE(std::ranges::equal(same.fields[f], here.fields[f]));
}

TEST_F(Growing, StaysWithinTheProcessorsItMayUse) {
    const cpu_set_t all = test::keep_to_one_core();
    EXPECT_EQ(usable_cores(), 1);
    EXPECT_EQ(most_io_threads({}), 1);
    EXPECT_EQ(most_io_threads({.io_threads = 5}), 5);
    ::sched_setaffinity(0, sizeof all, &all);
    EXPECT_EQ(most_io_threads({.most_io_threads = 1}), 1);
}

// A root with a control group of either version, and a process of 1 MiB.
fs::path fake_root(const TempDir& folder, int version, const std::string& limit) {
    const std::string name = "root" + std::to_string(version) + limit;
    const std::string page = std::to_string((1u << 20) / 4096);
    folder.file(name + "/proc/self/statm", "9999 " + page + " 1 1 0 1 0\n");
    folder.file(name + "/proc/self/cgroup", version == 2 ? "0::/job\n" : "4:memory:/job\n");
    folder.file(name + (version == 2 ? "/sys/fs/cgroup/job/memory.max"
                                     : "/sys/fs/cgroup/memory/job/memory.limit_in_bytes"),
                limit + "\n");
    return folder / name;
}

// How many of this process's threads have this policy of the scheduler.
int threads_with(int policy) {
    int count = 0;
    for (const auto& task : fs::directory_iterator("/proc/self/task"))
        count += ::sched_getscheduler(std::stoi(task.path().filename())) == policy;
    return count;
}

TEST_F(Service, ReadsInThreadsThatTakeNoProcessorFromItsCallerWhenTheyWake) {
    if (::sched_getscheduler(0) != SCHED_OTHER) GTEST_SKIP() << "not with this policy";
    ASSERT_EQ(threads_with(SCHED_BATCH), 0);
    BatchStream stream(pack(), test::small_stream());
    stream.next();  // so one has read and another has assembled
    EXPECT_GE(threads_with(SCHED_BATCH), 2);
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
}

TEST_F(Service, RefusesWhatTheControlGroupHasNoRoomFor) {
    const auto index = pack();
    const StreamMemory usual = plan_memory(*index, test::small_stream(), {});
    for (const int version : {1, 2}) {
        StreamOptions options = test::small_stream();
        options.system_root = fake_root(folder_, version, std::to_string((1u << 20) + 5000));
        const Error error = test::error_of([&] { BatchStream(index, options); });
        EXPECT_EQ(error.code(), "E224");
        EXPECT_THAT(error.what(), HasSubstr("leaves 4.9 KiB"));
        EXPECT_THAT(error.why(), HasSubstr("limited to 1.0 MiB"));
        EXPECT_THAT(error.fix(), HasSubstr("fewer lanes"));

        const std::uint64_t enough = (1u << 20) + usual.bytes();
        options.system_root = fake_root(folder_, version, std::to_string(enough));
        EXPECT_EQ(BatchStream(index, options).memory_bytes(), usual.bytes());
        options.memory_sharers = 4;
        EXPECT_EQ(caught_code([&] { BatchStream(index, options); }), "E224");
    }
}

TEST_F(Service, TakesFewerWindowsThreadsAndBatchesWhereThereIsLittleRoom) {
    const auto index = pack();
    const StreamMemory usual = plan_memory(*index, test::small_stream(), {});
    StreamOptions options = test::small_stream();
    options.io_threads = 1;
    options.memory_bytes = 5 * usual.slab_bytes + 4 * usual.batch_bytes + usual.reader_bytes;
    const StreamMemory least = plan_memory(*index, options, {});
    EXPECT_EQ(least.slabs, 5u);  // of four lanes, and one
    EXPECT_EQ(least.batches, lendable_batches);
    EXPECT_LE(least.bytes(), options.memory_bytes);
    EXPECT_GT(usual.slabs, least.slabs);
    EXPECT_THAT(least.text(), has("5 windows of", "4 batches of"));
    --options.memory_bytes;
    EXPECT_EQ(caught_code([&] { plan_memory(*index, options, {}); }), "E106");
}

TEST_F(Service, HandsOutWhatIsAheadWithoutWaiting) {
    BatchStream stream(pack(), test::small_stream());
    stream.next();
    double read_s = -1;
    for (int looks = 0; looks < 5;) {  // until all pools are full
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const double now = stream.stats().assemble_s;
        looks = now == read_s ? looks + 1 : 0;
        read_s = now;
    }
    const double waited = stream.stats().wait_s;
    for (int i = 0; i < 3; ++i) stream.next();
    EXPECT_EQ(stream.stats().wait_s, waited);
}

// A caller that needs some time for each batch, and the share of it that it waits.
double stall_share(BatchStream& stream, double batch_s, int steps) {
    stream.next();
    const StreamStats before = stream.stats();
    const double begun = now_s();
    for (int i = 0; i < steps; ++i) {
        const Batch batch = stream.next();
        std::this_thread::sleep_for(std::chrono::duration<double>(batch_s));
    }
    return (stream.stats() - before).wait_s / (now_s() - begun);
}

TEST_F(Growing, HardlyKeepsASlowerCallerWaiting) {
    const auto index = pack_slow();
    StreamOptions options = test::small_stream();
    options.batch = 64;
    options.io_threads = 1;
    // Without reading ahead, work of 1 for every 2.5 of the caller's would be a stall of 0.29.
    // Other work on the machine can disturb one attempt, but not help one.
    double least = 1;
    for (int attempt = 0; attempt < 12 && least > 0.1; ++attempt) {
        BatchStream measured(index, options), paced(index, options);
        const double begun = now_s();
        for (int i = 0; i < 100; ++i) measured.next();
        least = std::min(least, stall_share(paced, 2.5 * (now_s() - begun) / 100, 100));
    }
    EXPECT_LE(least, 0.1);
}

}  // namespace
}  // namespace lockstep
