// SPDX-License-Identifier: Apache-2.0
// Shards are HDF5 like any other: the usual tools open them, and what tools rewrite is still read.
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/foreign.hpp"

#include "data/stream/packed_samples.hpp"
#include "support/unit.hpp"

#include <array>
#include <cerrno>
#include <fstream>
#include <vector>

#include <fmt/format.h>
#include <hdf5.h>

namespace lockstep {
namespace {

// Debian's own: h5py is not in other Pythons.
constexpr const char* python = "/usr/bin/python3";

class Hdf5Tools : public test::PackedByCodec {
  protected:
    Hdf5Tools()
        : PackedByCodec(2,
                        test::make_samples(200, 1, {3, 5, 4, {}, {}}),
                        {"0", "1", "2", "3", "4", "5", "6", "7", "eight", "9"}) {}
    std::vector<fs::path> shards() const { return {shard(0), shard(1)}; }
};

TEST_P(Hdf5Tools, H5dumpOpensEveryShard) {
    if (find_program("h5dump").empty()) GTEST_SKIP() << "h5dump is not installed";
    for (const fs::path& shard : shards()) {
        const ProcessResult result = run_process({"h5dump", "-H", shard.string()});
        EXPECT_EQ(result.exit_code, 0) << result.output;
        for (const char* expected : {"DATASET \"images\"",
                                     "DATASET \"labels\"",
                                     "H5T_STD_U8LE",
                                     "GROUP \"index\"",
                                     "ATTRIBUTE \"dataset_uuid\""})
            EXPECT_THAT(result.output, HasSubstr(expected));
    }
}

TEST_P(Hdf5Tools, H5pyOpensEveryShardAndReadsWhatNeedsNoPlugin) {
    if (!fs::exists(python) || run_process({python, "-c", "import h5py"}).exit_code != 0)
        GTEST_SKIP() << "python3-h5py is not installed";
    const std::string program = R"(
import h5py, sys
codec = sys.argv[1]
for path in sys.argv[2:]:
    with h5py.File(path, 'r') as f:
        images, labels, index = f['data/images'], f['data/labels'], f['index/images']
        assert images.shape[1:] == (3, 5, 4) and images.dtype == 'u1', images
        assert labels.shape == images.shape[:1] and labels.dtype == 'i8', labels
        assert f.attrs['n_samples'] == len(labels) and f.attrs['shard_count'] == 2
        assert len(images.attrs['mean']) == 3 and images.attrs['layout'] == b'CHW' or \
            images.attrs['layout'] == 'CHW'
        assert list(labels.attrs['class_names'])[8] in (b'eight', 'eight')

        row = index[0]
        if codec == 'none':
            assert images.id.get_offset() == row[0], (images.id.get_offset(), row)
        else:
            mask, chunk = images.id.read_direct_chunk((0, 0, 0, 0))
            with open(path, 'rb') as raw:
                raw.seek(int(row[0]))
                assert raw.read(int(row[1])) == chunk and mask == 0
        if codec in ('none', 'deflate'):
            print('sum', int(images[()].sum()), int(labels[()].sum()))
)";
    std::vector<std::string> command{python, "-c", program, std::string(codec_name(GetParam()))};
    for (const fs::path& shard : shards()) command.push_back(shard.string());
    const ProcessResult result = run_process(command);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    if (GetParam() == Codec::lz4 || GetParam() == Codec::zstd) return;
    std::uint64_t pixels = 0;
    for (const auto& [row, sample] : test::expected_content(samples_, options_))
        if (row < manifest_.shards[0].samples)
            for (const char pixel : sample.image) pixels += static_cast<unsigned char>(pixel);
    EXPECT_THAT(result.output, HasSubstr(fmt::format("sum {}", pixels)));
}

// Runs h5repack on a shard, with options between blanks, and then `look`; all is as before then.
template <class Look>
void after_repacking(const fs::path& shard, const std::string& options, Look&& look) {
    SCOPED_TRACE(options);
    const fs::path original = fs::path(shard).replace_extension(".original");
    fs::rename(shard, original);
    std::vector<std::string> command{"h5repack"};
    for (const std::string& word : split(options, ' ')) command.push_back(word);
    command.insert(command.end(), {original.string(), shard.string()});
    const ProcessResult result = run_process(command);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    look();
    fs::rename(original, shard);
}

TEST_P(Hdf5Tools, ShardsRewrittenByH5repackAreReadWithAWarning) {
    if (find_program("h5repack").empty()) GTEST_SKIP() << "h5repack is not installed";
    if (GetParam() == Codec::lz4 || GetParam() == Codec::zstd)
        GTEST_SKIP() << "h5repack has no plugin for " << codec_name(GetParam());
    for (const char* options :
         {"-L",
          "-t 256 -a 512",
          "-l CONTI -f NONE -t 256 -a 512",
          "-l /data/images:CHUNK=7x3x5x4 -f /data/images:GZIP=1",
          "-l CHUNK=7x3x5x4 -f /data/images:SHUF -f /data/images:GZIP=1 -f /data/images:FLET",
          "-l /data/images:CHUNK=7x3x2x3 -f /data/images:GZIP=1",
          "-l /data/labels:CHUNK=9 -f /data/labels:SHUF -f /data/labels:FLET",
          "-l /data/labels:CHUNK=500 -f /data/labels:FLET -f /data/labels:SHUF "
          "-f /data/labels:GZIP=9"}) {
        after_repacking(shards()[0], options, [&] {
            const auto index = test::open_index(options_.output);
            EXPECT_THAT(index->warnings(), SizeIs(1));
            EXPECT_EQ(test::read_all(index), test::expected_content(samples_, options_));
            EXPECT_EQ(DatasetIndex::deserialize(index->serialize()), *index);
        });
        EXPECT_THAT(test::open_index(options_.output)->warnings(), IsEmpty());
    }
}

TEST_P(Hdf5Tools, ShardsRewrittenInAWayThatCannotBeStreamedAreNamed) {
    if (find_program("h5repack").empty()) GTEST_SKIP() << "h5repack is not installed";
    if (GetParam() != Codec::none) GTEST_SKIP() << "once is enough";
    after_repacking(shards()[0], "-l /data/images:CHUNK=7x3x5x4 -f /data/images:NBIT", [&] {
        EXPECT_EQ(caught_code([&] { test::open_index(options_.output); }), "E212");
    });
}

// Runs the program that docs/data.md shows, and streams what it wrote.
TEST(Documentation, FilesFromTheExampleForH5pyAreStreamed) {
    if (!fs::exists(python) || run_process({python, "-c", "import h5py"}).exit_code != 0)
        GTEST_SKIP() << "python3-h5py is not installed";
    const std::string text = content_of(LOCKSTEP_DOCS "/data.md");
    const std::string fence = "```python\n";
    const std::size_t begin = text.find(fence);
    ASSERT_NE(begin, text.npos);
    const std::string program =
        text.substr(begin + fence.size(), text.find("```", begin + 3) - begin - fence.size());
    EXPECT_LE(std::ranges::count(program, '\n'), 15);
    const TempDir folder;
    const ProcessResult result = run_process(
        {python,
         "-c",
         fmt::format("import os; os.chdir('{}')\n{}", folder.path().string(), program)});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const auto index = std::make_shared<const DatasetIndex>(DatasetIndex::open_foreign(
        foreign_files(folder / "mine-*.h5"), parse_field_mappings("images=/x/data:CHW,labels=/y")));
    EXPECT_EQ(index->samples(), 2000u);
    EXPECT_THAT(index->field("images").shape, ElementsAre(1, 28, 28));
    EXPECT_EQ(index->field("labels").classes(), 10);
    // What h5py itself reads.
    const ProcessResult sums = run_process({python,
                                            "-c",
                                            fmt::format(R"(
import glob, h5py
files = [h5py.File(path) for path in sorted(glob.glob('{}/mine-*.h5'))]
print(sum(int(f['x/data'][:].sum()) for f in files), sum(int(f['y'][:].sum()) for f in files))
)",
                                                        folder.path().string())});
    std::uint64_t pixels = 0, labels = 0;
    for (const auto& [row, sample] : test::read_all(index, {.order = OrderKind::sequential})) {
        for (const char pixel : sample.image) pixels += static_cast<unsigned char>(pixel);
        labels += static_cast<std::uint64_t>(sample.label);
    }
    EXPECT_EQ(sums.output, fmt::format("{} {}\n", pixels, labels));
}

