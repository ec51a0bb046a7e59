// SPDX-License-Identifier: Apache-2.0
#include "shard_writer.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include "h5.hpp"
#include "shard_probe.hpp"

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

// One field of a shard while it is written.
class FieldWriter {
  public:
    FieldWriter(const h5::Handle& data, const ShardPlan& plan, std::size_t field, Encoder& encoder);

    void write_block(std::uint64_t first_row, std::uint64_t rows, const RowReader& reader);

    /// Offsets are 0: only the finished file shows where the blocks are.
    const std::vector<IndexRow>& index() const { return index_; }

  private:
    void write_chunk(std::uint64_t first_row, std::span<const std::byte> raw);
    void write_rows(std::uint64_t first_row, std::uint64_t rows, std::span<const std::byte> raw);
    bool is_chunked() const { return encoder_.codec() != Codec::none; }

    const ShardPlan& plan_;
    std::size_t number_;
    const Field& field_;
    Encoder& encoder_;
    Decoder decoder_;
    std::uint64_t block_rows_;
    h5::Handle dataset_;
    std::vector<std::byte> raw_, decoded_;
    std::vector<IndexRow> index_;
};

std::vector<hsize_t> dimensions(std::uint64_t rows, const Field& field) {
    std::vector<hsize_t> size{rows};
    for (const std::int64_t extent : field.shape) size.push_back(static_cast<hsize_t>(extent));
    return size;
}

void describe_field(const h5::Handle& dataset, const Field& field) {
    if (!field.layout.empty()) h5::write_attribute(dataset, "layout", field.layout);
    if (!field.mean.empty()) h5::write_attribute(dataset, "mean", field.mean);
    if (!field.std.empty()) h5::write_attribute(dataset, "std", field.std);
    if (!field.mean.empty()) h5::write_attribute(dataset, "units", std::string("value / 255"));
    if (!field.class_counts.empty())
        h5::write_attribute(dataset, "class_counts", field.class_counts);
    if (!field.class_names.empty()) h5::write_attribute(dataset, "class_names", field.class_names);
}

FieldWriter::FieldWriter(const h5::Handle& data,
                         const ShardPlan& plan,
                         std::size_t field,
                         Encoder& encoder)
    : plan_(plan),
      number_(field),
      field_(plan.manifest.fields[field]),
      encoder_(encoder),
      block_rows_(std::min<std::uint64_t>(plan.manifest.block_rows, plan.samples)) {
    h5::DatasetShape shape{dimensions(plan.samples, field_), {}, encoder.codec(), encoder.level()};
    if (is_chunked()) shape.chunk = dimensions(block_rows_, field_);
    dataset_ = h5::create_dataset(data, field_.name, h5::type_of(field_.type), shape, plan.path);
    describe_field(dataset_, field_);
    raw_.resize(block_rows_ * field_.bytes_per_sample());
}

void FieldWriter::write_block(std::uint64_t first_row,
                              std::uint64_t rows,
                              const RowReader& reader) {
    const std::size_t row_bytes = field_.bytes_per_sample();
    for (std::uint64_t i = 0; i < rows; ++i)
        reader(number_,
               plan_.first_sample + first_row + i,
               std::span(raw_).subspan(i * row_bytes, row_bytes));
    std::fill(
        raw_.begin() + static_cast<std::ptrdiff_t>(rows * row_bytes), raw_.end(), std::byte{0});
    if (is_chunked())
        write_chunk(first_row, raw_);
    else
        write_rows(first_row, rows, std::span(raw_).first(rows * row_bytes));
}

// Bypasses the library's own filters: they are slower, and LZ4 and zstd may not be installed.
void FieldWriter::write_chunk(std::uint64_t first_row, std::span<const std::byte> raw) {
    const auto encoded = encoder_.encode(raw);
    const std::span<const std::byte> stored = encoded.value_or(raw);
    if (encoded) {
        decoded_.resize(raw.size());
        expect(decoder_.decode(encoder_.codec(), stored, decoded_) &&
                   std::ranges::equal(decoded_, raw),
               "a compressed block expands to what it was");
    }
    const std::uint32_t skipped_filters = encoded ? 0 : 1;
    std::vector<hsize_t> start(field_.shape.size() + 1, 0);
    start[0] = first_row;
    h5::checked(H5Dwrite_chunk(dataset_.id(),
                               H5P_DEFAULT,
                               skipped_filters,
                               start.data(),
                               stored.size(),
                               stored.data()),
                "E402",
                "write",
                plan_.path);
    index_.push_back({0, stored.size(), first_row, hash64(stored)});
}

