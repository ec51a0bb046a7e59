// SPDX-License-Identifier: Apache-2.0
// A shard is an ordinary HDF5 file that is read around the library later. For that its index must
// say where each block lies, which only the finished file shows. So it is written in two passes:
//
//     1  libhdf5    attributes | /index/FIELD, room reserved | /data/FIELD, by blocks | close
//     2  ourselves  find the blocks (shard_probe.cpp), put the index's rows into that room, flush,
//                   hash the whole file
//
//     threads       make 0 | make 1 | make 2 | ...     read, encode, hash; any order
//     this thread        write 0   write 1   write 2   in order; the only one that calls libhdf5
//
// What must never happen:
// - The bytes depend on threads or their timing: blocks are made from (spec, rows) alone and
//   written in order. Packing again gives the same file, and resuming a pack relies on it.
// - A block is stored that does not expand to what went in: each is expanded and compared at once,
//   since nobody could mend it later.
// - A failed write goes unnoticed. The driver tells the library that all is well (driver.cpp), so
//   `error` is looked at after each block and once more after the close, which flushes.
// - The index disagrees with the file: number and size of the found blocks are compared with what
//   was written.
//
// Tested: data/pack/pack_test.cpp and pack_team_test.cpp (every codec, same bytes for any threads,
// full disk, kills), data/hdf5/hdf5_tools_test.cpp (h5dump and h5py open them).

#include "shard_writer.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "h5.hpp"
#include "shard_probe.hpp"
#include "stream/ordered_work.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

using IndexRow = std::array<std::uint64_t, 4>;  // offset, stored bytes, first row, hash

// A block of one field, ready to be written.
struct EncodedField {
    std::vector<std::byte> raw, encoded;  // raw is padded where blocks are chunks
    bool is_encoded = false;
    std::uint64_t hash = 0;

    std::span<const std::byte> stored() const { return is_encoded ? encoded : raw; }
};
using EncodedBlock = std::vector<EncodedField>;

// Reads, encodes and hashes blocks. One thread.
class BlockMaker {
  public:
    BlockMaker(const ShardSpec& spec, const RowReader& rows, const Encoding& encoding)
        : spec_(spec), rows_(rows), encoder_(encoding.codec, encoding.level) {}

    int level() const { return encoder_.level(); }

    void operator()(std::uint64_t number, EncodedBlock& out) {
        out.resize(spec_.manifest.fields.size());
        for (std::size_t f = 0; f < out.size(); ++f) make(number, f, out[f]);
    }

  private:
    void make(std::uint64_t number, std::size_t field, EncodedField& out) {
        const std::size_t row_bytes = spec_.manifest.fields[field].bytes_per_sample();
        const std::uint64_t block_rows =
            std::min<std::uint64_t>(spec_.manifest.block_rows, spec_.shard().samples);
        const std::uint64_t first = number * block_rows;
        const std::uint64_t rows = std::min(block_rows, spec_.shard().samples - first);
        const bool is_chunk = encoder_.codec() != Codec::none;
        out.raw.assign((is_chunk ? block_rows : rows) * row_bytes, std::byte{0});
        for (std::uint64_t i = 0; i < rows; ++i)
            rows_(field,
                  spec_.shard().first_sample + first + i,
                  std::span(out.raw).subspan(i * row_bytes, row_bytes));
        out.is_encoded = false;
        if (is_chunk) encode(out);
        out.hash = hash64(out.stored());
    }

    void encode(EncodedField& out) {
        const auto encoded = encoder_.encode(out.raw);
        if (!encoded) return;
        decoded_.resize(out.raw.size());
        expect(decoder_.decode(encoder_.codec(), *encoded, decoded_) &&
                   std::ranges::equal(decoded_, out.raw),
               "a compressed block expands to what it was");
        out.encoded.assign(encoded->begin(), encoded->end());
        out.is_encoded = true;
    }

    const ShardSpec& spec_;
    const RowReader& rows_;
    Encoder encoder_;
    Decoder decoder_;
    std::vector<std::byte> decoded_;
};

std::vector<hsize_t> dimensions(std::uint64_t rows, const Field& field) {
    std::vector<hsize_t> size{rows};
    for (const std::int64_t extent : field.shape) size.push_back(static_cast<hsize_t>(extent));
    return size;
}

// An object's header in HDF5's usual format has room for 64 KiB; the manifest has all of them.
constexpr std::size_t most_described_classes = 4096, most_described_names_bytes = 16 * 1024;

void describe_field(const h5::Handle& dataset, const Field& field) {
    if (!field.layout.empty()) h5::write_attribute(dataset, "layout", field.layout);
    if (!field.mean.empty()) h5::write_attribute(dataset, "mean", field.mean);
    if (!field.std.empty()) h5::write_attribute(dataset, "std", field.std);
    if (!field.mean.empty() && field.type == ElementType::u8)
        h5::write_attribute(dataset, "units", std::string("value / 255"));
    if (!field.class_counts.empty() && field.class_counts.size() <= most_described_classes)
        h5::write_attribute(dataset, "class_counts", field.class_counts);
    const std::vector<std::string>& names = field.class_names;
    if (!names.empty() && std::ranges::max(names, {}, &std::string::size).size() * names.size() <=
                              most_described_names_bytes)
        h5::write_attribute(dataset, "class_names", names);
}

