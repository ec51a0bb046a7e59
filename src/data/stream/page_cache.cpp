// SPDX-License-Identifier: Apache-2.0
#include "page_cache.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <optional>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

namespace lockstep {
namespace {

void advise(int file, std::uint64_t begin, std::uint64_t end, int advice) {
    ::posix_fadvise(file, static_cast<off_t>(begin), static_cast<off_t>(end - begin), advice);
}

// Returns nothing if it cannot be opened: its reader will report that.
std::optional<int> descriptor(ShardFiles& files, std::uint32_t shard) {
    try {
        return files.descriptor(shard);
    } catch (const Error&) {
        return {};
    }
}

// Returns true if a byte can be read at once; false if the file system cannot tell.
bool is_cached(int file, std::uint64_t offset) {
    char byte = 0;
    const iovec place{&byte, 1};
    return ::preadv2(file, &place, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

}  // namespace

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

PageDropper::PageDropper(ShardFiles& files)
    : files_(files), page_(static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) {
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

}  // namespace lockstep