void FieldWriter::write_rows(std::uint64_t first_row,
                             std::uint64_t rows,
                             std::span<const std::byte> raw) {
    const std::vector<hsize_t> count = dimensions(rows, field_);
    std::vector<hsize_t> start(count.size(), 0);
    start[0] = first_row;
    const int rank = static_cast<int>(count.size());
    const h5::Handle there(H5Dget_space(dataset_.id()), H5Sclose);
    const h5::Handle here(H5Screate_simple(rank, count.data(), nullptr), H5Sclose);
    h5::checked(H5Sselect_hyperslab(
                    there.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
                "E402",
                "write",
                plan_.path);
    h5::checked(H5Dwrite(dataset_.id(),
                         h5::type_of(field_.type),
                         here.id(),
                         there.id(),
                         H5P_DEFAULT,
                         raw.data()),
                "E402",
                "write",
                plan_.path);
    index_.push_back({0, raw.size(), first_row, hash64(raw)});
}

void describe_shard(const h5::Handle& file, const ShardPlan& plan) {
    const Manifest& manifest = plan.manifest;
    h5::write_attribute(file, "format_version", std::uint64_t{manifest_format_version});
    h5::write_attribute(file, "dataset_uuid", manifest.uuid);
    h5::write_attribute(file, "shard_index", std::uint64_t{plan.number});
    h5::write_attribute(file, "shard_count", std::uint64_t{plan.count});
    h5::write_attribute(file, "first_sample", plan.first_sample);
    h5::write_attribute(file, "n_samples", plan.samples);
    h5::write_attribute(file, "split", manifest.split);
    h5::write_attribute(file, "row_order", manifest.row_order);
    h5::write_attribute(file, "writer", manifest.writer);
}

void reserve_indexes(const h5::Handle& file, const ShardPlan& plan, std::uint64_t blocks) {
    const h5::Handle group = h5::create_group(file, "index", plan.path);
    for (const Field& field : plan.manifest.fields) {
        const h5::Handle table =
            h5::create_dataset(group, field.name, H5T_STD_U64LE, {{blocks, 4}, {}}, plan.path);
        h5::write_attribute(table, "block_rows", std::uint64_t{plan.manifest.block_rows});
        h5::write_attribute(
            table, "columns", std::string("file offset, stored bytes, first row, XXH3-64"));
    }
}

using Indexes = std::vector<std::vector<IndexRow>>;

// Everything but the content of the index, which needs the finished file.
Indexes write_objects(const ShardPlan& plan,
                      const RowReader& rows,
                      Encoder& encoder,
                      const BlockReport& report,
                      int& error) {
    const auto alignment =
        encoder.codec() == Codec::none ? h5::Alignment::large_objects : h5::Alignment::none;
    const h5::Handle file = h5::create_file(plan.path, alignment, error);
    const std::vector<RowBlock> blocks = row_blocks(plan.samples, plan.manifest.block_rows);
    describe_shard(file, plan);
    reserve_indexes(file, plan, blocks.size());
    const h5::Handle data = h5::create_group(file, "data", plan.path);
    std::vector<FieldWriter> fields;
    for (std::size_t f = 0; f < plan.manifest.fields.size(); ++f)
        fields.emplace_back(data, plan, f, encoder);
    for (const RowBlock& block : blocks) {
        for (FieldWriter& field : fields) field.write_block(block.first, block.rows, rows);
        check(error == 0, [&] { return system_error("write", plan.path, error); });
        report(plan.first_sample + block.first + block.rows);
    }
    Indexes indexes;
    for (const FieldWriter& field : fields) indexes.push_back(field.index());
    return indexes;
}

// The same, and closed: only then is everything on its way to the disk.
Indexes write_content(const ShardPlan& plan,
                      const RowReader& rows,
                      Encoder& encoder,
                      const BlockReport& report) {
    int error = 0;
    Indexes indexes = write_objects(plan, rows, encoder, report, error);
    check(error == 0, [&] { return system_error("write", plan.path, error); });
    return indexes;
}

// Puts the index's rows where the library reserved room for them.
IndexPlace write_index(int fd,
                       const fs::path& path,
                       const ProbedField& probed,
                       std::vector<IndexRow> rows) {
    expect(probed.blocks.size() == rows.size() && probed.index_offset > 0,
           "a shard just written has the blocks that were written");
    for (std::size_t i = 0; i < rows.size(); ++i) {
        expect(probed.blocks[i].stored_bytes == rows[i][1], "a block has the size it was given");
        rows[i][0] = probed.blocks[i].offset;
    }
    const std::span<const std::byte> bytes = std::as_bytes(std::span(rows));
    if (::lseek(fd, static_cast<off_t>(probed.index_offset), SEEK_SET) < 0)
        throw system_error("write", path, errno);
    write_all(fd, bytes, path);
    return {probed.index_offset, rows.size(), hash64(bytes)};
}

}  // namespace

Shard write_shard(const ShardPlan& plan,
                  const RowReader& rows,
                  Encoder& encoder,
                  const BlockReport& report) {
    const h5::QuietErrors quiet;
    const Indexes indexes = write_content(plan, rows, encoder, report);
    Shard shard{.name = plan.path.filename().string(),
                .bytes = fs::file_size(plan.path),
                .samples = plan.samples,
                .first_sample = plan.first_sample,
                .xxh3_128 = {},
                .index = {}};
    Manifest described = plan.manifest;
    described.shards.assign(plan.number + 1, shard);
    const std::vector<ProbedField> probed = probe_shard(plan.path, described, plan.number).fields;
    const UniqueFd fd(::open(plan.path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd) throw system_error("write", plan.path, errno);
    for (std::size_t f = 0; f < probed.size(); ++f)
        shard.index.push_back(write_index(fd.value(), plan.path, probed[f], indexes[f]));
    if (::fsync(fd.value()) != 0) throw system_error("flush", plan.path, errno);
    shard.xxh3_128 = file_hash(plan.path);
    return shard;
}

std::string file_hash(const fs::path& path, const std::function<void(std::uint64_t)>& report) {
    const UniqueFd fd = open_for_reading(path);
    Hasher128 hasher;
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    for (std::uint64_t offset = 0;;) {
        const std::size_t got = read_at(fd.value(), buffer, offset, path);
        hasher.add(std::span(buffer).first(got));
        offset += got;
        if (report) report(offset);
        if (got < buffer.size()) return hasher.value().hex();
    }
}

}  // namespace lockstep