// One field of a shard while it is written.
class FieldWriter {
  public:
    FieldWriter(const h5::Handle& data,
                const ShardSpec& spec,
                std::size_t field,
                const Encoding& encoding)
        : spec_(spec),
          field_(spec.manifest.fields[field]),
          is_chunked_(encoding.codec != Codec::none) {
        h5::DatasetShape shape{
            dimensions(spec.shard().samples, field_), {}, encoding.codec, encoding.level};
        if (is_chunked_)
            shape.chunk = dimensions(
                std::min<std::uint64_t>(spec.manifest.block_rows, spec.shard().samples), field_);
        dataset_ =
            h5::create_dataset(data, field_.name, h5::type_of(field_.type), shape, spec.path);
        describe_field(dataset_, field_);
    }

    void write(const RowBlock& rows, const EncodedField& block) {
        if (is_chunked_)
            write_chunk(rows.first, block);
        else
            write_rows(rows.first, rows.rows, block.raw);
        index_.push_back({0, block.stored().size(), rows.first, block.hash});
    }

    /// Offsets are 0: only the finished file shows where the blocks are.
    const std::vector<IndexRow>& index() const { return index_; }

  private:
    // Bypasses the library's own filters: they are slower, and LZ4 and zstd may not be installed.
    void write_chunk(std::uint64_t first_row, const EncodedField& block) {
        const std::uint32_t skipped_filters = block.is_encoded ? 0 : 1;
        std::vector<hsize_t> start(field_.shape.size() + 1, 0);
        start[0] = first_row;
        h5::written(H5Dwrite_chunk(dataset_.id(),
                                   H5P_DEFAULT,
                                   skipped_filters,
                                   start.data(),
                                   block.stored().size(),
                                   block.stored().data()),
                    spec_.path);
    }

    void write_rows(std::uint64_t first_row, std::uint64_t rows, std::span<const std::byte> raw) {
        const std::vector<hsize_t> count = dimensions(rows, field_);
        std::vector<hsize_t> start(count.size(), 0);
        start[0] = first_row;
        const int rank = static_cast<int>(count.size());
        const h5::Handle there(H5Dget_space(dataset_.id()), H5Sclose);
        const h5::Handle here(H5Screate_simple(rank, count.data(), nullptr), H5Sclose);
        h5::written(H5Sselect_hyperslab(
                        there.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
                    spec_.path);
        const hid_t type = h5::type_of(field_.type);
        h5::written(H5Dwrite(dataset_.id(), type, here.id(), there.id(), H5P_DEFAULT, raw.data()),
                    spec_.path);
    }

    const ShardSpec& spec_;
    const Field& field_;
    bool is_chunked_;
    h5::Handle dataset_;
    std::vector<IndexRow> index_;
};

void describe_shard(const h5::Handle& file, const ShardSpec& spec) {
    const Manifest& manifest = spec.manifest;
    h5::write_attribute(file, "format_version", std::uint64_t{manifest_format_version});
    h5::write_attribute(file, "dataset_uuid", manifest.uuid);
    h5::write_attribute(file, "shard_index", std::uint64_t{spec.number});
    h5::write_attribute(file, "shard_count", std::uint64_t{manifest.shards.size()});
    h5::write_attribute(file, "first_sample", spec.shard().first_sample);
    h5::write_attribute(file, "n_samples", spec.shard().samples);
    h5::write_attribute(file, "split", manifest.split);
    h5::write_attribute(file, "row_order", manifest.row_order);
    h5::write_attribute(file, "writer", manifest.writer);
}

void reserve_indexes(const h5::Handle& file, const ShardSpec& spec, std::uint64_t blocks) {
    const h5::Handle group = h5::create_group(file, "index", spec.path);
    for (const Field& field : spec.manifest.fields) {
        const h5::Handle table =
            h5::create_dataset(group, field.name, H5T_STD_U64LE, {{blocks, 4}, {}}, spec.path);
        h5::write_attribute(table, "block_rows", std::uint64_t{spec.manifest.block_rows});
        h5::write_attribute(
            table, "columns", std::string("file offset, stored bytes, first row, XXH3-64"));
    }
}

using Indexes = std::vector<std::vector<IndexRow>>;

// Everything but the content of the index, which needs the finished file.
Indexes write_objects(const ShardSpec& spec,
                      const RowReader& rows,
                      Encoding encoding,
                      const BlockReport& report,
                      int& error) {
    const auto alignment =
        encoding.codec == Codec::none ? h5::Alignment::large_objects : h5::Alignment::none;
    const std::vector<RowBlock> blocks = row_blocks(spec.shard().samples, spec.manifest.block_rows);
    std::vector<BlockMaker> makers;
    const auto useful = std::clamp<std::size_t>(blocks.size(), 1, std::max(encoding.threads, 1));
    for (std::size_t i = 0; i < useful; ++i) makers.emplace_back(spec, rows, encoding);
    encoding.level = makers[0].level();
    const h5::Handle file = h5::create_file(spec.path, alignment, error);
    describe_shard(file, spec);
    reserve_indexes(file, spec, blocks.size());
    const h5::Handle data = h5::create_group(file, "data", spec.path);
    std::vector<FieldWriter> fields;
    for (std::size_t f = 0; f < spec.manifest.fields.size(); ++f)
        fields.emplace_back(data, spec, f, encoding);
    work_in_order<EncodedBlock>(blocks.size(), makers, [&](std::uint64_t at, const auto& made) {
        for (std::size_t f = 0; f < fields.size(); ++f) fields[f].write(blocks[at], made[f]);
        check(error == 0, [&] { return system_error("write", spec.path, error); });
        report(spec.shard().first_sample + blocks[at].first + blocks[at].rows);
    });
    Indexes indexes;
    for (const FieldWriter& field : fields) indexes.push_back(field.index());
    return indexes;
}

// Puts the index's rows where the library reserved room for them.
IndexPlace write_index(int fd,
                       const ShardSpec& spec,
                       std::size_t field,
                       const ShardBlocks& found,
                       std::vector<IndexRow> rows) {
    const std::vector<StoredBlock>& blocks = found.blocks[field];
    const std::uint64_t offset = found.tables[field];
    expect(blocks.size() == rows.size() && offset > 0,
           "a shard just written has the blocks that were written");
    for (std::size_t i = 0; i < rows.size(); ++i) {
        expect(blocks[i].stored_bytes == rows[i][1], "a block has the size it was given");
        rows[i][0] = blocks[i].offset;
    }
    const std::span<const std::byte> bytes = std::as_bytes(std::span(rows));
    if (::lseek(fd, static_cast<off_t>(offset), SEEK_SET) < 0)
        throw system_error("write", spec.path, errno);
    write_all(fd, bytes, spec.path);
    return {offset, rows.size(), hash64(bytes), spec.manifest.fields[field].name};
}

void write_texts(const h5::Handle& file, const TextDataset& list, const fs::path& path) {
    if (list.texts.empty()) return;
    std::size_t longest = 1;
    for (const std::string& text : list.texts) longest = std::max(longest, text.size());
    std::string padded;
    for (const std::string& text : list.texts)
        padded += text + std::string(longest - text.size(), '\0');
    const h5::Handle type = h5::text_type(longest);
    h5::checked(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), "E402", "prepare", path);
    const h5::Handle dataset =
        h5::create_dataset(file, list.name, type.id(), {{list.texts.size()}, {}}, path);
    h5::written(H5Dwrite(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, padded.data()),
                path);
}

