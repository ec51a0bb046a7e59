// SPDX-License-Identifier: Apache-2.0

#include "request_plan.hpp"

#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <tuple>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

namespace lockstep {
namespace {

// For everything else that is or will be open.
constexpr rlim_t reserve = 512;

Error too_many_files(std::size_t files) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return Error("E402",
                 fmt::format("the data are {} files, and this process may open {}",
                             grouped(files),
                             grouped(limit.rlim_max)),
                 "each file of data stays open while it is read; the limit is that of 'ulimit -n'",
                 fmt::format("ulimit -n {} (root or the site raises a hard limit), or make few "
                             "files of them: lockstep data pack",
                             2 * files + reserve));
}

// The first one, if they are tiles.
std::size_t block_of_row(const std::vector<StoredBlock>& blocks, std::uint64_t row) {
    const auto after = std::ranges::upper_bound(blocks, row, {}, &StoredBlock::first_row);
    const auto last = static_cast<std::size_t>(after - blocks.begin()) - 1;
    return last - blocks[last].tile;
}

void advise(int file, std::uint64_t begin, std::uint64_t end, int advice) {
    ::posix_fadvise(file, static_cast<off_t>(begin), static_cast<off_t>(end - begin), advice);
}

// Nothing if it cannot be opened: who reads it will say so.
std::optional<int> descriptor(ShardFiles& files, std::uint32_t shard) {
    try {
        return files.descriptor(shard);
    } catch (const Error&) {
        return {};
    }
}

// Whether a byte can be had at once; not where the file system cannot tell.
bool is_cached(int file, std::uint64_t offset) {
    char byte = 0;
    const iovec place{&byte, 1};
    return ::preadv2(file, &place, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

constexpr std::size_t most_warnings = 50;

}  // namespace

void allow_open_files(std::size_t count) {
    static std::mutex mutex;
    const std::scoped_lock lock(mutex);
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const rlim_t wanted = std::min<rlim_t>(count + reserve, limit.rlim_max);
    if (wanted <= limit.rlim_cur) return;
    limit.rlim_cur = wanted;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

ShardFiles::ShardFiles(std::shared_ptr<const DatasetIndex> index, Access access)
    : index_(std::move(index)), access_(access), files_(index_->shards().size() + 1) {
    allow_open_files(2 * files_.size());  // training and evaluation have one each
}

fs::path ShardFiles::path(std::uint32_t shard) const {
    return shard == kept_in_index ? index_->path() : index_->path() / index_->shards()[shard].name;
}

// Readers know files only; a copy in memory of what is small is cheaper than telling them more.
UniqueFd ShardFiles::open(std::uint32_t shard) const {
    if (shard != kept_in_index)
        return open_for_reading(path_beneath(index_->path(), index_->shards()[shard].name));
    UniqueFd memory(::memfd_create("lockstep-labels", MFD_CLOEXEC));
    check(static_cast<bool>(memory),
          [] { return system_error("make", "a file in memory for labels", errno); });
    write_all(memory.value(), index_->kept(), "labels in memory");
    return memory;
}

int ShardFiles::descriptor(std::uint32_t shard) {
    const std::scoped_lock lock(mutex_);
    UniqueFd& file = shard == kept_in_index ? files_.back() : files_[shard];
    if (!file) {
        try {
            file = open(shard);
        } catch (const Error&) {
            const UniqueFd one(::dup(STDIN_FILENO));  // is there one left?
            if (!one && (errno == EMFILE || errno == ENFILE))
                throw too_many_files(files_.size() - 1);
            throw;
        }
        if (access_ == Access::scattered)
            ::posix_fadvise(file.value(), 0, 0, POSIX_FADV_RANDOM);  // only advice
    }
    return file.value();
}

void RequestPlan::clear() {
    pieces_.clear();
    requests_.clear();
}

void RequestPlan::add(std::size_t field,
                      std::uint64_t first,
                      std::uint64_t rows,
                      std::span<std::byte> out) {
    const auto& blocks = index_.stored_blocks(field);
    const std::size_t row_bytes = index_.fields()[field].bytes_per_sample();
    for (std::size_t b = block_of_row(blocks, first); rows > 0;) {
        const std::uint64_t begin = blocks[b].first_row, inside = first - begin;
        const std::uint64_t take = std::min(blocks[b].rows - inside, rows);
        const std::span<std::byte> place = out.empty() ? out : out.first(take * row_bytes);
        for (; b < blocks.size() && blocks[b].first_row == begin; ++b)
            pieces_.push_back({field, b, inside, place});
        out = out.subspan(place.size());
        first += take;
        rows -= take;
    }
}

void RequestPlan::add(std::span<const RowRun> runs, std::span<const std::span<std::byte>> fields) {
    for (std::size_t f = 0; f < fields.size(); ++f) {
        const std::size_t row_bytes = index_.fields()[f].bytes_per_sample();
        std::span<std::byte> rest = fields[f];
        for (const RowRun& run : runs) {
            const std::span<std::byte> out = rest.empty() ? rest : rest.first(run.rows * row_bytes);
            add(f, run.first, run.rows, out);
            rest = rest.subspan(out.size());
        }
    }
}

void RequestPlan::arrange() {
    std::ranges::sort(pieces_, {}, [this](const BlockPiece& piece) {
        return std::tuple(stored(piece).shard, stored(piece).offset, piece.field, piece.block);
    });
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        const StoredBlock& block = stored(pieces_[i]);
        const bool is_again = i > 0 && pieces_[i - 1].field == pieces_[i].field &&
                              pieces_[i - 1].block == pieces_[i].block;
        if (!is_again && (requests_.empty() || !fits(requests_.back(), block)))
            requests_.push_back({block.shard, block.offset, block.offset, i, 0});
        ReadRequest& request = requests_.back();
        request.end = std::max(request.end, block.offset + block.stored_bytes);
        ++request.pieces;
    }
}

bool RequestPlan::fits(const ReadRequest& request, const StoredBlock& next) const {
    if (next.shard != request.shard || next.offset < request.end) return false;
    const std::uint64_t gap = next.offset - request.end;
    return gap <= limits_.gap_bytes && gap <= (request.end - request.begin) / 8 &&
           next.offset + next.stored_bytes - request.begin <= limits_.bytes &&
           request.pieces < limits_.pieces;
}

void read_ahead(ShardFiles& files, const RequestPlan& plan) {
    for (const ReadRequest& request : plan.requests()) {
        const std::optional<int> file = descriptor(files, request.shard);
        if (!file || (is_cached(*file, request.begin) && is_cached(*file, request.end - 1)))
            continue;
        advise(*file, request.begin, request.end, POSIX_FADV_WILLNEED);
    }
}

void forget(ShardFiles& files, const RequestPlan& plan) {
    for (const ReadRequest& request : plan.requests())
        if (const std::optional<int> file = descriptor(files, request.shard))
            advise(*file, request.begin, request.end, POSIX_FADV_DONTNEED);
}

void drop_pages(int file, std::uint64_t offset, std::uint64_t bytes) {
    constexpr std::uint64_t unit = std::uint64_t{2} << 20;
    advise(
        file, offset / unit * unit, (offset + bytes + unit - 1) / unit * unit, POSIX_FADV_DONTNEED);
}

PageDropper::PageDropper(ShardFiles& files) : files_(files) {
    page_ = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    for (std::size_t f = 0; f < files.index().fields().size(); ++f)
        epochs_.emplace_back(files.index().stored_blocks(f).size());
}

void PageDropper::consumed(std::uint64_t epoch, std::span<const BlockPiece> pieces) {
    const auto mark = static_cast<std::uint32_t>(epoch + 1);
    for (const BlockPiece& piece : pieces) epochs_[piece.field][piece.block] = mark;
    const BlockPiece& first = pieces.front();
    const std::optional<int> file =
        descriptor(files_, files_.index().stored_blocks(first.field)[first.block].shard);
    if (!file) return;
    Range range;
    const auto drop = [&] {
        if (range.end > range.begin) advise(*file, range.begin, range.end, POSIX_FADV_DONTNEED);
    };
    for (const BlockPiece& piece : pieces) {
        const Range pages = pages_of(epoch, piece);
        if (pages.begin > range.end || pages.begin < range.begin) {
            drop();
            range = pages;
        }
        range.end = std::max(range.end, pages.end);
    }
    drop();
}

bool PageDropper::is_consumed(std::uint64_t epoch, std::size_t field, std::size_t block) const {
    return epochs_[field][block] == static_cast<std::uint32_t>(epoch + 1);
}

// The block's bytes, and as far into its first and last page as its neighbours were consumed: the
// system drops whole pages only. Both of two neighbours mark themselves before they look.
PageDropper::Range PageDropper::pages_of(std::uint64_t epoch, const BlockPiece& piece) const {
    const auto& blocks = files_.index().stored_blocks(piece.field);
    const StoredBlock& block = blocks[piece.block];
    Range range{block.offset, block.offset + block.stored_bytes};
    const std::uint64_t page_begin = range.begin / page_ * page_;
    const std::uint64_t page_end = (range.end + page_ - 1) / page_ * page_;
    for (std::size_t b = piece.block; b > 0 && range.begin > page_begin; --b) {
        const StoredBlock& before = blocks[b - 1];
        if (before.shard != block.shard || before.offset + before.stored_bytes != range.begin ||
            !is_consumed(epoch, piece.field, b - 1))
            break;
        range.begin = before.offset;
    }
    for (std::size_t b = piece.block + 1; b < blocks.size() && range.end < page_end; ++b) {
        const StoredBlock& after = blocks[b];
        if (after.shard != block.shard || after.offset != range.end ||
            !is_consumed(epoch, piece.field, b))
            break;
        range.end = after.offset + after.stored_bytes;
    }
    return {std::max(range.begin, page_begin), std::min(range.end, page_end)};
}

std::size_t number_in_shard(const std::vector<StoredBlock>& blocks, std::size_t block) {
    const auto first =
        std::ranges::lower_bound(blocks, blocks[block].shard, {}, &StoredBlock::shard);
    return block - static_cast<std::size_t>(first - blocks.begin());
}

std::string damage_text(const fs::path& path,
                        const Field& field,
                        std::size_t number,
                        const StoredBlock& block) {
    return fmt::format(
        "'{}' is damaged: field '{}', block {}, {} bytes at offset {} (samples {} to {})",
        path.string(),
        field.name,
        number,
        grouped(block.stored_bytes),
        grouped(block.offset),
        grouped(block.first_row),
        grouped(block.first_row + block.rows - 1));
}

bool is_about_data(const Error& error) {
    using enum ErrorKind;
    const ErrorKind kind = kind_of(error);
    return kind == file_missing || kind == file_forbidden || kind == data_damaged ||
           kind == device_failed;
}

void BadBlocks::add(const BlockPiece& piece, const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (!known_.insert({piece.field, piece.block}).second) return;
    const auto& blocks = files_.index().stored_blocks(piece.field);
    const StoredBlock& block = blocks[piece.block];
    const auto masked = [](std::uint64_t first, std::uint64_t samples) {
        return fmt::format(
            "samples {} to {} are masked", grouped(first), grouped(first + samples - 1));
    };
    const ErrorKind kind = kind_of(error);
    if (kind == ErrorKind::file_missing || kind == ErrorKind::file_forbidden) {
        const Shard& shard = files_.index().shards()[block.shard];
        if (closed_.insert(block.shard).second)
            here(Level::warn,
                 "{}: error {}: {}",
                 masked(shard.first_sample, shard.samples),
                 error.code(),
                 error.what());
        return;
    }
    if (++warnings_ <= most_warnings)
        here(Level::warn,
             "{}: '{}', field '{}', block {} at offset {}: error {}: {}",
             masked(block.first_row, block.rows),
             files_.path(block.shard).string(),
             files_.index().fields()[piece.field].name,
             number_in_shard(blocks, piece.block),
             grouped(block.offset),
             error.code(),
             error.why().empty() ? error.what() : error.why());
    if (warnings_ == most_warnings)
        here(Level::warn, "{} blocks are bad; further ones are only counted", most_warnings);
}

std::vector<FieldBlock> blocks_of_part(const DatasetIndex& index, int part, int parts) {
    const auto wanted = static_cast<std::uint64_t>(part), of = static_cast<std::uint64_t>(parts);
    const std::uint64_t total = index.samples() * index.manifest().bytes_per_sample();
    std::vector<FieldBlock> blocks;
    std::uint64_t before = 0;
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        for (std::size_t b = 0; b < index.stored_blocks(f).size(); ++b) {
            const StoredBlock& block = index.stored_blocks(f)[b];
            const std::uint64_t bytes = block.rows * index.row_bytes_of(f, block);
            if (before * of / total == wanted) blocks.push_back({f, b, bytes});
            before += bytes;
        }
    return blocks;
}

}  // namespace lockstep
