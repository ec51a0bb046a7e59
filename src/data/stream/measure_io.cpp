// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/measure_io.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"

#include "block_reader.hpp"
#include "io_ways.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Threads take pieces one by one, in `repeats` rounds over all.

IoRow run_pread(const IoBench& bench, IoRow row, std::uint64_t repeats) {
    const std::vector<FilePiece>& pieces = bench.portion.files;
    const std::uint64_t total = pieces.size() * repeats;
    std::atomic<std::uint64_t> taken{0};
    ShardFiles files(bench.index);
    row.stored_bytes = bench.portion.stored_bytes * repeats;
    row.best_s = timed_threads(row.threads, [&](int thread) -> std::function<void()> {
        for (std::uint32_t shard = 0; shard < bench.index->shards().size(); ++shard)
            files.descriptor(shard);
        return [&, ring = Ring(bench.ring_part(thread, row.threads))]() mutable {
            for (std::uint64_t n = taken++; n < total; n = taken++) {
                const FilePiece& piece = pieces[n % pieces.size()];
                read_at(files.descriptor(piece.shard),
                        ring.next(piece.bytes),
                        piece.offset,
                        files.path(piece.shard));
            }
        };
    });
    return row;
}

IoRow run_blocks(const IoBench& bench, IoRow row, std::uint64_t repeats) {
    const std::vector<RowSpan>& spans = bench.portion.spans;
    const std::uint64_t total = spans.size() * repeats;
    std::atomic<std::uint64_t> taken{0};
    ShardFiles files(bench.index);
    std::mutex mutex;
    row.bytes = bench.portion.decoded_bytes * repeats;
    row.stored_bytes = bench.portion.stored_bytes * repeats;
    row.best_s = timed_threads(row.threads, [&](int thread) -> std::function<void()> {
        auto reader = std::make_shared<BlockReader>(files);
        return [&, reader, ring = Ring(bench.ring_part(thread, row.threads))]() mutable {
            for (std::uint64_t n = taken++; n < total; n = taken++) {
                const auto& [field, shard, first, rows] = spans[n % spans.size()];
                const std::size_t row_bytes = bench.index->fields()[field].bytes_per_sample();
                reader->read_rows(field, first, rows, ring.next(rows * row_bytes));
            }
            const std::scoped_lock lock(mutex);
            row.spent += reader->take_stats();
        };
    });
    row.spent.io_threads = row.threads;
    return row;
}

IoRow run_stream(const IoBench& bench, IoRow row, std::uint64_t repeats) {
    const std::uint64_t wanted = bench.portion.rows * repeats;
    const double since = now_s();
    StreamOptions options;
    options.batch = bench.plan.batch;
    options.io_threads = row.threads;
    options.memory_bytes = bench.plan.memory_bytes;
    BatchStream stream(bench.index, options);
    std::uint64_t rows = 0;
    while (rows < wanted) {
        const Batch batch = stream.next();
        if (rows == 0) row.first_s = now_s() - since;
        rows += batch.sample_ids.size();
    }
    row.best_s = now_s() - since;
    row.spent = stream.stats();
    row.bytes = rows * bench.index->manifest().bytes_per_sample();
    row.stored_bytes = row.spent.bytes_read;
    return row;
}

// One line of the result while it is being measured.
struct Lane {
    IoRow row;
    std::vector<double> seconds;
};

// Hot measurements come first in a round, after warming.
std::vector<Lane> lanes_of(const IoBench& bench, IoMeasurements& measured) {
    std::vector<CacheState> states = bench.plan.states;
    if (bench.portion.rows < bench.index->samples() && std::erase(states, CacheState::hot) > 0)
        measured.notes.push_back(
            fmt::format("hot: not measured, the data set is larger than {}; its first {} rows are "
                        "read cold",
                        bytes_text(bench.plan.limit_bytes),
                        grouped(bench.portion.rows)));
    std::vector<Lane> lanes;
    for (const CacheState state : states)
        for (const IoWay way : {IoWay::pread, IoWay::blocks, IoWay::stream})
            for (const int threads : bench.plan.threads)
                lanes.push_back({.row = {.way = way, .state = state, .threads = threads}});
    return lanes;
}

void run_lane(const IoBench& bench, Lane& lane, IoMeasurements& measured) {
    const IoRow& row = lane.row;
    const bool is_cold = row.state == CacheState::cold;
    if (is_cold) {
        const double left = drop_page_cache(*bench.index);
        const std::string note =
            "cold: the page cache could not be dropped, is this a memory file system?";
        if (left > 0.05 && std::ranges::find(measured.notes, note) == measured.notes.end())
            measured.notes.push_back(note);
    }
    const IoRow pass = run_way(bench,
                               {.way = row.way, .state = row.state, .threads = row.threads},
                               is_cold ? 1 : bench.hot_repeats());
    lane.seconds.push_back(pass.best_s);
    if (row.best_s == 0 || pass.best_s < row.best_s) lane.row = pass;
}