std::uint64_t write_objects(const fs::path& path,
                            const std::string& name,
                            ElementType type,
                            const std::vector<std::int64_t>& shape,
                            const std::vector<TextDataset>& texts,
                            int& error) {
    const h5::Handle file = h5::create_file(path, h5::Alignment::large_objects, error);
    for (const TextDataset& list : texts) write_texts(file, list, path);
    const h5::DatasetShape size{{shape.begin(), shape.end()}, {}};
    const h5::Handle dataset = h5::create_dataset(file, name, h5::type_of(type), size, path);
    const haddr_t offset = H5Dget_offset(dataset.id());
    expect(offset != HADDR_UNDEF, "a contiguous data set is placed when it is made");
    return offset;
}

}  // namespace

Shard write_shard(const ShardSpec& spec,
                  const RowReader& rows,
                  const Encoding& encoding,
                  const BlockReport& report) {
    const h5::QuietErrors quiet;
    int error = 0;
    const Indexes indexes = write_objects(spec, rows, encoding, report, error);
    // It is closed: only then is everything on its way to the disk.
    check(error == 0, [&] { return system_error("write", spec.path, error); });
    Manifest described = spec.manifest;
    Shard& shard = described.shards[spec.number];
    shard.bytes = fs::file_size(spec.path);
    const ShardBlocks found = probe_shard(spec.path, described, spec.number);
    const UniqueFd fd(::open(spec.path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd) throw system_error("write", spec.path, errno);
    for (std::size_t f = 0; f < found.blocks.size(); ++f)
        shard.index.push_back(write_index(fd.value(), spec, f, found, indexes[f]));
    if (::fsync(fd.value()) != 0) throw system_error("flush", spec.path, errno);
    shard.xxh3_128 = file_digest(spec.path);
    return shard;
}

std::uint64_t create_dataset_file(const fs::path& path,
                                  const std::string& name,
                                  ElementType type,
                                  const std::vector<std::int64_t>& shape,
                                  const std::vector<TextDataset>& texts) {
    const h5::QuietErrors quiet;
    int error = 0;
    const std::uint64_t offset = write_objects(path, name, type, shape, texts, error);
    check(error == 0, [&] { return system_error("write", path, error); });
    return offset;
}

}  // namespace lockstep
