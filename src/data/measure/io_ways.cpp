// SPDX-License-Identifier: Apache-2.0
#include "measure/io_ways.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include "measure/timed_threads.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

namespace lockstep {
namespace {

constexpr std::uint64_t copy_piece = 1u << 20, most_source = 256u << 20;

// Pages that were never written are one shared page of zeros, which is no memory at all.
void touch(const Memory& memory) {
    std::memset(memory.bytes().data(), 1, memory.bytes().size());
}

std::shared_ptr<const DatasetIndex> without_hashes(const DatasetIndex& index) {
    std::vector<std::vector<StoredBlock>> blocks;
    bool any = false;
    for (std::size_t f = 0; f < index.fields().size(); ++f) {
        blocks.push_back(index.stored_blocks(f));
        for (StoredBlock& block : blocks.back()) {
            any = any || block.is_hashed;
            block.is_hashed = false;
        }
    }
    if (!any) return nullptr;
    return std::make_shared<const DatasetIndex>(DatasetIndex::of_blocks(
        index.path(), manifest_text(index.manifest()), std::move(blocks), index.forms()));
}

// Hands out `repeats` rounds over `pieces` numbers, one by one, to any thread.
class Dealer {
  public:
    Dealer(std::size_t pieces, std::uint64_t repeats) : pieces_(pieces), total_(pieces * repeats) {}
    bool next(std::size_t& piece) {
        const std::uint64_t taken = taken_.fetch_add(1, std::memory_order_relaxed);
        piece = taken % pieces_;
        return taken < total_;
    }