void run_rounds(const IoBench& bench, std::vector<Lane>& lanes, IoMeasurements& measured) {
    const std::uint64_t total = lanes.size() * static_cast<std::uint64_t>(bench.plan.rounds);
    std::uint64_t done = 0;
    for (int round = 0; round < bench.plan.rounds; ++round) {
        if (bench.portion.rows == bench.index->samples()) run_way(bench, {.way = IoWay::pread}, 1);
        for (Lane& lane : lanes) {
            const IoRow& row = lane.row;
            if (bench.plan.report)
                bench.plan.report(done++,
                                  total,
                                  fmt::format("{}, {}, {} thread(s)",
                                              way_name(row.way),
                                              state_name(row.state),
                                              row.threads));
            run_lane(bench, lane, measured);
        }
    }
}

void check_plan(const IoPlan& plan) {
    expect(!plan.threads.empty() && plan.rounds >= 1 && plan.batch >= 1 && plan.ring_bytes > 0 &&
               plan.least_bytes > 0,
           "a plan of measuring makes sense");
    for (const int threads : plan.threads)
        check(threads >= 1 && threads <= 1024, [&] {
            return Error("E102", fmt::format("{} threads", threads), "1 to 1024 are possible");
        });
}

std::uint64_t resident_pages(int fd, std::uint64_t bytes, std::uint64_t page) {
    void* const map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return 0;
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    std::uint64_t resident = 0;
    if (::mincore(map, bytes, pages.data()) == 0)
        for (const unsigned char flags : pages) resident += flags & 1u;
    ::munmap(map, bytes);
    return resident;
}

std::span<const StoredBlock> blocks_within(const DatasetIndex& index,
                                           std::size_t field,
                                           std::uint64_t rows) {
    const auto& blocks = index.stored_blocks(field);
    const auto end = std::ranges::lower_bound(blocks, rows, {}, &StoredBlock::first_row);
    return std::span(blocks).first(static_cast<std::size_t>(end - blocks.begin()));
}

// Blocks of at most one request together, each whole; bands of tiles by themselves.
std::vector<RowSpan> spans_of(const DatasetIndex& index, std::uint64_t rows) {
    std::vector<RowSpan> spans;
    for (std::size_t f = 0; f < index.fields().size(); ++f) {
        std::uint64_t begin = 0, end = 0;  // in the file
        for (const StoredBlock& block : blocks_within(index, f, rows)) {
            if (block.tile > 0) continue;
            const bool joins = block.cut == 0 && end > 0 && spans.back().shard == block.shard &&
                               end == block.offset &&
                               block.offset + block.stored_bytes - begin <= request_bytes;
            if (joins) {
                spans.back().rows += block.rows;
            } else {
                spans.push_back({f, block.shard, block.first_row, block.rows});
                begin = block.offset;
            }
            end = block.cut == 0 ? block.offset + block.stored_bytes : 0;
        }
    }
    std::ranges::stable_sort(spans, {}, &RowSpan::first);
    return spans;
}

std::vector<FilePiece> ranges_of(const DatasetIndex& index, std::uint64_t rows) {
    std::vector<FilePiece> ranges;
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        for (const StoredBlock& block : blocks_within(index, f, rows))
            ranges.push_back({block.shard, block.offset, block.stored_bytes});
    std::ranges::sort(
        ranges, {}, [](const FilePiece& range) { return std::pair(range.shard, range.offset); });
    return ranges;
}

// Neighbours become one range, which is cut again into requests.
std::vector<FilePiece> requests_of(const std::vector<FilePiece>& ranges) {
    std::vector<FilePiece> requests;
    for (std::size_t i = 0; i < ranges.size();) {
        FilePiece merged = ranges[i];
        for (++i; i < ranges.size() && ranges[i].shard == merged.shard &&
                  ranges[i].offset == merged.offset + merged.bytes;
             ++i)
            merged.bytes += ranges[i].bytes;
        for (std::uint64_t done = 0; done < merged.bytes; done += request_bytes)
            requests.push_back(
                {merged.shard, merged.offset + done, std::min(request_bytes, merged.bytes - done)});
    }
    return requests;
}

}  // namespace

IoBench::IoBench(std::shared_ptr<const DatasetIndex> opened, const IoPlan& plan_of)
    : plan(plan_of), index(std::move(opened)), portion(first_rows(*index, plan.limit_bytes)) {
    const auto most = static_cast<std::uint64_t>(std::ranges::max(plan.threads));
    const std::uint64_t least = std::max(aligned(portion.largest_span), request_bytes);
    ring = Pages(std::max(plan.ring_bytes, most * least));
    // Pages that were never written are one shared page of zeros, which is no memory at all.
    std::memset(ring.bytes().data(), 1, ring.bytes().size());
}

