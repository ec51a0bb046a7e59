// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/foreign.hpp"

#include "lockstep/core/numbers.hpp"

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "format/chunk_filters.hpp"
#include "format/codec.hpp"
#include "support/caught.hpp"

#include <blosc.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::caught;
using test::caught_code;
using test::ForeignDataset;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::vector<FieldMapping> fields{{"images", "/x/data", "CHW"}, {"labels", "/y", ""}};

class Foreign : public testing::Test {
  protected:
    fs::path write(const std::string& name,
                   const std::vector<ForeignDataset>& datasets,
                   test::Format format = test::Format::earliest) {
        test::write_foreign(folder_ / name, datasets, format);
        return folder_ / name;
    }
    // Writes one data set and opens it.
    std::optional<Error> error_of(const ForeignDataset& data) {
        const fs::path path = write("one.h5", {data});
        return caught([&] { DatasetIndex::open_foreign({path}, {{"images", data.path, ""}}); });
    }
    test::TempDir folder_;
};

// All rows of field number `field`, in stored order, through a stream.
std::vector<std::byte> streamed(const DatasetIndex& index, std::size_t field) {
    BatchStream stream(std::make_shared<const DatasetIndex>(index),
                       {.order = OrderKind::sequential, .batch = 13});
    std::vector<std::byte> rows;
    for (;;) {
        const Batch batch = stream.next();
        rows.insert(rows.end(), batch.fields[field].begin(), batch.fields[field].end());
        if (batch.next.epoch > 0) return rows;
    }
}

std::vector<std::byte> concat(const std::vector<std::vector<ForeignDataset>>& files,
                              std::size_t dataset) {
    std::vector<std::byte> all;
    for (const auto& file : files)
        all.insert(all.end(), file[dataset].bytes.begin(), file[dataset].bytes.end());
    return all;
}

TEST_F(Foreign, FilesOfAnyLengthStreamInTheOrderGiven) {
    const std::vector<std::vector<ForeignDataset>> content{test::images_and_labels(37, 1),
                                                           test::images_and_labels(100, 2),
                                                           test::images_and_labels(1, 3)};
    std::vector<fs::path> files;
    for (std::size_t i = 0; i < content.size(); ++i)
        files.push_back(write(fmt::format("{}.h5", content.size() - i), content[i]));
    const std::uint64_t opened = hdf5_files_opened();
    const DatasetIndex index = DatasetIndex::open_foreign(files, fields);
    EXPECT_EQ(hdf5_files_opened() - opened, 3u);
    EXPECT_EQ(index.samples(), 138u);
    EXPECT_EQ(index.blocks(), (std::vector<RowBlock>{{0, 37}, {37, 100}, {137, 1}}));
    EXPECT_THAT(index.field("images").shape, ElementsAre(3, 5));
    EXPECT_EQ(index.field("images").layout, "CHW");
    EXPECT_EQ(index.field("labels").classes(), 7);
    ASSERT_THAT(index.warnings(), SizeIs(1));
    for (const char* missing : {"no hashes", "not shuffled", "no mean"})
        EXPECT_THAT(index.warnings()[0], HasSubstr(missing));
    EXPECT_EQ(streamed(index, 0), concat(content, 0));
    EXPECT_EQ(streamed(index, 1), concat(content, 1));
    EXPECT_EQ(DatasetIndex::deserialize(index.serialize()), index);
    EXPECT_EQ(hdf5_files_opened() - opened, 3u) << "only rank 0 of the job opens files";
}

