// SPDX-License-Identifier: Apache-2.0
#include "io_others.hpp"

#include "lockstep/core/error.hpp"

#include "hdf5/h5.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {
namespace {

using h5::checked;
using h5::Handle;
using Index = std::shared_ptr<const DatasetIndex>;

constexpr std::uint64_t copy_piece = 1u << 20, most_source = 256u << 20;

// The index without its hashes, as libhdf5 knows none.
Index without_hashes(const DatasetIndex& index) {
    std::vector<std::vector<StoredBlock>> blocks;
    for (std::size_t f = 0; f < index.fields().size(); ++f) {
        blocks.push_back(index.stored_blocks(f));
        for (StoredBlock& block : blocks.back()) block.is_hashed = false;
    }
    return std::make_shared<const DatasetIndex>(DatasetIndex::of_blocks(
        index.path(), manifest_text(index.manifest()), std::move(blocks), index.forms()));
}

// One thread's own handles, as a program of many threads would have them.
class Datasets {
  public:
    explicit Datasets(const DatasetIndex& index) : index_(index) {
        const h5::QuietErrors quiet;
        for (const Shard& shard : index.shards()) {
            const auto path = index.path() / shard.name;
            files_.emplace_back(
                checked(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "E205", "open", path),
                H5Fclose);
            for (std::size_t f = 0; f < index.fields().size(); ++f) {
                const std::string name = "/data/" + index.fields()[f].name;
                datasets_.emplace_back(
                    checked(H5Dopen2(files_.back().id(), name.c_str(), H5P_DEFAULT),
                            "E207",
                            "find a field in",
                            path),
                    H5Dclose);
            }
        }
    }

    const Handle& dataset(std::uint32_t shard, std::size_t field) const {
        return datasets_[shard * index_.fields().size() + field];
    }

