// SPDX-License-Identifier: Apache-2.0
// libhdf5 has one lock for everything, so training reads go around it. The index has the place of
// each block, and a request of about 1 MiB reads neighbours by one call into many places.
//
//     file        ... | block 7 | gap | block 8 | block 9 (raw) | ...
//                         |        |      |         |
//     one read         stored_    gap_  stored_   rows' own place
//                         |               |         |
//                     hash, undo filters, hash      hash
//                         |               |         |
//                      rows' place     rows' place  done
//
// What must never happen:
// - Bytes are handed on that were not compared with their hash, where the data set has one. They
//   are read once more, past the page cache, before they are called damaged: what was wrong may
//   have been the memory that cached them.
// - One bad block takes its neighbours along, or an error names the request instead of the block.
//   So a request that fails is fetched again block by block, and each is finished by itself.
// - A failure of the machine (no memory, a read that the system fails) is masked as bad data:
//   is_about_data().
// - Labels are out of range although the hash is right: they index arrays later, so they are
//   checked here, where the sample's number is known.
//
// Tested: data/stream/reading_test.cpp (requests however cut; damage and cut-off neighbours;
// pages), stream_service_test.cpp beside it (masking), soak/damage.

#include "block_reader.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/numbers.hpp"

#include "format/labels.hpp"
#include "format/widening.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Adds the seconds of its scope to `total`.
class Timed {
  public:
    explicit Timed(double& total) : total_(total), since_(now_s()) {}
    ~Timed() { total_ += now_s() - since_; }
    Timed& operator=(Timed&&) = delete;

  private:
    double& total_;
    double since_;
};

std::uint64_t largest(const DatasetIndex& index,
                      std::uint64_t StoredBlock::*size,
                      std::optional<std::size_t> field) {
    std::uint64_t bytes = 0;
    const std::size_t end = field ? *field + 1 : index.fields().size();
    for (std::size_t f = field.value_or(0); f < end; ++f)
        for (const StoredBlock& block : index.stored_blocks(f))
            bytes = std::max(bytes, block.*size);
    return bytes;
}

// Returns the bytes that a request needs in the worst case: neighbouring blocks, or one that is
// larger.
std::uint64_t staging_bytes(const DatasetIndex& index, std::optional<std::size_t> field) {
    return std::max(largest(index, &StoredBlock::stored_bytes, field), RequestLimits{}.bytes);
}

void add_place(std::vector<iovec>& places, std::span<std::byte> place) {
    if (!place.empty()) places.push_back({place.data(), place.size()});
}

// Fills the places from `offset`, across short reads, and changes them. Returns the bytes read:
// fewer only at the end of the file. Errors: E402.
std::uint64_t read_into(std::span<iovec> places,
                        int fd,
                        std::uint64_t offset,
                        const fs::path& path) {
    std::uint64_t total = 0;
    while (!places.empty()) {
        const int count = static_cast<int>(std::min<std::size_t>(places.size(), IOV_MAX));
        const ssize_t got = ::preadv(fd, places.data(), count, static_cast<off_t>(offset + total));
        if (got < 0 && errno == EINTR) continue;
        check(got >= 0, [&] { return system_error("read", path.string(), errno); });
        if (got == 0) break;
        total += static_cast<std::uint64_t>(got);
        auto left = static_cast<std::size_t>(got);
        for (; !places.empty() && left >= places[0].iov_len; places = places.subspan(1))
            left -= places[0].iov_len;
        if (left > 0) {
            places[0].iov_base = static_cast<std::byte*>(places[0].iov_base) + left;
            places[0].iov_len -= left;
        }
    }
    return total;
}

}  // namespace

BlockReader::BlockReader(ShardFiles& files, std::optional<std::size_t> field)
    : files_(files),
      index_(files.index()),
      rows_plan_(index_),
      stored_(staging_bytes(index_, field)),
      decoded_(largest(index_, &StoredBlock::decoded_bytes, field)),
      gap_(RequestLimits{}.gap_bytes) {}

std::uint64_t BlockReader::buffer_bytes(const DatasetIndex& index) {
    const std::uint64_t stored = staging_bytes(index, {});
    const std::uint64_t decoded = largest(index, &StoredBlock::decoded_bytes, {});
    std::uint64_t between = 0;
    for (const FilterChain& chain : index.forms().chains)
        between = std::max(between, Decoder::buffer_bytes(chain, stored, decoded));
    return stored + decoded + between + RequestLimits{}.gap_bytes;
}