TEST_F(Foreign, FilesWithAUserBlockStreamLikeThoseWithout) {
    auto content = test::images_and_labels(37, 1);
    content[0].chunk = {5, 3, 5};
    const auto open = [&](const fs::path& path) {
        return DatasetIndex::open_foreign({path}, fields);
    };
    const DatasetIndex usual = open(write("usual.h5", content));
    for (const auto format : {test::Format::earliest, test::Format::newest})
        for (const hsize_t user_block : {512u, 2048u}) {
            const fs::path path = folder_ / "behind.h5";
            test::write_foreign(path, content, format, user_block);
            test::overwrite(path, 0, "MATLAB 7.3 MAT-file");
            const DatasetIndex index = open(path);
            for (const std::size_t field : {0u, 1u})
                EXPECT_EQ(streamed(index, field), streamed(usual, field)) << user_block;
            EXPECT_GE(index.stored_blocks(1)[0].offset, user_block);
            fs::resize_file(path, fs::file_size(path) - 1);
            EXPECT_EQ(caught_code([&] { open(path); }), "E204");
            fs::resize_file(path, user_block - 1);
            EXPECT_EQ(caught_code([&] { open(path); }), "E203");
        }
}

TEST_F(Foreign, EachSampleComesOnceInAShuffledEpoch) {
    std::vector<fs::path> files;
    for (std::uint64_t i = 0; i < 3; ++i)
        files.push_back(write(fmt::format("{}.h5", i), test::images_and_labels(50 + i, i)));
    const DatasetIndex index = DatasetIndex::open_foreign(files, fields);
    BatchStream stream(std::make_shared<const DatasetIndex>(index), {.seed = 5, .batch = 16});
    std::vector<int> seen(153);
    for (;;) {
        const Batch batch = stream.next();
        for (const std::uint64_t sample : batch.sample_ids) ++seen[sample];
        if (batch.next.epoch > 0) break;
    }
    EXPECT_THAT(seen, testing::Each(1));
}

TEST_F(Foreign, SameFilesHaveTheSameDigestAndChangedOnesAnother) {
    const fs::path path = write("a.h5", test::images_and_labels(40, 1));
    const auto digest = [&] { return DatasetIndex::open_foreign({path}, fields).digest(); };
    const std::string first = digest();
    EXPECT_EQ(digest(), first);
    const auto time = fs::last_write_time(path);
    write("a.h5", test::images_and_labels(41, 1));
    fs::last_write_time(path, time);
    EXPECT_NE(digest(), first);
    write("a.h5", test::images_and_labels(40, 1));
    fs::last_write_time(path, time);
    EXPECT_EQ(digest(), first);
    fs::last_write_time(path, time + std::chrono::nanoseconds(1000));
    EXPECT_NE(digest(), first);
}

TEST_F(Foreign, LabelsOfAnyWholeTypeAreCounted) {
    const std::vector<std::uint8_t> small{0, 3, 3, 1};
    const std::vector<std::int32_t> wide{0, 3, 3, 1};
    ForeignDataset labels{.path = "/y", .size = {4}};
    labels.bytes.assign(reinterpret_cast<const std::byte*>(small.data()),
                        reinterpret_cast<const std::byte*>(small.data()) + 4);
    const auto counts = [&](const std::string& layout) {
        const fs::path path = write("l.h5", {labels});
        return DatasetIndex::open_foreign({path}, {{"labels", "/y", layout}})
            .fields()[0]
            .class_counts;
    };
    EXPECT_THAT(counts(""), ElementsAre(1, 1, 0, 2));
    EXPECT_THAT(counts("value"), IsEmpty());
    labels.type = H5T_STD_I32LE;
    labels.bytes.assign(reinterpret_cast<const std::byte*>(wide.data()),
                        reinterpret_cast<const std::byte*>(wide.data()) + 16);
    EXPECT_THAT(counts("label"), ElementsAre(1, 1, 0, 2));
    labels.bytes[3] = std::byte{0x80};
    EXPECT_EQ(caught_code([&] { counts("label"); }), "E210");
    labels.bytes[3] = std::byte{0x10};
    EXPECT_EQ(caught_code([&] { counts("label"); }), "E210") << "memory is bounded";
}

