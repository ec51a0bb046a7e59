// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/dataset_index.hpp"

#include "data/samples.hpp"
#include "rows.hpp"

#include <gmock/gmock.h>
#include <hdf5.h>

namespace lockstep {
namespace {

using test::error_of;
using test::values_of;
using testing::ElementsAre;
using testing::HasSubstr;

// Rows of an HDF5 file under construction.
class Hdf5Source : public testing::Test {
  protected:
    Hdf5Source() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }
    ~Hdf5Source() override { close(); }

    fs::path create(const std::string& name) {
        close();
        file_ = H5Fcreate((folder_ / name).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        return folder_ / name;
    }
    void close() {
        if (file_ >= 0) H5Fclose(file_);
        file_ = -1;
    }

    // `chunk` empty: contiguous; else shuffled, deflated and with checksums.
    template <class T>
    void add(const char* name,
             const std::vector<hsize_t>& size,
             const std::vector<T>& values,
             hid_t memory_type,
             hid_t file_type,
             const std::vector<hsize_t>& chunk = {}) {
        const int rank = static_cast<int>(size.size());
        const hid_t space = H5Screate_simple(rank, size.data(), nullptr);
        const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
        if (!chunk.empty()) {
            H5Pset_chunk(properties, rank, chunk.data());
            H5Pset_shuffle(properties);
            H5Pset_deflate(properties, 6);
            H5Pset_fletcher32(properties);
        }
        const hid_t dataset =
            H5Dcreate2(file_, name, file_type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
        H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
        H5Dclose(dataset);
        H5Pclose(properties);
        H5Sclose(space);
    }
    void add_numbers(const char* name, const std::vector<hsize_t>& size, hid_t type) {
        hsize_t count = 1;
        for (const hsize_t extent : size) count *= extent;
        std::vector<std::int32_t> values(count);
        std::iota(values.begin(), values.end(), 0);
        add(name, size, values, H5T_NATIVE_INT32, type);
    }
    // The error of opening /x of a file that has it with this type.
    Error error_of_type(hid_t type) {
        const fs::path path = create("type.h5");
        add_numbers("x", {2}, type);
        close();
        return error_of([&] { open_hdf5({path}, {{"x", "/x"}}); });
    }

    test::TempDir folder_;
    hid_t file_ = -1;
};

TEST_F(Hdf5Source, ReadsAnyChunksAndFilters) {
    const fs::path path = create("a.h5");
    std::vector<float> values(101 * 7 * 5);
    std::iota(values.begin(), values.end(), 0.5f);
    const hid_t group = H5Gcreate2(file_, "deep", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(group);
    add("deep/x", {101, 7, 5}, values, H5T_NATIVE_FLOAT, H5T_IEEE_F32LE, {13, 4, 5});
    add_numbers("y", {101}, H5T_STD_I16BE);
    close();
    std::uint64_t read = 0, total = 1;
    const auto source = open_hdf5({path},
                                  {{"features", "/deep/x"}, {"labels", "y"}},
                                  ImageLayout::unstated,
                                  {folder_.path(), [&](std::uint64_t done, std::uint64_t all) {
                                       read = done;
                                       total = all;
                                   }});
    EXPECT_EQ(read, total);
    EXPECT_EQ(source->samples(), 101u);
    EXPECT_THAT(source->fields()[0].shape, ElementsAre(7, 5));
    for (std::uint64_t row = 0; row < 101; ++row) {
        const auto first = values.begin() + static_cast<std::ptrdiff_t>(row * 35);
        EXPECT_EQ(values_of<float>(*source, 0, row), std::vector<float>(first, first + 35));
        EXPECT_EQ(test::label_of(*source, 1, row), static_cast<std::int64_t>(row));
    }
}

TEST_F(Hdf5Source, ConvertsTypes) {
    const fs::path path = create("a.h5");
    const std::vector<double> values{-1.5, 2.25};
    add("f64", {2}, values, H5T_NATIVE_DOUBLE, H5T_IEEE_F64BE);
    add_numbers("i8", {2}, H5T_STD_I8LE);
    add_numbers("u16", {2}, H5T_STD_U16BE);
    add_numbers("u32", {2}, H5T_STD_U32LE);
    add_numbers("u8", {2}, H5T_STD_U8LE);
    close();
    const auto source =
        open_hdf5({path}, {{"a", "f64"}, {"b", "i8"}, {"c", "u16"}, {"d", "u32"}, {"e", "u8"}});
    using enum ElementType;
    std::vector<ElementType> types;
    for (const Field& field : source->fields()) types.push_back(field.type);
    EXPECT_THAT(types, ElementsAre(f64, i32, i32, i64, u8));
    EXPECT_THAT(values_of<double>(*source, 0, 1), ElementsAre(2.25));
    EXPECT_THAT(values_of<std::int32_t>(*source, 2, 1), ElementsAre(1));
    EXPECT_THAT(values_of<std::int64_t>(*source, 3, 1), ElementsAre(1));
    EXPECT_THAT(error_of_type(H5T_STD_U64LE).why(), HasSubstr("64 bits without sign"));
}

TEST_F(Hdf5Source, TakesLabelsOfU64) {
    const fs::path path = create("a.h5");
    const std::vector<std::uint64_t> values{3, ~std::uint64_t{0}};
    add("y", {2}, values, H5T_NATIVE_UINT64, H5T_STD_U64BE);
    close();
    const auto source = open_hdf5({path}, {{"labels", "y"}});
    EXPECT_EQ(test::label_of(*source, 0, 0), 3);
    const std::int64_t beyond = test::label_of(*source, 0, 1);
    EXPECT_TRUE(beyond < 0 || beyond > 1'000'000) << beyond << ", which packing must refuse";
}

TEST_F(Hdf5Source, TakesLayoutsThatGoWithNames) {
    const fs::path path = create("a.h5");
    add("x", {2, 4, 5, 3}, std::vector<float>(120), H5T_NATIVE_FLOAT, H5T_IEEE_F32LE);
    const std::vector<float> halves{1, 0.5};
    add("y", {2}, halves, H5T_NATIVE_FLOAT, H5T_IEEE_F32LE);
    close();
    const auto layouts_of = [&](const char* field) {
        const auto source = open_hdf5({path}, {parse_field_mapping(field)});
        return source->fields()[0].layout + std::to_string(source->fields()[0].shape[0]);
    };
    EXPECT_EQ(layouts_of("images=/x:HWC"), "CHW3") << "images are converted";
    EXPECT_EQ(layouts_of("images=/x:CHW"), "CHW4");
    EXPECT_EQ(layouts_of("values=/x:hwc"), "HWC4") << "others are said to be so";
    for (const char* bad : {"values=/x:label", "labels=/y:value", "values=/x:HW", "x=/y:onehot"})
        EXPECT_EQ(error_of([&] { layouts_of(bad); }).code(), "E235") << bad;
    EXPECT_EQ(error_of([&] { layouts_of("labels=/y:onehot"); }).code(), "E235");
    const auto labels = open_hdf5({path}, {parse_field_mapping("labels=/y:label")});
    EXPECT_EQ(test::label_of(*labels, 0, 0), 1);
    EXPECT_LT(test::label_of(*labels, 0, 1), 0) << "0.5 is no class, which packing says";
}

// What training says of the same files.
TEST_F(Hdf5Source, RefusesALayoutThatRowsDoNotFitAsTrainingDoes) {
    const fs::path one = create("one.h5");
    add_numbers("picture", {12, 11, 3}, H5T_STD_U8LE);
    add_numbers("channels", {3, 12, 11}, H5T_STD_U8LE);
    add_numbers("gray", {12, 11, 11}, H5T_STD_U8LE);
    add_numbers("rows", {12}, H5T_STD_I32LE);
    close();
    const auto refused = [&](const char* field) {
        const std::vector<FieldMapping> fields{parse_field_mapping(field)};
        const Error packed = error_of([&] { open_hdf5({one}, fields); });
        const Error streamed = error_of([&] { DatasetIndex::open_foreign({one}, fields); });
        EXPECT_EQ(packed.code(), "E235") << field;
        EXPECT_EQ(packed.text(), streamed.text());
        return packed.text();
    };
    for (const char* field : {"images=/picture:HWC", "images=/channels:CHW", "masks=/rows:HW"}) {
        const bool is_one = field != std::string("masks=/rows:HW");
        EXPECT_EQ(refused(field).find("a file holds one sample") != std::string::npos, is_one);
        EXPECT_EQ(refused(field).find("--sample-a-file") != std::string::npos, is_one) << field;
    }
    EXPECT_THAT(refused("images=/gray:HWC"), HasSubstr("if a file holds one sample"));
    EXPECT_THAT(refused("images=/gray:HWC"), HasSubstr("else write --field images=/gray:HW"));
    EXPECT_THAT(refused("labels=/rows:CHW"), HasSubstr("fix: write --field labels=/rows"));
    EXPECT_THAT(refused("images=/rows:HW"), HasSubstr("fix: write --field features=/rows"));
    EXPECT_EQ(open_hdf5({one}, {parse_field_mapping("images=/gray:HW")})->samples(), 12U);
    const auto with_option = [&](ImageLayout layout, const char* field) {
        return error_of([&] { open_hdf5({one}, {parse_field_mapping(field)}, layout); });
    };
    EXPECT_EQ(with_option(ImageLayout::hwc, "images=/picture").code(), "E235");
    EXPECT_EQ(with_option(ImageLayout::hwc, "pictures=/picture").code(), "E106");
    const std::vector<FieldMapping> fields{parse_field_mapping("images=/picture:HWC"),
                                           parse_field_mapping("masks=/gray")};
    const auto whole = open_hdf5({one, one}, fields, {}, {.is_sample_a_file = true});
    EXPECT_EQ(whole->samples(), 2U) << "one of each file";
    EXPECT_THAT(whole->fields()[0].shape, ElementsAre(3, 12, 11));
    EXPECT_THAT(whole->fields()[1].shape, ElementsAre(12, 11, 11));
}

TEST_F(Hdf5Source, ReadsFilesOneAfterAnother) {
    const fs::path a = create("a.h5");
    add_numbers("x", {3, 2}, H5T_STD_I32LE);
    const fs::path b = create("b.h5");
    add_numbers("x", {2, 2}, H5T_STD_I32LE);
    const fs::path c = create("c.h5");
    add_numbers("x", {2, 3}, H5T_STD_I32LE);
    close();
    const auto source = open_hdf5({a, b}, {{"x", "x"}});
    EXPECT_EQ(source->samples(), 5u);
    EXPECT_THAT(values_of<std::int32_t>(*source, 0, 2), ElementsAre(4, 5));
    EXPECT_THAT(values_of<std::int32_t>(*source, 0, 3), ElementsAre(0, 1));
    EXPECT_EQ(error_of([&] { open_hdf5({a, c}, {{"x", "x"}}); }).code(), "E208");
}

TEST_F(Hdf5Source, NamesWhatIsWrong) {
    const fs::path path = create("a.h5");
    add_numbers("x", {3}, H5T_STD_I32LE);
    add_numbers("y", {2}, H5T_STD_I32LE);
    add_numbers("scalar", {}, H5T_STD_I32LE);
    close();
    const Error counts = error_of([&] { open_hdf5({path}, {{"x", "x"}, {"y", "y"}}); });
    EXPECT_EQ(counts.code(), "E209");
    EXPECT_THAT(counts.what(), HasSubstr("a.h5' has 3 rows of 'x' and 2 of 'y'"));
    EXPECT_THAT(counts.fix(), HasSubstr("lockstep data inspect "));
    EXPECT_EQ(error_of([&] { open_hdf5({path}, {{"x", "none"}}); }).code(), "E207");
    EXPECT_THAT(error_of([&] {
                    open_hdf5({path}, {{"x", "scalar"}});
                }).why(),
                HasSubstr("single value"));
    EXPECT_THAT(error_of_type(H5T_C_S1).why(), HasSubstr("neither whole numbers"));
    EXPECT_EQ(error_of([&] { open_hdf5({folder_ / "none"}, {{"x", "x"}}); }).code(), "E201");
    const auto text = folder_.file("text", std::string(4096, 'x'));
    EXPECT_EQ(error_of([&] { open_hdf5({text}, {{"x", "x"}}); }).code(), "E203");
    fs::resize_file(path, fs::file_size(path) / 2);
    EXPECT_EQ(error_of([&] { open_hdf5({path}, {{"x", "x"}}); }).code(), "E204");
}

TEST_F(Hdf5Source, DoesNotFollowAFileIntoOthers) {
    create("secret.h5");
    add_numbers("x", {3}, H5T_STD_I32LE);
    const fs::path path = create("a.h5");
    H5Lcreate_external("secret.h5", "x", file_, "link", H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t size = 3;
    const hid_t space = H5Screate_simple(1, &size, nullptr);
    const hid_t outside = H5Pcreate(H5P_DATASET_CREATE), virtually = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(outside, (folder_ / "secret.h5").c_str(), 0, 12);
    H5Pset_virtual(virtually, space, "secret.h5", "x", space);
    for (const auto& [name, properties] : {std::pair("raw", outside), {"virtual", virtually}}) {
        H5Dclose(
            H5Dcreate2(file_, name, H5T_STD_I32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT));
        H5Pclose(properties);
    }
    H5Sclose(space);
    close();
    EXPECT_EQ(error_of([&] { open_hdf5({path}, {{"x", "link"}}); }).code(), "E205");
    for (const char* name : {"raw", "virtual"}) {
        const Error error = error_of([&] { open_hdf5({path}, {{"x", name}}); });
        EXPECT_EQ(error.code(), "E214") << name;
        EXPECT_THAT(error.why(), HasSubstr("other files")) << name;
    }
}

TEST_F(Hdf5Source, NoticesChunksThatAreDamaged) {
    const fs::path path = create("a.h5");
    std::vector<std::int32_t> values(4096);
    CounterRandom random(Purpose::test, {1});
    for (std::int32_t& value : values) value = static_cast<std::int32_t>(random.next() >> 33);
    add("x", {4096}, values, H5T_NATIVE_INT32, H5T_STD_I32LE, {4096});
    close();
    test::overwrite(path, fs::file_size(path) / 2, "\x55\xaa\x55\xaa");
    const Error error = error_of([&] { open_hdf5({path}, {{"x", "x"}}); });
    EXPECT_EQ(error.code(), "E213");
    EXPECT_THAT(error.what(), HasSubstr("a.h5' is damaged: field 'x'"));
}

}  // namespace
}  // namespace lockstep
