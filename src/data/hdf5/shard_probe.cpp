// SPDX-License-Identifier: Apache-2.0
#include "shard_probe.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"

#include "driver.hpp"
#include "h5.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

// What one data set in a shard should be, and where errors about it belong.
struct Expected {
    const fs::path& path;
    const Manifest& manifest;
    const Shard& shard;
    std::uint32_t number;
};

Error misfit(const Expected& expected, const std::string& why) {
    return Error("E208",
                 fmt::format("'{}' does not belong to data set '{}'",
                             expected.path.string(),
                             expected.manifest.name),
                 why,
                 "put back the shard that was packed with this manifest");
}

void check_number(const h5::Handle& file,
                  const char* name,
                  std::uint64_t value,
                  const Expected& expected) {
    const auto found = h5::read_number(file, name);
    if (!found.found) throw misfit(expected, fmt::format("it has no number '{}'", name));
    if (found.value != value)
        throw misfit(
            expected,
            fmt::format("its {} is {}, not {}", name, grouped(found.value), grouped(value)));
}

void check_identity(const h5::Handle& file, const Expected& expected) {
    const auto uuid = h5::read_text(file, "dataset_uuid");
    if (!uuid.found) throw misfit(expected, "it was not made by 'lockstep data pack'");
    if (uuid.value != expected.manifest.uuid)
        throw misfit(expected, "it is a shard of another data set");
    check_number(file, "shard_index", expected.number, expected);
    check_number(file, "n_samples", expected.shard.samples, expected);
    check_number(file, "first_sample", expected.shard.first_sample, expected);
}

h5::Handle open_field(const h5::Handle& file, const Field& field, const Expected& expected) {
    const std::string name = "/data/" + field.name;
    h5::Handle dataset;
    if (H5Lexists(file.id(), "/data", H5P_DEFAULT) > 0 &&
        H5Lexists(file.id(), name.c_str(), H5P_DEFAULT) > 0)
        dataset = {H5Dopen2(file.id(), name.c_str(), H5P_DEFAULT), H5Dclose};
    check(static_cast<bool>(dataset), [&] {
        return Error("E207",
                     fmt::format("'{}' has no field '{}'", expected.path.string(), field.name),
                     "the manifest names it",
                     "put back the shard that was packed with this manifest");
    });
    return dataset;
}

std::vector<hsize_t> size_of(const h5::Handle& dataset) {
    const h5::Handle space(H5Dget_space(dataset.id()), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.id());
    std::vector<hsize_t> size(static_cast<std::size_t>(std::max(rank, 0)));
    if (rank > 0) H5Sget_simple_extent_dims(space.id(), size.data(), nullptr);
    return size;
}

void check_shape(const h5::Handle& dataset, const Field& field, const Expected& expected) {
    std::vector<hsize_t> wanted{expected.shard.samples};
    wanted.insert(wanted.end(), field.shape.begin(), field.shape.end());
    const std::vector<hsize_t> size = size_of(dataset);
    if (size != wanted)
        throw misfit(expected,
                     fmt::format("field '{}' is [{}], not [{}]",
                                 field.name,
                                 fmt::join(size, ", "),
                                 fmt::join(wanted, ", ")));
    const h5::Handle type(H5Dget_type(dataset.id()), H5Tclose);
    if (H5Tequal(type.id(), h5::type_of(field.type)) <= 0)
        throw misfit(expected,
                     fmt::format("field '{}' is not {}", field.name, element_name(field.type)));
}

Error unreadable(const Expected& expected, const Field& field, const std::string& why) {
    return Error("E212",
                 fmt::format("field '{}' of '{}' is stored in a way that cannot be streamed",
                             field.name,
                             expected.path.string()),
                 why,
                 "pack the data again, or undo what rewrote the shard");
}

Codec codec_of(const h5::Handle& properties, const Field& field, const Expected& expected) {
    const int filters = H5Pget_nfilters(properties.id());
    if (filters == 0) return Codec::none;
    std::array<unsigned, 16> parameters{};
    std::size_t count = parameters.size();
    unsigned flags = 0, config = 0;
    const H5Z_filter_t filter =
        H5Pget_filter2(properties.id(), 0, &flags, &count, parameters.data(), 0, nullptr, &config);
    for (const Codec codec : {Codec::deflate, Codec::lz4, Codec::zstd})
        if (filters == 1 && filter == static_cast<H5Z_filter_t>(codec)) return codec;
    throw unreadable(expected,
                     field,
                     filters == 1
                         ? fmt::format("its filter {} is none of deflate, lz4, zstd", filter)
                         : fmt::format("it has {} filters; one is supported", filters));
}

// Contiguous data has no blocks of its own: those of the manifest will do.
std::vector<StoredBlock> contiguous_blocks(const h5::Handle& dataset,
                                           const Field& field,
                                           const Expected& expected) {
    const haddr_t base = H5Dget_offset(dataset.id());
    if (base == HADDR_UNDEF) throw unreadable(expected, field, "it was never written");
    std::vector<StoredBlock> blocks;
    for (const RowBlock& rows : row_blocks(expected.shard.samples, expected.manifest.block_rows)) {
        const std::uint64_t bytes = rows.rows * field.bytes_per_sample();
        blocks.push_back({.first_row = expected.shard.first_sample + rows.first,
                          .offset = base + rows.first * field.bytes_per_sample(),
                          .stored_bytes = bytes,
                          .decoded_bytes = bytes,
                          .rows = rows.rows,
                          .shard = expected.number});
    }
    return blocks;
}