TEST_F(Foreign, LabelsThatAreDamagedAfterOpeningAreNamed) {
    const std::vector<std::int32_t> values{0, 3, 3, 1, 2, 0};
    ForeignDataset labels{.path = "/y", .type = H5T_STD_I32LE, .size = {values.size()}};
    const auto bytes = std::as_bytes(std::span(values));
    labels.bytes.assign(bytes.begin(), bytes.end());
    const fs::path path = write("l.h5", {labels});
    const auto index = std::make_shared<const DatasetIndex>(
        DatasetIndex::open_foreign({path}, {{"labels", "/y", "label"}}));
    test::overwrite(path, index->stored_blocks(0)[0].offset + 2 * 4, "\x04");
    const auto error = caught([&] {
        BatchStream stream(index, {.order = OrderKind::sequential, .batch = 6});
        stream.next();
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), "E210");
    EXPECT_THAT(error->text(), HasSubstr("label 4 of sample 2"));
}

TEST_F(Foreign, WhatCannotBeStreamedIsRefusedWithTheReason) {
    const auto refused = [&](const ForeignDataset& data, const char* code, const char* why) {
        const auto error = error_of(data);
        ASSERT_TRUE(error) << why;
        EXPECT_EQ(error->code(), code) << error->text();
        EXPECT_THAT(error->text(), HasSubstr(why));
    };
    const auto bytes = test::random_bytes(4096, 1);
    refused({.type = H5T_STD_U16LE, .size = {64, 32}, .bytes = bytes}, "E234", "it is u16");
    refused({.type = H5T_IEEE_F32BE, .size = {64, 16}, .bytes = bytes}, "E234", "big-endian f32");
    refused({.size = {}, .bytes = bytes}, "E234", "no dimensions");
    refused({.size = {0, 4}}, "E234", "no samples");
    refused({.size = {64, 64}}, "E234", "never written");
    refused({.size = {64, 64}, .chunk = {16, 64}}, "E234", "row 0 was never written");
    refused({.size = {64, 64}, .chunk = {64, 16}, .bytes = bytes}, "E234", "data pack --hdf5");
    refused({.size = {64, 64}, .chunk = {64, 16}, .bytes = bytes}, "E234", "[64, 16]");
    refused({.size = {64, 64},
             .chunk = {16, 64},
             .bytes = bytes,
             .filters = {{32008, {}}},
             .encode =
                 [](auto, const auto& raw) {
                     return ForeignDataset::Stored{raw, 0};
                 }},
            "E212",
            "32008 (bitshuffle)");
    refused({.size = {64, 64},
             .chunk = {16, 64},
             .bytes = bytes,
             .encode =
                 [](auto, const auto& raw) {
                     return ForeignDataset::Stored{{raw.begin(), raw.end() - 1}, 0};
                 }},
            "E234",
            "wrong size");
    const fs::path path = write("one.h5", test::images_and_labels(9, 1));
    EXPECT_EQ(caught_code([&] {
                  DatasetIndex::open_foreign({path}, {{"images", "/x/dat", ""}});
              }),
              "E207");
    EXPECT_EQ(caught_code([&] {
                  DatasetIndex::open_foreign({path}, {{"images", "/x", ""}});
              }),
              "E207");
    EXPECT_EQ(caught_code([&] {
                  DatasetIndex::open_foreign({path}, {{"a", "/x/data", "label"}});
              }),
              "E235");
    EXPECT_EQ(caught_code([&] { DatasetIndex::open_foreign({path}, {}); }), "E235");
    EXPECT_EQ(caught_code([&] { DatasetIndex::open_foreign({}, fields); }), "E201");
    EXPECT_EQ(caught_code([&] { DatasetIndex::open_foreign({folder_ / "none"}, fields); }), "E201");
    EXPECT_EQ(caught_code([&] {
                  DatasetIndex::open_foreign({folder_.file("text.h5", "not HDF5")}, fields);
              }),
              "E203");
}

TEST_F(Foreign, FilesThatDoNotFitTogetherAreNamed) {
    const fs::path a = write("a.h5", test::images_and_labels(9, 1));
    auto other = test::images_and_labels(9, 1);
    other[0].size = {9, 5, 3};
    const fs::path b = write("b.h5", other);
    const auto error = caught([&] { DatasetIndex::open_foreign({a, b}, fields); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), "E208");
    EXPECT_THAT(error->text(), HasSubstr("b.h5"));
    other = test::images_and_labels(9, 1);
    other[1] = test::images_and_labels(8, 1)[1];
    const fs::path c = write("c.h5", other);
    EXPECT_EQ(caught_code([&] { DatasetIndex::open_foreign({c}, fields); }), "E209");
}