  private:
    std::size_t pieces_;
    std::uint64_t total_;
    std::atomic<std::uint64_t> taken_{0};
};

// The same in every pass, so that the compiler may not drop the copy.
std::atomic<unsigned char> sink;

Pass run_copy(const IoBench& bench, int threads, std::uint64_t repeats) {
    const std::span<const std::byte> source = bench.source.bytes();
    Dealer dealer(source.size() / copy_piece, repeats);
    Pass pass;
    pass.bytes = source.size() / copy_piece * copy_piece * repeats;
    pass.seconds = timed_threads(threads, [&](int thread) -> std::function<void()> {
        std::byte* const out = bench.ring_part(thread, threads).data();
        return [&, out] {
            for (std::size_t piece = 0; dealer.next(piece);) {
                std::memcpy(out, source.data() + piece * copy_piece, copy_piece);
                sink.store(std::to_integer<unsigned char>(out[piece % copy_piece]),
                           std::memory_order_relaxed);
            }
        };
    });
    return pass;
}

Pass run_pread(const IoBench& bench, int threads, std::uint64_t repeats) {
    const std::vector<FilePiece>& pieces = bench.portion.files;
    Dealer dealer(pieces.size(), repeats);
    ShardFiles files(bench.index);
    Pass pass;
    pass.stored_bytes = bench.portion.stored_bytes * repeats;
    pass.seconds = timed_threads(threads, [&](int thread) -> std::function<void()> {
        for (std::uint32_t shard = 0; shard < bench.index->shards().size(); ++shard)
            files.descriptor(shard);
        return [&, ring = Ring(bench.ring_part(thread, threads))]() mutable {
            for (std::size_t number = 0; dealer.next(number);) {
                const FilePiece& piece = pieces[number];
                read_at(files.descriptor(piece.shard),
                        ring.next(piece.bytes),
                        piece.offset,
                        files.path(piece.shard));
            }
        };
    });
    return pass;
}

void read_spans(const IoBench& bench, BlockReader& reader, Dealer& dealer, Ring& ring) {
    for (std::size_t number = 0; dealer.next(number);) {
        const RowSpan& span = bench.portion.spans[number];
        const std::size_t row_bytes = bench.index->fields()[span.field].bytes_per_sample();
        reader.read_rows(span.field, span.first, span.rows, ring.next(span.rows * row_bytes));
    }
}

Pass run_blocks(const IoBench& bench,
                std::shared_ptr<const DatasetIndex> index,
                int threads,
                std::uint64_t repeats) {
    Dealer dealer(bench.portion.spans.size(), repeats);
    ShardFiles files(std::move(index));
    std::mutex mutex;
    Pass pass;
    pass.bytes = bench.portion.decoded_bytes * repeats;
    pass.stored_bytes = bench.portion.stored_bytes * repeats;
    pass.seconds = timed_threads(threads, [&](int thread) -> std::function<void()> {
        auto reader = std::make_shared<BlockReader>(files);
        return [&, reader, ring = Ring(bench.ring_part(thread, threads))]() mutable {
            read_spans(bench, *reader, dealer, ring);
            const std::scoped_lock lock(mutex);
            pass.spent += reader->take_stats();
        };
    });
    pass.spent.io_threads = threads;
    return pass;
}

StreamOptions stream_options(const IoBench& bench, int threads) {
    StreamOptions options;
    options.batch = bench.plan.batch;
    options.io_threads = threads;
    options.memory_bytes = bench.plan.memory_bytes;
    return options;
}

Pass run_stream(const IoBench& bench, int threads, std::uint64_t repeats) {
    const std::uint64_t wanted = bench.portion.rows * repeats;
    Pass pass;
    const double since = now_s();
    BatchStream stream(bench.index, stream_options(bench, threads));
    std::uint64_t rows = 0;
    while (rows < wanted) {
        const Batch batch = stream.next();
        if (rows == 0) pass.first_s = now_s() - since;
        rows += batch.sample_ids.size();
    }
    pass.seconds = now_s() - since;
    pass.spent = stream.stats();
    pass.bytes = rows * bench.index->manifest().bytes_per_sample();
    pass.stored_bytes = pass.spent.bytes_read;
    return pass;
}

// Each thread is a rank that is bound to a core, with its share of every batch.
std::shared_ptr<BatchStream> rank_stream(const IoBench& bench, int thread, int threads) {
    StreamOptions options = stream_options(bench, 0);
    options.order = OrderKind::uniform;
    options.batch = bench.plan.batch * threads;
    options.virtual_ranks = threads;
    options.first_leaf = thread;
    options.last_leaf = thread + 1;
    return std::make_shared<BatchStream>(bench.index, options, StreamPosition{}, bench.resident);
}

std::uint64_t rows_of_epoch(BatchStream& stream) {
    for (std::uint64_t rows = 0;;) {
        const Batch batch = stream.next();
        rows += batch.sample_ids.size();
        if (batch.next.epoch != batch.position.epoch) return rows;
    }
}

Pass run_resident(const IoBench& bench, int threads, std::uint64_t repeats) {
    std::atomic<std::uint64_t> rows{0};
    Pass pass;
    pass.seconds = timed_threads(threads, [&](int thread) -> std::function<void()> {
        auto stream = rank_stream(bench, thread, threads);
        rows_of_epoch(*stream);
        return [&, stream = std::move(stream)] {
            for (std::uint64_t epoch = 0; epoch < repeats; ++epoch) rows += rows_of_epoch(*stream);
        };
    });
    pass.bytes = rows * bench.index->manifest().bytes_per_sample();
    return pass;
}

std::shared_ptr<const ResidentRows> load_resident(const IoBench& bench) {
    const auto& ways = bench.plan.ways;
    const bool is_wanted = ways.empty() || std::ranges::find(ways, IoWay::resident) != ways.end();
    if (!is_wanted || bench.portion.rows < bench.index->samples()) return nullptr;
    auto rows = ResidentRows::in_own_memory(bench.index);
    rows->load({.threads = std::ranges::max(bench.plan.threads)});
    rows->seal();
    return rows;
}

}  // namespace

IoBench::IoBench(std::shared_ptr<const DatasetIndex> opened, const IoPlan& plan_of)
    : plan(plan_of),
      index(std::move(opened)),
      unhashed(without_hashes(*index)),
      portion(first_rows(*index, plan.limit_bytes)),
      source(std::clamp(portion.decoded_bytes, copy_piece, most_source)) {
    const auto most = static_cast<std::uint64_t>(std::ranges::max(plan.threads));
    const std::uint64_t least = std::max(aligned(portion.largest_span), copy_piece);
    ring = Memory(std::max(plan.ring_bytes, most * least));
    touch(source);
    touch(ring);
    resident = load_resident(*this);
}

std::span<std::byte> IoBench::ring_part(int thread, int threads) const {
    const std::size_t part = ring.bytes().size() / static_cast<std::size_t>(threads) /
                             buffer_alignment * buffer_alignment;
    return ring.bytes().subspan(static_cast<std::size_t>(thread) * part, part);
}

std::uint64_t IoBench::hot_repeats() const {
    return (plan.least_bytes + portion.decoded_bytes - 1) / portion.decoded_bytes;
}

std::string obstacle(const IoBench& bench, IoWay way, int threads) {
    if (way == IoWay::h5dread || way == IoWay::h5dread_batches)
        return h5dread_obstacle(bench, way, threads);
    if (way == IoWay::unverified && !bench.unhashed) return "its blocks have no hashes anyway";
    if (way == IoWay::resident && !bench.resident) return "the data set is larger than the limit";
    return "";
}

Pass run_way(const IoBench& bench, IoWay way, int threads, std::uint64_t repeats) {
    switch (way) {
        case IoWay::copy:
            return run_copy(bench, threads, repeats);
        case IoWay::pread:
            return run_pread(bench, threads, repeats);
        case IoWay::h5dread:
        case IoWay::h5dread_batches:
            return run_h5dread(bench, way, threads, repeats);
        case IoWay::unverified:
            return run_blocks(bench, bench.unhashed, threads, repeats);
        case IoWay::blocks:
            return run_blocks(bench, bench.index, threads, repeats);
        case IoWay::stream:
            return run_stream(bench, threads, repeats);
        case IoWay::resident:
            return run_resident(bench, threads, repeats);
    }
    expect(false, "there is such a way");
    return {};
}

}  // namespace lockstep
