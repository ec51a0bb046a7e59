// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/team.hpp"

#include "pack_space.hpp"
#include "stream/block_reader.hpp"
#include "stream/ordered_work.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <list>
#include <mutex>
#include <numeric>

#include <fcntl.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

/// Keeps the `capacity` blocks used last, each made once by the first thread that needs it.
class BlockCache {
  public:
    using Bytes = std::shared_ptr<const std::vector<std::byte>>;

    explicit BlockCache(std::size_t capacity) : capacity_(capacity) {}

    /// Block number `number`; `make` gives its bytes if they are not here. Others that ask for the
    /// same block meanwhile wait, and get what `make` threw if it did.
    Bytes block(std::uint64_t number, const std::function<std::vector<std::byte>()>& make) {
        std::packaged_task<Bytes()> task(
            [&] { return std::make_shared<const std::vector<std::byte>>(make()); });
        std::unique_lock lock(mutex_);
        const auto known = std::ranges::find(entries_, number, &Entry::first);
        const bool is_new = known == entries_.end();
        if (is_new)
            entries_.emplace_front(number, task.get_future().share());
        else
            entries_.splice(entries_.begin(), entries_, known);
        const std::shared_future<Bytes> bytes = entries_.front().second;
        if (entries_.size() > capacity_) entries_.pop_back();
        lock.unlock();
        if (is_new) task();
        return bytes.get();
    }

  private:
    using Entry = std::pair<std::uint64_t, std::shared_future<Bytes>>;
    std::size_t capacity_;
    std::mutex mutex_;
    std::list<Entry> entries_;
};

// A random order needs random reads, unless it is made in two passes over the data, both in order:
//
//     rows          0 1 2 3 4 5 ...        place of each by the permutation
//                   |
//     distribute    bucket 0: places 0-99 | bucket 1: places 100-199 | ...     files, appended to
//                   |
//     read          a bucket fits into memory: load, put each row at its place, hand out in order
//
// Each member distributes its part of the rows to files of its own and reads all members' files of
// a bucket.
//
// What must never happen: the result depends on the number of members, on threads or on memory.
// Each record carries its place, so that it does not matter which member wrote it into which file
// and when.
//
// Tested: data/pack/pack_test.cpp; statistics: data/pack/sources_test.cpp, e2e/numbers_test.cpp.

constexpr std::uint64_t rows_at_once = 256;
constexpr std::uint64_t least_flush = std::uint64_t{64} << 10, most_flush = std::uint64_t{1} << 20;

// Records of a row: its place in the result, then its fields, end to end.
struct Layout {
    std::vector<std::size_t> field_bytes, field_offset;
    std::uint64_t row_bytes = 0, bucket_rows = 1, buckets = 1;

    std::uint64_t record_bytes() const { return sizeof(std::uint64_t) + row_bytes; }
};

Layout layout_of(const RowSource& source, std::uint64_t memory_bytes) {
    Layout layout;
    for (const Field& field : source.fields()) {
        layout.field_offset.push_back(layout.row_bytes);
        layout.field_bytes.push_back(field.bytes_per_sample());
        layout.row_bytes += field.bytes_per_sample();
    }
    // Two buckets are sorted at once, and one is on its way from the disk.
    layout.bucket_rows = std::max<std::uint64_t>(memory_bytes / 3 / layout.record_bytes(), 1);
    layout.buckets = (source.samples() + layout.bucket_rows - 1) / layout.bucket_rows;
    return layout;
}

std::vector<std::uint64_t> places_of_rows(std::uint64_t samples, std::uint64_t seed) {
    const std::vector<std::uint64_t> rows = shuffled_rows(samples, seed);
    std::vector<std::uint64_t> places(samples);
    for (std::uint64_t place = 0; place < samples; ++place) places[rows[place]] = place;
    return places;
}

fs::path bucket_path(const fs::path& folder, std::uint64_t bucket, int rank) {
    return folder / fmt::format("{:06}-{:05}", bucket, rank);
}

// Files that grow by large pieces.
class BucketWriter {
  public:
    BucketWriter(fs::path folder, int rank, const Layout& layout, std::uint64_t memory_bytes)
        : folder_(std::move(folder)),
          rank_(rank),
          layout_(layout),
          flush_bytes_(std::clamp(memory_bytes / layout.buckets, least_flush, most_flush)),
          pending_(layout.buckets) {}

    void add(std::span<const std::byte> record) {
        std::uint64_t place = 0;
        std::memcpy(&place, record.data(), sizeof place);
        auto& pending = pending_[place / layout_.bucket_rows];
        pending.insert(pending.end(), record.begin(), record.end());
        if (pending.size() >= flush_bytes_) flush(place / layout_.bucket_rows);
    }
    void flush_all() {
        for (std::uint64_t bucket = 0; bucket < pending_.size(); ++bucket) flush(bucket);
    }