TEST_F(Foreign, LinksIntoOtherFilesAreNotFollowed) {
    write("secret.h5", test::images_and_labels(9, 1));
    const hid_t file = H5Fcreate((folder_ / "link.h5").c_str(), H5F_ACC_TRUNC, 0, 0);
    H5Lcreate_external("secret.h5", "/y", file, "/y", 0, 0);
    H5Lcreate_soft("/y", file, "/soft", 0, 0);
    H5Fclose(file);
    for (const char* path : {"/y", "/soft"})
        EXPECT_EQ(caught_code([&] {
                      DatasetIndex::open_foreign({folder_ / "link.h5"}, {{"labels", path, ""}});
                  }),
                  "E205")
            << path;
}

TEST_F(Foreign, AFolderAFileOrAPatternNamesFiles) {
    const fs::path b = folder_.file("d/b.h5", ""), a = folder_.file("d/a.hdf5", "");
    folder_.file("d/notes.txt", "");
    EXPECT_THAT(foreign_files(folder_ / "d"), ElementsAre(a, b));
    EXPECT_THAT(foreign_files(b), ElementsAre(b));
    EXPECT_THAT(foreign_files(folder_ / "?/*.h5"), ElementsAre(b));
    EXPECT_EQ(caught_code([&] { foreign_files(folder_ / "d/*.hdf"); }), "E201");
    EXPECT_EQ(caught_code([&] { foreign_files(folder_ / "e"); }), "E201");
}

TEST_F(Foreign, MappingsAreRead) {
    EXPECT_EQ(parse_field_mapping("images=/x/data"), (FieldMapping{"images", "/x/data", ""}));
    EXPECT_EQ(parse_field_mapping("images=x:CHW"), (FieldMapping{"images", "/x", "CHW"}));
    EXPECT_EQ(parse_field_mapping("a=/x:1/y"), (FieldMapping{"a", "/x:1/y", ""}));
    EXPECT_EQ(parse_field_mappings("images=/x/data:CHW,labels=y"),
              (std::vector<FieldMapping>{{"images", "/x/data", "CHW"}, {"labels", "/y", ""}}));
    EXPECT_THAT(parse_field_mappings(""), IsEmpty());
    for (const char* text : {"images", "=x", "a=", "a=:CHW", "a b=/x", ""})
        EXPECT_EQ(caught_code([&] { parse_field_mapping(text); }), "E235") << text;
}

// The chains of filters that files come with, by name.
struct Chain {
    const char* name;
    std::vector<ForeignDataset::Filter> filters;
    bool is_known_to_library = true;
};

void PrintTo(const Chain& chain, std::ostream* out) {
    *out << chain.name;
}

std::vector<std::byte> shuffled(const std::vector<std::byte>& raw, std::size_t element) {
    std::vector<std::byte> out(raw);
    const std::size_t count = raw.size() / element;
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t b = 0; b < element; ++b) out[b * count + i] = raw[i * element + b];
    return out;
}

std::vector<std::byte> blosc_compressed(const std::vector<std::byte>& raw,
                                        std::size_t element,
                                        const char* codec,
                                        int shuffle) {
    std::vector<std::byte> out(raw.size() + BLOSC_MAX_OVERHEAD);
    const int size = blosc_compress_ctx(
        5, shuffle, element, raw.size(), raw.data(), out.data(), out.size(), codec, 0, 1);
    out.resize(static_cast<std::size_t>(size));
    return out;
}