void BlockReader::read_rows(std::size_t field,
                            std::uint64_t first,
                            std::uint64_t rows,
                            std::span<std::byte> out) {
    rows_plan_.clear();
    rows_plan_.add(field, first, rows, out);
    rows_plan_.arrange();
    for (const ReadRequest& request : rows_plan_.requests()) read(rows_plan_, request);
}

std::span<const std::byte> BlockReader::read_block(std::size_t field, std::size_t number) {
    const StoredBlock& block = index_.stored_blocks(field)[number];
    const std::span<std::byte> decoded = std::span(decoded_).first(block.decoded_bytes);
    const BlockPiece piece{field, number, 0, decoded};
    BlockRead read{{&piece, 1}, {}};
    std::uint64_t staged = 0;
    read.stored = place_for(read, staged);
    fetch(block, read.stored);
    return values_of(read);
}

void BlockReader::read(const RequestPlan& plan,
                       const ReadRequest& request,
                       const OnBadBlock& on_bad) {
    split_into_blocks(plan.pieces_of(request));
    const bool is_fetched = fetch_together(request);
    for (const BlockRead& read : blocks_) {
        try {
            // One by one where that failed, so that the error names the block.
            if (!is_fetched) fetch(stored(read.pieces[0]), read.stored);
            const std::span<const std::byte> values = values_of(read);
            if (values.data() == read.pieces[0].out.data()) continue;
            for (const BlockPiece& piece : read.pieces) put(piece, values);
        } catch (const Error& error) {
            if (!on_bad || !is_about_data(error)) throw;
            on_bad(read.pieces[0], error);
        }
    }
}

void BlockReader::split_into_blocks(std::span<const BlockPiece> pieces) {
    blocks_.clear();
    std::uint64_t staged = 0;
    while (!pieces.empty()) {
        const auto end = std::ranges::find_if_not(pieces, [&](const BlockPiece& piece) {
            return piece.field == pieces[0].field && piece.block == pieces[0].block;
        });
        const auto count = static_cast<std::size_t>(end - pieces.begin());
        BlockRead read{pieces.first(count), {}};
        read.stored = place_for(read, staged);
        blocks_.push_back(read);
        pieces = pieces.subspan(count);
    }
}

// Straight to its rows' place if that is what is stored; else the next part of the staging buffer.
std::span<std::byte> BlockReader::place_for(const BlockRead& read, std::uint64_t& staged) {
    const StoredBlock& block = stored(read.pieces[0]);
    const std::span<std::byte> out = read.pieces[0].out;
    if (block.codec == Codec::none && block.cut == 0 && read.pieces.size() == 1 &&
        out.size() == block.stored_bytes)
        return out;
    const auto place = std::span(stored_).subspan(staged, block.stored_bytes);
    staged += block.stored_bytes;
    return place;
}

bool BlockReader::fetch_together(const ReadRequest& request) {
    const Timed timed(stats_.read_s);
    std::uint64_t reached = request.begin;
    places_.clear();
    for (const BlockRead& read : blocks_) {
        const std::uint64_t offset = stored(read.pieces[0]).offset;
        add_place(places_, std::span(gap_).first(offset - reached));
        add_place(places_, read.stored);
        reached = offset + read.stored.size();
    }
    try {
        const std::uint64_t got = read_into(
            places_, files_.descriptor(request.shard), request.begin, files_.path(request.shard));
        if (got != request.end - request.begin) return false;
    } catch (const Error&) {
        return false;
    }
    ++stats_.requests;
    stats_.blocks_read += blocks_.size();
    stats_.bytes_read += request.end - request.begin;
    return true;
}

// At its rows' place if that is all there is to it, else in a buffer.
std::span<std::byte> BlockReader::values_of(const BlockRead& read) {
    const BlockPiece& first = read.pieces[0];
    const StoredBlock& block = stored(first);
    const Field& field = index_.fields()[first.field];
    make_intact(first, read.stored);
    const std::span<std::byte> chunk = expanded(read);
    const Cut* const cut = index_.cut_of(block);
    const std::span<std::byte> values =
        cut ? without_padding(*cut, block.tile, element_bytes(field.type), block.rows, chunk)
            : chunk.first(block.rows * field.bytes_per_sample());
    check_values(field, block, values);
    return values;
}

std::span<std::byte> BlockReader::expanded(const BlockRead& read) {
    const BlockPiece& first = read.pieces[0];
    const StoredBlock& block = stored(first);
    if (block.codec == Codec::none && read.stored.size() == block.decoded_bytes) return read.stored;
    const bool is_whole =
        block.cut == 0 && read.pieces.size() == 1 && first.out.size() == block.decoded_bytes;
    const std::span<std::byte> chunk =
        is_whole ? first.out : std::span(decoded_).first(block.decoded_bytes);
    const Timed timed(stats_.decode_s);
    const FilterChain& chain = index_.chain_of(block);
    if (!decoder_.decode(chain, read.stored, chunk))
        throw damaged(
            first.field, first.block, fmt::format("they are not valid {}", filter_text(chain)));
    return chunk;
}

