// SPDX-License-Identifier: Apache-2.0
// A file whose values others write is one that the HDF5 library reads.
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <array>
#include <cerrno>
#include <fstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

namespace lockstep {
namespace {

using test::caught_code;

struct Stored {
    std::vector<hsize_t> shape;
    std::vector<float> values;
};

// As the library reads it.
Stored read_dataset(const fs::path& path, const char* name) {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    const hid_t space = H5Dget_space(dataset);
    Stored stored;
    stored.shape.resize(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
    H5Sget_simple_extent_dims(space, stored.shape.data(), nullptr);
    stored.values.resize(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
    EXPECT_GE(
        H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, stored.values.data()), 0);
    H5Sclose(space);
    H5Dclose(dataset);
    H5Fclose(file);
    return stored;
}

TEST(NewDataset, HoldsWhatIsWrittenAtItsPlace) {
    const test::TempDir folder;
    const fs::path path = folder / "a.h5";
    const std::uint64_t offset = create_dataset_file(path, "predictions", ElementType::f32, {3, 2});
    EXPECT_EQ(fs::file_size(path), offset + 6 * sizeof(float));
    const std::array<float, 3> values{1.5F, -2, 7};
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(offset + 2 * sizeof(float)))
        .write(reinterpret_cast<const char*>(values.data()), sizeof values);
    const Stored stored = read_dataset(path, "predictions");
    EXPECT_THAT(stored.shape, testing::ElementsAre(3, 2));
    EXPECT_THAT(stored.values, testing::ElementsAre(0, 0, 1.5F, -2, 7, 0));
}

// 6 GiB, of which nothing is written: the library would have to, or could not name the place.
TEST(NewDataset, MayBeLargeAndTakesNoSpaceBeforeItIsWritten) {
    const test::TempDir folder;
    const fs::path path = folder / "a.h5";
    const std::uint64_t bytes = std::uint64_t{6} << 30;
    const std::uint64_t offset =
        create_dataset_file(path, "predictions", ElementType::f32, {std::int64_t{3} << 18, 2048});
    EXPECT_EQ(fs::file_size(path), offset + bytes);
    EXPECT_EQ(offset % 4096, 0U);
}

TEST(NewDataset, ReplacesNothingAndMakesNoFolder) {
    const test::TempDir folder;
    const fs::path path = folder.file("a.h5", "x");
    const auto create = [](const fs::path& where) {
        create_dataset_file(where, "predictions", ElementType::f32, {1});
    };
    EXPECT_EQ(caught_code([&] { create(path); }), system_error("create", path, EEXIST).code());
    EXPECT_EQ(fs::file_size(path), 1U);
    EXPECT_EQ(caught_code([&] { create(folder / "none" / "a.h5"); }),
              system_error("create", path, ENOENT).code());
}

}  // namespace
}  // namespace lockstep