// What the filters' own plugins do, which Debian does not have.
std::vector<std::byte> encoded(const Chain& chain, std::vector<std::byte> bytes) {
    for (const auto& filter : chain.filters) {
        if (filter.kind == H5Z_FILTER_SHUFFLE) bytes = shuffled(bytes, filter.values.at(0));
        if (filter.kind == 32001)
            bytes =
                blosc_compressed(bytes,
                                 filter.values.at(2),
                                 std::array{"blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"}.at(
                                     filter.values.at(6)),
                                 static_cast<int>(filter.values.at(5)));
        if (filter.kind == 32004 || filter.kind == 32015) {
            Encoder encoder(static_cast<Codec>(filter.kind), 0);
            const auto smaller = encoder.encode(bytes).value();
            bytes.assign(smaller.begin(), smaller.end());
        }
        if (filter.kind == H5Z_FILTER_FLETCHER32) {
            const std::uint32_t sum = fletcher32(bytes);
            for (int shift = 0; shift < 32; shift += 8)
                bytes.push_back(static_cast<std::byte>(sum >> shift));
        }
    }
    return bytes;
}

class Chains : public testing::TestWithParam<Chain> {
  protected:
    // f32 [100, 3, 5] in chunks of 16 rows, of which the last is padded.
    ForeignDataset dataset() const {
        ForeignDataset data{.type = H5T_IEEE_F32LE, .size = {100, 3, 5}, .chunk = {16, 3, 5}};
        data.bytes = test::random_bytes(100 * 60, 4);
        data.filters = GetParam().filters;
        if (!GetParam().is_known_to_library)
            data.encode = [](std::size_t, const std::vector<std::byte>& raw) {
                return ForeignDataset::Stored{encoded(GetParam(), raw), 0};
            };
        return data;
    }
    DatasetIndex open(const ForeignDataset& data, test::Format format = test::Format::earliest) {
        test::write_foreign(folder_ / "a.h5", {data}, format);
        return DatasetIndex::open_foreign({folder_ / "a.h5"}, {{"images", "/x/data", ""}});
    }
    test::TempDir folder_;
};

TEST_P(Chains, AreUndone) {
    const ForeignDataset data = dataset();
    for (const test::Format format : {test::Format::earliest, test::Format::newest}) {
        const DatasetIndex index = open(data, format);
        EXPECT_EQ(index.blocks().size(), 1u) << "small chunks are taken together";
        EXPECT_EQ(streamed(index, 0), data.bytes);
        EXPECT_EQ(streamed(DatasetIndex::deserialize(index.serialize()), 0), data.bytes);
    }
}

TEST_P(Chains, ChunksThatSkippedThemAreReadToo) {
    ForeignDataset data = dataset();
    const std::uint32_t all = (1u << data.filters.size()) - 1;
    data.encode = [all](std::size_t i, const std::vector<std::byte>& raw) {
        if (i % 2 == 0) return ForeignDataset::Stored{raw, all};
        // Only the first filter is applied, the others are skipped.
        Chain first = GetParam();
        first.filters.resize(1);
        const bool is_encodable = first.filters[0].kind != H5Z_FILTER_DEFLATE;
        return is_encodable ? ForeignDataset::Stored{encoded(first, raw), all & ~1u}
                            : ForeignDataset::Stored{raw, all};
    };
    const DatasetIndex index = open(data);
    EXPECT_EQ(streamed(index, 0), data.bytes);
}

TEST_P(Chains, BytesThatMakeNoSenseAreNamed) {
    const DatasetIndex index = open(dataset());
    const StoredBlock& block = index.stored_blocks(0)[2];
    // Garbage over the whole chunk: not every codec has a checksum.
    test::overwrite(folder_ / "a.h5", block.offset, std::string(block.stored_bytes, '\xe7'));
    const auto error = caught([&] { streamed(index, 0); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), "E213");
    EXPECT_THAT(error->text(), HasSubstr("block 2"));
    EXPECT_THAT(error->text(), HasSubstr(grouped(block.offset)));
}

constexpr H5Z_filter_t blosc = 32001, lz4 = 32004, zstd = 32015;
std::vector<unsigned> blosc_values(unsigned shuffle, unsigned codec) {
    return {2, 2, 4, 960, 5, shuffle, codec};
}

