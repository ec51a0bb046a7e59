// SPDX-License-Identifier: Apache-2.0
// HDF5 files as others write them: any paths, types, chunks and filters.
#pragma once

#include "lockstep/core/random.hpp"

#include "support/unit.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <hdf5.h>

namespace lockstep::test {

/// One data set to write. `bytes` are its rows.
struct ForeignDataset {
    std::string path = "/x/data";
    hid_t type = H5T_STD_U8LE, memory = 0;  ///< stored, and of `bytes`; 0: as stored
    std::vector<hsize_t> size, chunk;       ///< no chunk: contiguous
    std::vector<std::byte> bytes;
    /// Given to H5Pset_filter, as optional ones that need not be known; a library that does not
    /// know them needs `encode`.
    struct Filter {
        H5Z_filter_t kind;
        std::vector<unsigned> values;
    };
    std::vector<Filter> filters;
    /// Makes what is stored for chunk number i of its padded raw bytes, and the filters it skips.
    struct Stored {
        std::vector<std::byte> bytes;
        std::uint32_t skipped = 0;
    };
    std::function<Stored(std::size_t, const std::vector<std::byte>&)> encode;
};

/// For ForeignDataset::encode: a filter that changes nothing.
inline ForeignDataset::Stored stored_raw(std::size_t, const std::vector<std::byte>& raw) {
    return {raw, 0};
}

inline hid_t must(hid_t id) {
    if (id < 0) throw std::runtime_error("HDF5 refuses what a test wants to write");
    return id;
}

template <class Value>
std::vector<std::byte> encoded(const std::vector<Value>& values,
                               std::endian order = std::endian::little) {
    std::vector<std::byte> bytes;
    for (const Value value : values) {
        auto element = std::bit_cast<std::array<std::byte, sizeof(Value)>>(value);
        if (order == std::endian::big) std::ranges::reverse(element);
        bytes.insert(bytes.end(), element.begin(), element.end());
    }
    return bytes;
}

inline std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
    CounterRandom random(Purpose::test, {seed, count});
    std::vector<std::byte> bytes(count);
    // Runs of equal bytes, so that every codec makes it smaller.
    for (std::size_t i = 0; i < count; ++i)
        bytes[i] = i % 17 != 0 ? bytes[i - 1] : static_cast<std::byte>(random.below(256));
    return bytes;
}

/// The bytes of chunk number `number` along the first dimension, padded with zeros.
inline std::vector<std::byte> raw_chunk(const ForeignDataset& data, std::size_t number) {
    const std::size_t row = data.bytes.size() / data.size[0];
    std::vector<std::byte> chunk(data.chunk[0] * row);
    const std::size_t begin = number * chunk.size();
    std::memcpy(
        chunk.data(), data.bytes.data() + begin, std::min(chunk.size(), data.bytes.size() - begin));
    return chunk;
}

inline void write_dataset(hid_t file, const ForeignDataset& data) {
    const hid_t links = must(H5Pcreate(H5P_LINK_CREATE));
    H5Pset_create_intermediate_group(links, 1);
    const hid_t space =
        must(data.size.empty()
                 ? H5Screate(H5S_SCALAR)
                 : H5Screate_simple(static_cast<int>(data.size.size()), data.size.data(), nullptr));
    const hid_t creation = must(H5Pcreate(H5P_DATASET_CREATE));
    if (!data.chunk.empty())
        must(H5Pset_chunk(creation, static_cast<int>(data.chunk.size()), data.chunk.data()));
    for (const auto& filter : data.filters)
        must(H5Pset_filter(
            creation, filter.kind, H5Z_FLAG_OPTIONAL, filter.values.size(), filter.values.data()));
    const hid_t dataset =
        must(H5Dcreate2(file, data.path.c_str(), data.type, space, links, creation, H5P_DEFAULT));
    if (data.encode) {
        for (std::size_t i = 0; i * data.chunk[0] < data.size[0]; ++i) {
            std::vector<hsize_t> start(data.size.size(), 0);
            start[0] = i * data.chunk[0];
            const auto stored = data.encode(i, raw_chunk(data, i));
            must(H5Dwrite_chunk(dataset,
                                H5P_DEFAULT,
                                stored.skipped,
                                start.data(),
                                stored.bytes.size(),
                                stored.bytes.data()));
        }
    } else if (!data.bytes.empty()) {
        const hid_t memory = data.memory == 0 ? data.type : data.memory;
        must(H5Dwrite(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.bytes.data()));
    }
    H5Dclose(dataset);
    H5Pclose(creation);
    H5Sclose(space);
    H5Pclose(links);
}

enum class Format { earliest, newest };

/// Returns `path`.
inline fs::path write_foreign(const fs::path& path,
                              const std::vector<ForeignDataset>& datasets,
                              Format format = Format::earliest,
                              hsize_t user_block = 0) {
    const hid_t access = must(H5Pcreate(H5P_FILE_ACCESS));
    if (format == Format::newest)
        H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    const hid_t creation = must(H5Pcreate(H5P_FILE_CREATE));
    must(H5Pset_userblock(creation, user_block));
    const hid_t file = must(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access));
    for (const ForeignDataset& dataset : datasets) write_dataset(file, dataset);
    H5Fclose(file);
    H5Pclose(creation);
    H5Pclose(access);
    return path;
}

/// A test that writes files of others into its folder.
class ForeignFolder : public InFolder {
  protected:
    fs::path write(const std::string& name,
                   const std::vector<ForeignDataset>& datasets,
                   Format format = Format::earliest) const {
        return write_foreign(folder_ / name, datasets, format);
    }
};

/// A name for what is somewhere in another file.
struct ForeignLink {
    std::string name;
    std::filesystem::path file;
    std::string path;
};

inline void link_foreign(const std::filesystem::path& path, const std::vector<ForeignLink>& links) {
    const hid_t file = must(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    for (const ForeignLink& link : links)
        must(H5Lcreate_external(link.file.c_str(),
                                link.path.c_str(),
                                file,
                                link.name.c_str(),
                                H5P_DEFAULT,
                                H5P_DEFAULT));
    H5Fclose(file);
}

/// `rows` images of 3 x 5 bytes at /x/data and as many labels below `classes` at /y.
inline std::vector<ForeignDataset> images_and_labels(std::uint64_t rows,
                                                     std::uint64_t seed,
                                                     std::int64_t classes = 7) {
    ForeignDataset images{.size = {rows, 3, 5}, .bytes = random_bytes(rows * 15, seed)};
    ForeignDataset labels{.path = "/y", .type = H5T_STD_I64LE, .size = {rows}};
    std::vector<std::int64_t> classes_of_rows;
    for (std::uint64_t row = 0; row < rows; ++row)
        classes_of_rows.push_back(static_cast<std::int64_t>(row + seed) % classes);
    labels.bytes = encoded(classes_of_rows);
    return {images, labels};
}

}  // namespace lockstep::test