    void read(const RowSpan& piece, std::span<std::byte> out) const {
        const Field& field = index_.fields()[piece.field];
        const Shard& shard = index_.shards()[piece.shard];
        std::vector<hsize_t> start(field.shape.size() + 1, 0), count(field.shape.size() + 1);
        start[0] = piece.first - shard.first_sample;
        count[0] = piece.rows;
        for (std::size_t i = 0; i < field.shape.size(); ++i)
            count[i + 1] = static_cast<hsize_t>(field.shape[i]);
        const int rank = static_cast<int>(count.size());
        const Handle& data = dataset(piece.shard, piece.field);
        const Handle in_file(H5Dget_space(data.id()), H5Sclose);
        H5Sselect_hyperslab(
            in_file.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
        const Handle in_memory(H5Screate_simple(rank, count.data(), nullptr), H5Sclose);
        checked(H5Dread(data.id(),
                        h5::type_of(field.type),
                        in_memory.id(),
                        in_file.id(),
                        H5P_DEFAULT,
                        out.data()),
                "E213",
                "read",
                index_.path() / shard.name);
    }

  private:
    const DatasetIndex& index_;
    std::vector<Handle> files_, datasets_;
};

// The filters of `dataset` that this process has not and that HDF5_PLUGIN_PATH does not bring.
std::string missing_filter(const Handle& dataset) {
    const Handle creation(H5Dget_create_plist(dataset.id()), H5Pclose);
    const int filters = H5Pget_nfilters(creation.id());
    for (int i = 0; i < filters; ++i) {
        unsigned flags = 0, config = 0;
        std::size_t values = 0;
        char name[64] = "";
        const H5Z_filter_t filter = H5Pget_filter2(creation.id(),
                                                   static_cast<unsigned>(i),
                                                   &flags,
                                                   &values,
                                                   nullptr,
                                                   sizeof name,
                                                   name,
                                                   &config);
        if (H5Zfilter_avail(filter) <= 0)
            return fmt::format(
                "libhdf5 has no filter {} here; set HDF5_PLUGIN_PATH to a folder with it "
                "(pip install hdf5plugin brings one)",
                filter);
    }
    return "";
}

// The blocks of all fields, by rows, cut into calls of at most `most_rows`.
std::vector<RowSpan> calls_of(const DatasetIndex& index, std::uint64_t most_rows) {
    std::vector<RowSpan> calls;
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        for (const StoredBlock& block : index.stored_blocks(f))
            for (std::uint64_t done = 0; done < block.rows; done += most_rows)
                calls.push_back({f,
                                 block.shard,
                                 block.first_row + done,
                                 std::min<std::uint64_t>(most_rows, block.rows - done)});
    std::ranges::stable_sort(calls, {}, &RowSpan::first);
    return calls;
}

IoRow run_h5dread(const IoBench& bench, int threads, std::uint64_t most_rows) {
    const std::vector<RowSpan> calls = calls_of(*bench.index, most_rows);
    std::atomic<std::uint64_t> taken{0};
    const std::uint64_t total = calls.size() * bench.hot_repeats();
    IoRow pass;
    pass.bytes = bench.portion.decoded_bytes * bench.hot_repeats();
    pass.stored_bytes = bench.portion.stored_bytes * bench.hot_repeats();
    pass.best_s = timed_threads(threads, [&](int thread) -> std::function<void()> {
        auto datasets = std::make_shared<Datasets>(*bench.index);
        return [&, datasets, ring = Ring(bench.ring_part(thread, threads))]() mutable {
            const h5::QuietErrors quiet;
            for (std::uint64_t n = taken++; n < total; n = taken++) {
                const RowSpan& call = calls[n % calls.size()];
                const std::size_t row_bytes = bench.index->fields()[call.field].bytes_per_sample();
                datasets->read(call, ring.next(call.rows * row_bytes));
            }
        };
    });
    return pass;
}

// The same in every pass, so that the compiler may not drop the copy.
std::atomic<unsigned char> sink;

IoRow run_copy(const IoBench& bench, std::span<const std::byte> source, int threads) {
    const std::uint64_t pieces = source.size() / copy_piece, total = pieces * bench.hot_repeats();
    std::atomic<std::uint64_t> taken{0};
    IoRow pass;
    pass.bytes = total * copy_piece;
    pass.best_s = timed_threads(threads, [&](int thread) -> std::function<void()> {
        std::byte* const out = bench.ring_part(thread, threads).data();
        return [&, out] {
            for (std::uint64_t n = taken++; n < total; n = taken++) {
                std::memcpy(out, source.data() + n % pieces * copy_piece, copy_piece);
                sink = std::to_integer<unsigned char>(out[n % copy_piece]);
            }
        };
    });
    return pass;
}

// Each thread is a rank that is bound to a core, with its share of every batch.
BatchStream rank_stream(const IoBench& bench,
                        std::shared_ptr<const ResidentRows> rows,
                        int thread,
                        int threads) {
    StreamOptions options;
    options.order = OrderKind::uniform;
    options.batch = bench.plan.batch * threads;
    options.io_threads = 0;
    options.virtual_ranks = threads;
    options.first_leaf = thread;
    options.last_leaf = thread + 1;
    return {bench.index, options, StreamPosition{}, std::move(rows)};
}

std::uint64_t rows_of_epoch(BatchStream& stream) {
    for (std::uint64_t rows = 0;;) {
        const Batch batch = stream.next();
        rows += batch.sample_ids.size();
        if (batch.next.epoch != batch.position.epoch) return rows;
    }
}

IoRow run_resident(const IoBench& bench,
                   const std::shared_ptr<const ResidentRows>& resident,
                   int threads) {
    std::atomic<std::uint64_t> rows{0};
    IoRow pass;
    pass.best_s = timed_threads(threads, [&](int thread) -> std::function<void()> {
        auto stream = std::make_shared<BatchStream>(rank_stream(bench, resident, thread, threads));
        rows_of_epoch(*stream);
        return [&, stream] {
            for (std::uint64_t n = 0; n < bench.hot_repeats(); ++n) rows += rows_of_epoch(*stream);
        };
    });
    pass.bytes = rows * bench.index->manifest().bytes_per_sample();
    return pass;
}

Json row_of(const char* way, int threads, const IoRow& pass) {
    Json row = {{"way", way}, {"cache", "hot"}, {"threads", threads}};
    row["mb_per_s"] = static_cast<double>(pass.bytes) / pass.best_s / 1e6;
    row["stored_mb_per_s"] = static_cast<double>(pass.stored_bytes) / pass.best_s / 1e6;
    return row;
}

}  // namespace

OtherWays::OtherWays(Index index, const IoPlan& plan)
    : plan_(plan),
      bench_(index, plan_),
      unhashed_(without_hashes(*index), plan_),
      source_(std::clamp(bench_.portion.decoded_bytes, copy_piece, most_source)) {
    std::memset(source_.bytes().data(), 1, source_.bytes().size());
    auto rows = ResidentRows::in_own_memory(index);
    rows->load({.threads = std::ranges::max(plan_.threads)});
    rows->seal();
    resident_ = std::move(rows);
    const Datasets datasets(*index);
    for (std::size_t f = 0; f < index->fields().size() && obstacle_.empty(); ++f)
        obstacle_ = missing_filter(datasets.dataset(0, f));
    hbool_t is_threadsafe = false;
    H5is_library_threadsafe(&is_threadsafe);
    is_threadsafe_ = is_threadsafe;
}

void OtherWays::add_pass(Json& results) const {
    for (const int threads : plan_.threads) {
        results.push_back(row_of("memcpy", threads, run_copy(bench_, source_.bytes(), threads)));
        const bool is_possible = threads == 1 || is_threadsafe_;
        if (obstacle_.empty() && is_possible) {
            const std::uint64_t all = bench_.index->samples();
            results.push_back(row_of("H5Dread", threads, run_h5dread(bench_, threads, all)));
            // Of compressed chunks each batch would expand whole ones again.
            if (bench_.index->manifest().codec == Codec::none)
                results.push_back(
                    row_of("H5Dread of batches",
                           threads,
                           run_h5dread(bench_, threads, static_cast<std::uint64_t>(plan_.batch))));
        }
        results.push_back(row_of(
            "blocks, no hashes",
            threads,
            run_way(
                unhashed_, {.way = IoWay::blocks, .threads = threads}, unhashed_.hot_repeats())));
        results.push_back(row_of("resident", threads, run_resident(bench_, resident_, threads)));
    }
}

}  // namespace lockstep