INSTANTIATE_TEST_SUITE_P(
    Filters,
    Chains,
    testing::Values(
        Chain{"deflate", {{H5Z_FILTER_DEFLATE, {6}}}},
        Chain{"shuffle_deflate", {{H5Z_FILTER_SHUFFLE, {4}}, {H5Z_FILTER_DEFLATE, {6}}}},
        Chain{"fletcher32", {{H5Z_FILTER_FLETCHER32, {}}}},
        Chain{"shuffle_deflate_fletcher32",
              {{H5Z_FILTER_SHUFFLE, {4}}, {H5Z_FILTER_DEFLATE, {1}}, {H5Z_FILTER_FLETCHER32, {}}}},
        Chain{"fletcher32_deflate", {{H5Z_FILTER_FLETCHER32, {}}, {H5Z_FILTER_DEFLATE, {1}}}},
        Chain{"fletcher32_shuffle_deflate",
              {{H5Z_FILTER_FLETCHER32, {}}, {H5Z_FILTER_SHUFFLE, {4}}, {H5Z_FILTER_DEFLATE, {1}}}},
        Chain{"shuffle_shuffle_fletcher32_shuffle",
              {{H5Z_FILTER_SHUFFLE, {4}},
               {H5Z_FILTER_SHUFFLE, {4}},
               {H5Z_FILTER_FLETCHER32, {}},
               {H5Z_FILTER_SHUFFLE, {4}}},
              false},
        Chain{"lz4", {{lz4, {0}}}, false},
        Chain{"zstd", {{zstd, {3}}}, false},
        Chain{"shuffle_zstd", {{H5Z_FILTER_SHUFFLE, {4}}, {zstd, {3}}}, false},
        Chain{"shuffle_lz4_fletcher32",
              {{H5Z_FILTER_SHUFFLE, {4}}, {lz4, {0}}, {H5Z_FILTER_FLETCHER32, {}}},
              false},
        Chain{"blosc_blosclz", {{blosc, blosc_values(BLOSC_SHUFFLE, 0)}}, false},
        Chain{"blosc_lz4_bits", {{blosc, blosc_values(BLOSC_BITSHUFFLE, 1)}}, false},
        Chain{"blosc_zlib", {{blosc, blosc_values(BLOSC_NOSHUFFLE, 4)}}, false},
        Chain{"blosc_zstd_fletcher32",
              {{blosc, blosc_values(BLOSC_SHUFFLE, 5)}, {H5Z_FILTER_FLETCHER32, {}}},
              false}),
    [](const auto& chain) { return std::string(chain.param.name); });

TEST(Shuffle, IsUndoneForAnySizes) {
    for (const std::uint32_t element : {1u, 2u, 3u, 8u, 16u})
        for (const std::size_t bytes : {1u, 7u, 16u, 1000u, 10000u, 10003u}) {
            const auto raw = test::random_bytes(bytes, element);
            std::vector<std::byte> out(bytes);
            unshuffle(shuffled(raw, element), element, out);
            EXPECT_EQ(out, raw) << element << " " << bytes;
        }
}

TEST(Blosc, HeadersThatLieAreRefused) {
    const auto raw = test::random_bytes(4096, 9);
    const auto good = blosc_compressed(raw, 4, "lz4", BLOSC_SHUFFLE);
    std::vector<std::byte> out(raw.size());
    ASSERT_TRUE(decode_blosc(good, out));
    EXPECT_EQ(out, raw);
    EXPECT_FALSE(decode_blosc(std::span(good).first(good.size() - 1), out));
    EXPECT_FALSE(decode_blosc(good, std::span(out).first(4095)));
    EXPECT_FALSE(decode_blosc({}, out));
    CounterRandom random(Purpose::test, {77});
    for (int i = 0; i < 2000; ++i) {
        auto bad = good;
        const std::size_t reach = i % 2 == 0 ? 24 : bad.size();
        for (int flips = 0; flips < 3; ++flips)
            bad[random.below(reach)] ^= static_cast<std::byte>(1u << random.below(8));
        static_cast<void>(decode_blosc(bad, out));  // whatever it says, it stays within its bounds
    }
}

}  // namespace
}  // namespace lockstep
