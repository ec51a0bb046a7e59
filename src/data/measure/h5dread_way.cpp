// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "hdf5/h5.hpp"
#include "measure/io_ways.hpp"
#include "measure/timed_threads.hpp"

#include <atomic>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

using h5::checked;
using h5::Handle;

std::string dataset_name(const DatasetIndex& index, std::size_t field) {
    const Field& named = index.fields()[field];
    return named.source.empty() ? "/data/" + named.name : named.source;
}

// The portion's blocks, cut into calls of at most `most_rows`.
std::vector<RowSpan> calls_of(const IoBench& bench, std::uint64_t most_rows) {
    std::vector<RowSpan> calls;
    for (const RowSpan& block : bench.portion.blocks)
        for (std::uint64_t done = 0; done < block.rows; done += most_rows)
            calls.push_back({block.field,
                             block.shard,
                             block.first + done,
                             std::min(most_rows, block.rows - done)});
    return calls;
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
                const std::string name = dataset_name(index, f);
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

}  // namespace

std::string h5dread_obstacle(const IoBench& bench, IoWay way, int threads) {
    const bool is_stored_raw = bench.portion.stored_bytes == bench.portion.decoded_bytes;
    if (way == IoWay::h5dread_batches && !is_stored_raw)
        return "batches that cut compressed chunks would expand them more than once";
    hbool_t is_threadsafe = false;
    H5is_library_threadsafe(&is_threadsafe);
    if (threads > 1 && !is_threadsafe) return "this libhdf5 may be used by one thread only";
    if (!bench.index->kept().empty()) return "labels are no numbers in the files";
    const h5::QuietErrors quiet;
    try {
        const Datasets datasets(*bench.index);
        for (std::size_t f = 0; f < bench.index->fields().size(); ++f)
            if (const std::string why = missing_filter(datasets.dataset(0, f)); !why.empty())
                return why;
    } catch (const Error& error) {
        return std::string(error.what()) + ": " + error.why();
    }
    return "";
}

Pass run_h5dread(const IoBench& bench, IoWay way, int threads, std::uint64_t repeats) {
    const bool by_batches = way == IoWay::h5dread_batches;
    const std::vector<RowSpan> calls = calls_of(
        bench, by_batches ? static_cast<std::uint64_t>(bench.plan.batch) : bench.index->samples());
    std::atomic<std::uint64_t> taken{0};
    const std::uint64_t total = calls.size() * repeats;
    Pass pass;
    pass.bytes = bench.portion.decoded_bytes * repeats;
    pass.stored_bytes = bench.portion.stored_bytes * repeats;
    pass.seconds = timed_threads(threads, [&](int thread) -> std::function<void()> {
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

}  // namespace lockstep