std::uint32_t chunk_rows_of(const h5::Handle& properties,
                            const Field& field,
                            const Expected& expected) {
    std::vector<hsize_t> chunk(field.shape.size() + 1);
    const int rank = H5Pget_chunk(properties.id(), static_cast<int>(chunk.size()), chunk.data());
    const bool has_whole_rows = rank == static_cast<int>(chunk.size()) &&
                                std::equal(chunk.begin() + 1,
                                           chunk.end(),
                                           field.shape.begin(),
                                           [](hsize_t have, std::int64_t want) {
                                               return have == static_cast<hsize_t>(want);
                                           });
    if (!has_whole_rows || chunk[0] < 1 || chunk[0] > 0x7fffffff)
        throw unreadable(expected, field, "its chunks cut samples in parts");
    return static_cast<std::uint32_t>(chunk[0]);
}

std::vector<StoredBlock> chunked_blocks(const h5::Handle& dataset,
                                        const h5::Handle& properties,
                                        const Field& field,
                                        const Expected& expected) {
    const Codec codec = codec_of(properties, field, expected);
    const std::uint32_t rows = chunk_rows_of(properties, field, expected);
    const std::uint64_t decoded = rows * field.bytes_per_sample();
    const int rank = static_cast<int>(field.shape.size()) + 1;
    std::vector<StoredBlock> blocks;
    for (const RowBlock& block : row_blocks(expected.shard.samples, rows)) {
        h5::ChunkPlace place;
        // Codecs may grow what they cannot compress, but not by more than this.
        if (!h5::find_chunk(dataset, rank, block.first, decoded * 2 + 65536, place))
            throw unreadable(
                expected, field, fmt::format("the chunk of row {} is not there", block.first));
        const Codec used = place.is_filtered ? codec : Codec::none;
        if (used == Codec::none && place.bytes != decoded)
            throw unreadable(
                expected, field, fmt::format("the chunk of row {} has a wrong size", block.first));
        blocks.push_back({.first_row = expected.shard.first_sample + block.first,
                          .offset = place.offset,
                          .stored_bytes = place.bytes,
                          .decoded_bytes = decoded,
                          .rows = block.rows,
                          .shard = expected.number,
                          .codec = used});
    }
    return blocks;
}

// 0 unless /index/<field> is a contiguous table of four numbers per block.
std::uint64_t index_offset_of(const h5::Handle& file, const Field& field, std::size_t blocks) {
    const std::string name = "/index/" + field.name;
    if (H5Lexists(file.id(), "/index", H5P_DEFAULT) <= 0 ||
        H5Lexists(file.id(), name.c_str(), H5P_DEFAULT) <= 0)
        return 0;
    const h5::Handle dataset(H5Dopen2(file.id(), name.c_str(), H5P_DEFAULT), H5Dclose);
    if (!dataset || size_of(dataset) != std::vector<hsize_t>{blocks, 4}) return 0;
    const haddr_t offset = H5Dget_offset(dataset.id());
    return offset == HADDR_UNDEF ? 0 : offset;
}

ProbedField probe_field(const h5::Handle& file, const Field& field, const Expected& expected) {
    const h5::Handle dataset = open_field(file, field, expected);
    check_shape(dataset, field, expected);
    const h5::Handle properties(H5Dget_create_plist(dataset.id()), H5Pclose);
    const H5D_layout_t layout = H5Pget_layout(properties.id());
    ProbedField probed;
    if (layout == H5D_CONTIGUOUS)
        probed.blocks = contiguous_blocks(dataset, field, expected);
    else if (layout == H5D_CHUNKED)
        probed.blocks = chunked_blocks(dataset, properties, field, expected);
    else
        throw unreadable(expected, field, "it is neither contiguous nor in chunks");
    probed.index_offset = index_offset_of(file, field, probed.blocks.size());
    return probed;
}

void check_bounds(const std::vector<ProbedField>& fields, const Expected& expected) {
    const std::uint64_t bytes = fs::file_size(expected.path);
    for (const ProbedField& field : fields)
        for (const StoredBlock& block : field.blocks)
            if (block.offset > bytes || block.stored_bytes > bytes - block.offset)
                throw misfit(expected, "its blocks lie outside of the file");
}

}  // namespace

std::vector<ProbedField> probe_shard(const std::filesystem::path& path,
                                     const Manifest& manifest,
                                     std::size_t number) {
    const Expected expected{
        path, manifest, manifest.shards[number], static_cast<std::uint32_t>(number)};
    check_is_whole_hdf5(path, expected.shard.bytes);
    const h5::QuietErrors quiet;
    const h5::Handle file = h5::open_for_probing(path);
    check_identity(file, expected);
    std::vector<ProbedField> fields;
    for (const Field& field : manifest.fields) fields.push_back(probe_field(file, field, expected));
    check_bounds(fields, expected);
    return fields;
}

}  // namespace lockstep