INSTANTIATE_TEST_SUITE_P(Codecs, Hdf5Tools, test::each_codec, test::name_of_codec);

// A file whose values others write is one that the HDF5 library reads.

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

using NewDataset = InFolder;

TEST_F(NewDataset, HoldsWhatIsWrittenAtItsPlace) {
    const fs::path path = folder_ / "a.h5";
    const std::uint64_t offset = create_dataset_file(path, "predictions", ElementType::f32, {3, 2});
    EXPECT_EQ(fs::file_size(path), offset + 6 * sizeof(float));
    const std::array<float, 3> values{1.5F, -2, 7};
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(offset + 2 * sizeof(float)))
        .write(reinterpret_cast<const char*>(values.data()), sizeof values);
    const Stored stored = read_dataset(path, "predictions");
    EXPECT_THAT(stored.shape, ElementsAre(3, 2));
    EXPECT_THAT(stored.values, ElementsAre(0, 0, 1.5F, -2, 7, 0));
}

// 6 GiB, of which nothing is written: the library would have to, or could not name the place.
TEST_F(NewDataset, MayBeLargeAndTakesNoSpaceBeforeItIsWritten) {
    const fs::path path = folder_ / "a.h5";
    const std::uint64_t bytes = std::uint64_t{6} << 30;
    const std::uint64_t offset =
        create_dataset_file(path, "predictions", ElementType::f32, {std::int64_t{3} << 18, 2048});
    EXPECT_EQ(fs::file_size(path), offset + bytes);
    EXPECT_EQ(offset % 4096, 0U);
}

TEST_F(NewDataset, ReplacesNothingAndMakesNoFolder) {
    const fs::path path = folder_.file("a.h5", "x");
    const auto create = [](const fs::path& where) {
        create_dataset_file(where, "predictions", ElementType::f32, {1});
    };
    EXPECT_EQ(caught_code([&] { create(path); }), system_error("create", path, EEXIST).code());
    EXPECT_EQ(fs::file_size(path), 1U);
    EXPECT_EQ(caught_code([&] { create(folder_ / "none" / "a.h5"); }),
              system_error("create", path, ENOENT).code());
}

}  // namespace
}  // namespace lockstep