  private:
    void flush(std::uint64_t bucket) {
        const fs::path path = bucket_path(folder_, bucket, rank_);
        const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
        if (!fd) throw system_error("write", path, errno);
        write_all(fd.value(), pending_[bucket], path);
        pending_[bucket].clear();
    }

    fs::path folder_;
    int rank_;
    const Layout& layout_;
    std::uint64_t flush_bytes_;
    std::vector<std::vector<std::byte>> pending_;
};

/// The rows of a source in the order that a pack with options.shuffle_seed gives them. Their files
/// lie in a hidden folder beside options.output, which goes when this does.
class ShuffledSource : public RowSource {
  public:
    /// Collective; `memory_bytes` is for each member. Errors: E403 (room for one copy), E404.
    ShuffledSource(const RowSource& source, const PackOptions& options, std::uint64_t memory_bytes)
        : RowSource(source.samples(), source.fields()),
          source_(source),
          options_(options),
          memory_bytes_(memory_bytes),
          layout_(layout_of(source, memory_bytes)),
          cache_(2) {
        folder_ = by_root(options.team, [&] { return enter(); });
    }

    /// This member's part of the rows, in order, to the files of all buckets. `report` hears of
    /// rows done, scaled to all.
    void distribute(const std::function<void(std::uint64_t)>& report) const {
        const auto rank = static_cast<std::uint64_t>(options_.team.rank);
        const auto size = static_cast<std::uint64_t>(options_.team.size);
        const std::uint64_t first = source_.samples() * rank / size;
        const std::uint64_t last = source_.samples() * (rank + 1) / size;
        const std::vector<std::uint64_t> places =
            places_of_rows(source_.samples(), *options_.shuffle_seed);
        using Bytes = std::vector<std::byte>;
        auto read = [&](std::uint64_t piece, Bytes& out) {
            const std::uint64_t begin = first + piece * rows_at_once;
            const std::uint64_t end = std::min(begin + rows_at_once, last);
            out.resize((end - begin) * layout_.record_bytes());
            for (std::uint64_t row = begin; row < end; ++row) {
                const auto record = std::span(out).subspan((row - begin) * layout_.record_bytes(),
                                                           layout_.record_bytes());
                std::memcpy(record.data(), &places[row], sizeof(std::uint64_t));
                for (std::size_t f = 0; f < layout_.field_bytes.size(); ++f)
                    source_.read(f,
                                 row,
                                 record.subspan(sizeof(std::uint64_t) + layout_.field_offset[f],
                                                layout_.field_bytes[f]));
            }
        };
        const auto threads = static_cast<std::size_t>(worker_count(options_.threads));
        std::vector<decltype(read)> readers(threads, read);
        BucketWriter writer(folder_, options_.team.rank, layout_, memory_bytes_);
        const std::uint64_t pieces = (last - first + rows_at_once - 1) / rows_at_once;
        work_in_order<Bytes>(pieces, readers, [&](std::uint64_t at, const Bytes& records) {
            for (std::size_t i = 0; i < records.size(); i += layout_.record_bytes())
                writer.add(std::span(records).subspan(i, layout_.record_bytes()));
            report(std::min(source_.samples(), (at + 1) * rows_at_once * size));
        });
        writer.flush_all();
    }

    std::string row_order() const override {
        return fmt::format("shuffled:{}", *options_.shuffle_seed);
    }
    Hash128 fingerprint() const override {
        return hash128(
            fmt::format("{} shuffled {}", source_.fingerprint().hex(), *options_.shuffle_seed));
    }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        const std::uint64_t bucket = row / layout_.bucket_rows;
        const auto rows = cache_.block(bucket, [&] { return load(bucket); });
        const std::uint64_t at = (row % layout_.bucket_rows) * layout_.row_bytes;
        std::ranges::copy(std::span(*rows).subspan(at + layout_.field_offset[field], out.size()),
                          out.begin());
    }

  private:
    std::string enter() {
        const fs::path target = fs::absolute(options_.output).lexically_normal();
        workspace_.emplace(target.parent_path() / (target.filename().string() + ".shuffle"));
        workspace_->clear();
        check_room(workspace_->path(),
                   samples() * layout_.record_bytes(),
                   "shuffling needs",
                   "a shuffled copy is made before the data set is written",
                   "use another file system, or keep the order");
        return workspace_->path();
    }

    std::vector<std::byte> load(std::uint64_t bucket) const {
        const std::uint64_t first = bucket * layout_.bucket_rows;
        const std::uint64_t rows = std::min(layout_.bucket_rows, samples() - first);
        std::vector<std::byte> sorted(rows * layout_.row_bytes);
        std::uint64_t found = 0;
        for (int rank = 0; rank < options_.team.size; ++rank)
            found += load_file(bucket_path(folder_, bucket, rank), first, sorted);
        expect(found == rows, "every row is in one file");
        return sorted;
    }

    std::uint64_t load_file(const fs::path& path,
                            std::uint64_t first,
                            std::span<std::byte> sorted) const {
        if (!fs::exists(path)) return 0;
        const UniqueFd fd = open_for_reading(path);
        std::vector<std::byte> records(fs::file_size(path));
        read_at(fd.value(), records, 0, path);
        const std::uint64_t count = records.size() / layout_.record_bytes();
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto record = std::span(records).subspan(i * layout_.record_bytes());
            std::uint64_t place = 0;
            std::memcpy(&place, record.data(), sizeof place);
            expect(place >= first && (place - first) < sorted.size() / layout_.row_bytes,
                   "a row is in the file of its place");
            std::memcpy(sorted.data() + (place - first) * layout_.row_bytes,
                        record.data() + sizeof place,
                        layout_.row_bytes);
        }
        return count;
    }

    const RowSource& source_;
    const PackOptions& options_;
    std::uint64_t memory_bytes_;
    Layout layout_;
    std::optional<Workspace> workspace_;  // set on rank 0
    fs::path folder_;
    mutable BlockCache cache_;
};