void BlockReader::put(const BlockPiece& piece, std::span<const std::byte> values) const {
    const StoredBlock& block = stored(piece);
    const Field& field = index_.fields()[piece.field];
    const std::uint64_t rows = piece.out.size() / field.bytes_per_sample();
    const std::uint64_t row_bytes = values.size() / block.rows;
    const auto wanted = values.subspan(piece.skip_rows * row_bytes, rows * row_bytes);
    if (const Cut* const cut = index_.cut_of(block))
        put_tile(*cut, block.tile, element_bytes(field.type), wanted, piece.out);
    else
        std::ranges::copy(wanted, piece.out.begin());
}

void BlockReader::make_intact(const BlockPiece& piece, std::span<std::byte> bytes) {
    const StoredBlock& block = stored(piece);
    if (is_intact(block, bytes)) return;
    ++stats_.retries;
    drop_pages(files_.descriptor(block.shard), block.offset, block.stored_bytes);
    fetch(block, bytes);
    if (!is_intact(block, bytes))
        throw damaged(piece.field,
                      piece.block,
                      fmt::format("their XXH3-64 is {}, the index says {}; read twice",
                                  hex64(hash64(bytes)),
                                  hex64(block.hash)));
}

void BlockReader::fetch(const StoredBlock& block, std::span<std::byte> stored) {
    const Timed timed(stats_.read_s);
    const fs::path path = files_.path(block.shard);
    const std::size_t got = read_at(files_.descriptor(block.shard), stored, block.offset, path);
    check(got == stored.size(), [&] {
        return Error("E204",
                     fmt::format("'{}' is cut short: {} of {} bytes",
                                 path.string(),
                                 grouped(block.offset + got),
                                 grouped(block.offset + stored.size())),
                     "it was whole when it was opened",
                     restoring("copy it"));
    });
    ++stats_.requests;
    ++stats_.blocks_read;
    stats_.bytes_read += got;
}

bool BlockReader::is_intact(const StoredBlock& block, std::span<const std::byte> stored) {
    if (!block.is_hashed) return true;
    const Timed timed(stats_.verify_s);
    return hash64(stored) == block.hash;
}

// Padding of chunks is not looked at: it may be anything.
void BlockReader::check_values(const Field& field,
                               const StoredBlock& block,
                               std::span<const std::byte> rows) const {
    const std::uint64_t elements = rows.size() / element_bytes(field.type);
    const auto sample_of = [&](std::uint64_t element) {
        return block.first_row + element * block.rows / elements;
    };
    if (const std::optional<BadLabel> bad = first_bad_label(field, rows))
        throw Error(
            "E210",
            fmt::format("{} of sample {} is out of range",
                        label_text(field, bad->label),
                        grouped(sample_of(bad->element))),
            fmt::format("field '{}' in '{}' has {} classes",
                        field.name,
                        files_.path(block.shard).string(),
                        field.classes()),
            index_.manifest().kind == ManifestKind::packed
                ? "pack the data again from correct labels"
                : "it has changed since the file was opened: restore the file, and begin again");
    if (block.codec != Codec::filters || index_.chain_of(block)[0].kind != FilterKind::unpacking)
        return;
    if (const std::optional<std::uint64_t> missing = first_missing(rows))
        throw missing_value(field,
                            files_.path(block.shard),
                            sample_of(*missing) - index_.shards()[block.shard].first_sample,
                            sample_of(*missing));
}

// Only packed data can be verified.
std::string BlockReader::restoring(std::string_view what) const {
    const bool is_packed = index_.manifest().kind == ManifestKind::packed;
    return fmt::format(
        "{} from its source{}", what, is_packed ? ", then run 'lockstep data verify'" : " again");
}

Error BlockReader::damaged(std::size_t field, std::size_t number, const std::string& why) const {
    const auto& blocks = index_.stored_blocks(field);
    const StoredBlock& block = blocks[number];
    return Error("E213",
                 damage_text(files_.path(block.shard),
                             index_.fields()[field],
                             number_in_shard(blocks, number),
                             block),
                 why,
                 restoring("copy the file") +
                     "; 'lockstep train' with --on-bad-data mask leaves these samples out");
}

}  // namespace lockstep