std::span<std::byte> IoBench::ring_part(int thread, int threads) const {
    const std::size_t part = ring.bytes().size() / static_cast<std::size_t>(threads) /
                             buffer_alignment * buffer_alignment;
    return ring.bytes().subspan(static_cast<std::size_t>(thread) * part, part);
}

std::uint64_t IoBench::hot_repeats() const {
    return (plan.least_bytes + portion.decoded_bytes - 1) / portion.decoded_bytes;
}

IoRow run_way(const IoBench& bench, IoRow row, std::uint64_t repeats) {
    constexpr IoRow (*ways[])(const IoBench&, IoRow, std::uint64_t) = {
        run_pread, run_blocks, run_stream};
    return ways[static_cast<std::size_t>(row.way)](bench, row, repeats);
}

std::string_view way_name(IoWay way) {
    constexpr std::string_view names[] = {"pread", "blocks", "stream"};
    return names[static_cast<std::size_t>(way)];
}

std::string_view state_name(CacheState state) {
    return state == CacheState::hot ? "hot" : "cold";
}

const IoRow* IoMeasurements::find(IoWay way, CacheState state, int threads) const {
    const auto found = std::ranges::find_if(rows, [&](const IoRow& row) {
        return row.way == way && row.state == state && row.threads == threads;
    });
    return found == rows.end() ? nullptr : &*found;
}

std::optional<double> IoMeasurements::share_of_pread(const IoRow& row) const {
    const IoRow* const limit = find(IoWay::pread, row.state, row.threads);
    if (limit == nullptr || row.stored_bytes == 0) return {};
    return row.stored_per_s() / limit->stored_per_s();
}

IoMeasurements measure_io(std::shared_ptr<const DatasetIndex> index, const IoPlan& plan) {
    expect(index != nullptr, "there is a data set to measure");
    check_plan(plan);
    const IoBench bench(std::move(index), plan);
    IoMeasurements measured{.samples = bench.portion.rows,
                            .bytes_per_sample = bench.index->manifest().bytes_per_sample(),
                            .decoded_bytes = bench.portion.decoded_bytes,
                            .stored_bytes = bench.portion.stored_bytes,
                            .codec = std::string(codec_name(bench.index->manifest().codec))};
    std::vector<Lane> lanes = lanes_of(bench, measured);
    run_rounds(bench, lanes, measured);
    for (Lane& lane : lanes) {
        lane.row.median_s = median_of(lane.seconds);
        measured.rows.push_back(lane.row);
    }
    std::ranges::stable_sort(measured.rows, [](const IoRow& a, const IoRow& b) {
        return std::tuple(a.state, a.way, a.threads) < std::tuple(b.state, b.way, b.threads);
    });
    return measured;
}

double drop_page_cache(const DatasetIndex& index) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::uint64_t resident = 0, pages = 0;
    for (const Shard& shard : index.shards()) {
        if (shard.bytes == 0) continue;
        const UniqueFd file = open_for_reading(path_beneath(index.path(), shard.name));
        ::fdatasync(file.value());
        ::posix_fadvise(file.value(), 0, 0, POSIX_FADV_DONTNEED);
        resident += resident_pages(file.value(), shard.bytes, page);
        pages += (shard.bytes + page - 1) / page;
    }
    return pages == 0 ? 0 : static_cast<double>(resident) / static_cast<double>(pages);
}

Portion first_rows(const DatasetIndex& index, std::uint64_t limit_bytes) {
    const std::uint64_t row_bytes = std::max<std::uint64_t>(index.manifest().bytes_per_sample(), 1);
    Portion portion;
    portion.rows = index.samples();
    if (portion.rows * row_bytes > limit_bytes) {
        const std::uint64_t block = std::max<std::uint64_t>(index.manifest().block_rows, 1);
        const std::uint64_t blocks = std::max<std::uint64_t>(limit_bytes / row_bytes / block, 1);
        portion.rows = std::min(portion.rows, blocks * block);
    }
    portion.decoded_bytes = portion.rows * row_bytes;
    portion.spans = spans_of(index, portion.rows);
    for (const RowSpan& span : portion.spans)
        portion.largest_span = std::max(portion.largest_span,
                                        span.rows * index.fields()[span.field].bytes_per_sample());
    const std::vector<FilePiece> ranges = ranges_of(index, portion.rows);
    for (const FilePiece& range : ranges) portion.stored_bytes += range.bytes;
    portion.files = requests_of(ranges);
    return portion;
}

}  // namespace lockstep