/// Fields of a data set, as stored: each block is read once if rows are requested in order. Names,
/// statistics and the order of rows are those of the data set. Errors of read(): those of damage
/// (E213 naming shard, field, block, offset and samples; E204; E210).
class PackedSource : public RowSource {
  public:
    /// The fields at `places`; the `cached_blocks` blocks used last are kept.
    PackedSource(const std::shared_ptr<const DatasetIndex>& index,
                 std::vector<std::size_t> places,
                 std::size_t cached_blocks)
        : RowSource(index->samples()),
          files_(index),
          places_(std::move(places)),
          blocks_(index->blocks()),
          cache_(cached_blocks) {
        for (const std::size_t place : places_) fields_.push_back(index->fields()[place]);
    }

    std::string row_order() const override { return files_.index().manifest().row_order; }
    Hash128 fingerprint() const override { return hash128(files_.index().digest()); }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        const auto after = std::ranges::upper_bound(blocks_, row, {}, &RowBlock::first);
        const auto number = static_cast<std::size_t>(after - blocks_.begin()) - 1;
        const auto bytes = cache_.block(field * blocks_.size() + number,
                                        [&] { return read_block(field, blocks_[number]); });
        const std::uint64_t inside = (row - blocks_[number].first) * out.size();
        std::ranges::copy(std::span(*bytes).subspan(inside, out.size()), out.begin());
    }

  private:
    std::vector<std::byte> read_block(std::size_t field, const RowBlock& block) const {
        auto reader = take_reader();
        std::vector<std::byte> bytes(block.rows * fields_[field].bytes_per_sample());
        reader->read_rows(places_[field], block.first, block.rows, bytes);
        const std::scoped_lock lock(mutex_);
        idle_.push_back(std::move(reader));
        return bytes;
    }
    std::unique_ptr<BlockReader> take_reader() const {
        const std::scoped_lock lock(mutex_);
        if (idle_.empty()) return std::make_unique<BlockReader>(files_);
        auto reader = std::move(idle_.back());
        idle_.pop_back();
        return reader;
    }

    mutable ShardFiles files_;
    std::vector<std::size_t> places_;
    std::vector<RowBlock> blocks_;
    mutable BlockCache cache_;
    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<BlockReader>> idle_;
};

}  // namespace

PackResult reshard_dataset(std::shared_ptr<const DatasetIndex> input,
                           const PackOptions& options,
                           std::uint64_t memory_bytes,
                           const PackReport& report) {
    together(options.team, [&] { check_is_free(options.output); });
    std::vector<std::size_t> places(input->fields().size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    const auto blocks = static_cast<std::size_t>(2 * worker_count(options.threads) + 2);
    const PackedSource packed(input, places, blocks * places.size());
    PackOptions plan = options;
    plan.classes = 0;
    plan.class_names.clear();
    if (plan.split.empty()) plan.split = input->split();
    if (plan.block_rows == 0) plan.block_rows = input->manifest().block_rows;
    if (!plan.shuffle_seed) return pack_dataset(packed, plan, report);
    const ShuffledSource shuffled(packed, options, memory_bytes);
    together(options.team, [&] {
        shuffled.distribute([&](std::uint64_t done) {
            if (report) report({"shuffle", done, packed.samples()});
        });
    });
    plan.shuffle_seed.reset();
    return pack_dataset(shuffled, plan, report);
}

// Rows of the index are scanned as those of an input are before they are packed.
std::vector<Field> find_statistics(const std::shared_ptr<const DatasetIndex>& index,
                                   const std::vector<std::size_t>& places,
                                   const Team& team,
                                   int threads,
                                   const PackReport& report) {
    const PackOptions options{.threads = threads, .team = team};
    const auto blocks = static_cast<std::size_t>(worker_count(threads) + 1);
    return scan_fields(PackedSource(index, places, blocks), options, report);
}

}  // namespace lockstep
