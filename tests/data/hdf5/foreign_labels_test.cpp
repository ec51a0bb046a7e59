// SPDX-License-Identifier: Apache-2.0
// Labels as others write them: texts, enumerations, one-hot rows.
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/sources.hpp"

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "hdf5/file_facts.hpp"
#include "hdf5/h5.hpp"
#include "support/unit.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

using test::encoded;
using test::ForeignDataset;

h5::Handle text_type(std::size_t bytes, H5T_str_t padding) {
    h5::Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type.id(), bytes);
    if (bytes != H5T_VARIABLE) H5Tset_strpad(type.id(), padding);
    return type;
}

std::vector<std::byte> padded(const std::vector<std::string>& texts, std::size_t bytes, char pad) {
    std::string all;
    for (const std::string& text : texts) all += text + std::string(bytes - text.size(), pad);
    return encoded(std::vector(all.begin(), all.end()));
}

class LabelForms : public test::ForeignFolder {
  protected:
    fs::path write(const std::string& name, ForeignDataset labels) {
        labels.path = "/y";
        return ForeignFolder::write(name, {std::move(labels)});
    }
    fs::path write_texts(const std::string& name, const std::vector<std::string>& texts) {
        std::vector<const char*> places;
        for (const std::string& text : texts) places.push_back(text.c_str());
        const h5::Handle type = text_type(H5T_VARIABLE, H5T_STR_NULLTERM);
        return write(name, {.type = type.id(), .size = {texts.size()}, .bytes = encoded(places)});
    }
    // As a stream gives them, here and after a journey to another rank.
    static std::vector<int> classes_of(const DatasetIndex& index) {
        const DatasetIndex received = DatasetIndex::deserialize(index.serialize());
        EXPECT_EQ(received, index);
        const std::vector<std::byte> rows = test::streamed(received, 0);
        EXPECT_EQ(rows, test::streamed(index, 0));
        const std::size_t bytes = element_bytes(index.fields()[0].type);
        std::vector<int> classes;
        for (std::size_t i = 0; i < rows.size(); i += bytes) {
            int value = 0;
            std::memcpy(&value, rows.data() + i, std::min(bytes, sizeof value));
            classes.push_back(value);
        }
        return classes;
    }
    static DatasetIndex open(const std::vector<fs::path>& files, const std::string& field) {
        return DatasetIndex::open_foreign(files, {parse_field_mapping(field)});
    }
    static std::string error_of(const std::vector<fs::path>& files,
                                const std::string& field,
                                const std::string& code) {
        const Error error = test::error_of([&] { open(files, field); });
        EXPECT_EQ(error.code(), code) << error.text();
        return error.text();
    }
};

TEST_F(LabelForms, TextsOfAnyLengthAreClassesAsTheySortOverAllFiles) {
    const std::vector<fs::path> files{write_texts("a.h5", {"dog", "cat", "dog", "\xc3\xbc"}),
                                      write_texts("b.h5", {"ant", "cat"})};
    const DatasetIndex index = open(files, "labels=/y");
    EXPECT_THAT(classes_of(index), ElementsAre(2, 1, 2, 3, 0, 1));
    const Field& field = index.fields()[0];
    EXPECT_THAT(field.class_names, ElementsAre("ant", "cat", "dog", "\xc3\xbc"));
    EXPECT_THAT(field.class_counts, ElementsAre(1u, 2u, 2u, 1u));
    EXPECT_TRUE(field.shape.empty());
    EXPECT_EQ(field.source, "/y");
    EXPECT_EQ(open(files, "coarse_labels=/y").fields()[0].class_names, field.class_names);
}

TEST_F(LabelForms, MayHaveDimensionsOfOneOrTextsThatAreNotUtf8) {
    const fs::path file = write(
        "a.h5",
        {.type = H5T_STD_U8LE, .size = {3, 1, 1, 1}, .bytes = encoded<std::uint8_t>({2, 0, 2})});
    const DatasetIndex index = open({file}, "labels=/y:label");
    EXPECT_THAT(classes_of(index), ElementsAre(2, 0, 2));
    EXPECT_TRUE(index.fields()[0].shape.empty());
    const DatasetIndex texts = open({write_texts("a.h5", {"caf\xe9", "b"})}, "labels=/y");
    EXPECT_THAT(texts.fields()[0].class_names, ElementsAre("b", "caf\xe9"));
    EXPECT_THAT(classes_of(texts), ElementsAre(1, 0));
}

TEST_F(LabelForms, TextsOfFixedLengthLosePaddingOnly) {
    const std::vector<std::string> texts{"b", "a ", "abcd", "b"};
    const auto names = [&](H5T_str_t padding, char pad) {
        const h5::Handle type = text_type(5, padding);
        const fs::path file =
            write("a.h5", {.type = type.id(), .size = {4, 1}, .bytes = padded(texts, 5, pad)});
        return open({file}, "kind=/y:label").fields()[0].class_names;
    };
    EXPECT_THAT(names(H5T_STR_NULLTERM, '\0'), ElementsAre("a ", "abcd", "b"));
    EXPECT_THAT(names(H5T_STR_NULLPAD, '\0'), ElementsAre("a ", "abcd", "b"));
    EXPECT_THAT(names(H5T_STR_SPACEPAD, ' '), ElementsAre("a", "abcd", "b"));
}

TEST_F(LabelForms, ManyClassesTakeMoreThanAByte) {
    std::vector<std::string> texts;
    std::vector<int> wanted;
    for (int i = 0; i < 40'000; ++i) {
        texts.push_back(fmt::format("{:04}", i % 700));
        wanted.push_back(i % 700);
    }
    const DatasetIndex index = open({write_texts("a.h5", texts)}, "labels=/y");
    EXPECT_EQ(index.fields()[0].type, ElementType::i32);
    EXPECT_THAT(classes_of(index), ElementsAreArray(wanted)) << "of more than one request";
}

TEST_F(LabelForms, TextsThatNameNoClassAreErrorsOfTheirRow) {
    EXPECT_THAT(error_of({write_texts("a.h5", {"a", "b", ""})}, "labels=/y", "E210"),
                HasSubstr("row 2 of '/y' in"));
    EXPECT_THAT(error_of({write_texts("a.h5", {"a", std::string(1025, 'b')})}, "labels=/y", "E210"),
                HasSubstr("row 1 of '/y'"));
    EXPECT_NO_THROW(open({write_texts("a.h5", {std::string(1024, 'b')})}, "labels=/y"));
    EXPECT_THAT(error_of({write_texts("a.h5", {"a", "b"})}, "names=/y", "E234"),
                HasSubstr("PATH:label"));
    const std::vector<fs::path> files{
        write_texts("a.h5", {"a"}),
        write("b.h5", {.type = H5T_STD_U8LE, .size = {1}, .bytes = encoded<std::uint8_t>({1})}),
        write("c.h5", {.type = H5T_STD_I32LE, .size = {1}, .bytes = encoded<std::int32_t>({1})})};
    EXPECT_THAT(error_of(files, "labels=/y", "E208"), HasSubstr("it is u8 [n], in"));
    EXPECT_THAT(error_of({files[1], files[0]}, "labels=/y", "E208"), HasSubstr("it is text, in"));
    EXPECT_THAT(error_of({files[0], files[2]}, "labels=/y", "E208"), HasSubstr("it is i32 [n],"));
}

TEST_F(LabelForms, HotRowsOfAnyTypeAndChunksAreClasses) {
    const auto check_classes = [&](hid_t type, const std::vector<std::byte>& bytes) {
        ForeignDataset data{.type = type, .size = {5, 3}, .bytes = bytes};
        EXPECT_THAT(classes_of(open({write("a.h5", data)}, "labels=/y:onehot")),
                    ElementsAre(1, 0, 2, 1, 1));
        data.chunk = {2, 2};
        data.filters = {{H5Z_FILTER_DEFLATE, {3}}};
        const DatasetIndex index =
            open({write("a.h5", data), write("b.h5", data)}, "labels=/y:ONEHOT");
        EXPECT_THAT(classes_of(index), ElementsAre(1, 0, 2, 1, 1, 1, 0, 2, 1, 1));
        EXPECT_THAT(index.fields()[0].class_counts, ElementsAre(2u, 6u, 2u));
        EXPECT_TRUE(index.fields()[0].class_names.empty());
    };
    const auto hot = [&]<class Value>(Value) {
        return encoded<Value>({0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0});
    };
    check_classes(H5T_STD_I8LE, hot(std::int8_t{}));
    check_classes(H5T_STD_U8LE, hot(std::uint8_t{}));
    check_classes(H5T_STD_I64LE, hot(std::int64_t{}));
    check_classes(H5T_IEEE_F32LE, hot(float{}));
    check_classes(H5T_IEEE_F64LE, hot(double{}));
}

TEST_F(LabelForms, RowsThatAreNotHotAreNamedWithTheirFile) {
    const auto text_of = [&](std::vector<float> second) {
        std::vector<float> values{0, 1, 0};
        values.insert(values.end(), second.begin(), second.end());
        const fs::path file =
            write("a.h5", {.type = H5T_IEEE_F32LE, .size = {2, 3}, .bytes = encoded(values)});
        return error_of({file}, "labels=/y:onehot", "E210");
    };
    EXPECT_THAT(text_of({1, 1, 0}), HasSubstr("row 1 of '/y' in '"));
    EXPECT_THAT(text_of({1, 1, 0}), HasSubstr("a.h5' is not one-hot: it has 2 ones"));
    EXPECT_THAT(text_of({0, 0, 0}), HasSubstr("3 zeros and no one"));
    EXPECT_THAT(text_of({0, 0.5F, 0.5F}), HasSubstr("has 0.5 at place 1"));
    EXPECT_THAT(text_of({0, 1, -1}), HasSubstr("has -1 at place 2"));
    EXPECT_THAT(text_of({0, 1, std::numeric_limits<float>::quiet_NaN()}), HasSubstr("has nan"));
}

TEST_F(LabelForms, WhatHasOtherDimensionsIsNotHot) {
    const ForeignDataset flat{
        .type = H5T_STD_U8LE, .size = {3}, .bytes = encoded<std::uint8_t>({0, 1, 0})};
    EXPECT_THAT(error_of({write("a.h5", flat)}, "labels=/y:onehot", "E235"),
                HasSubstr("is not onehot"));
    const ForeignDataset hot{
        .type = H5T_STD_U8LE, .size = {1, 3}, .bytes = encoded<std::uint8_t>({0, 1, 0})};
    EXPECT_THAT(error_of({write("a.h5", hot)}, "labels=/y:label", "E235"),
                HasSubstr("labels=/y:onehot"))
        << "is told what to write";
    EXPECT_THAT(open({write("a.h5", hot)}, "labels=/y").fields()[0].shape, ElementsAre(3))
        << "several labels a sample, unless it is said";
}

class Enumerations : public LabelForms {
  protected:
    // Values 1, 2, 5, 1 of an enumeration with so many bytes.
    template <class Value>
    fs::path write_enum(const std::string& name,
                        hid_t base,
                        const std::vector<std::pair<const char*, Value>>& members,
                        const std::vector<Value>& values) {
        const h5::Handle type(test::must(H5Tenum_create(base)), H5Tclose);
        for (const auto& [member, value] : members) H5Tenum_insert(type.id(), member, &value);
        return write(name, {.type = type.id(), .size = {values.size()}, .bytes = encoded(values)});
    }
};

TEST_F(Enumerations, AreClassesByValueWithTheirMembersNames) {
    const fs::path file = write_enum<std::int16_t>(
        "a.h5", H5T_STD_I16LE, {{"cat", 1}, {"dog", 2}, {"owl", 4}}, {1, 2, 2, 1});
    const DatasetIndex index = open({file}, "labels=/y");
    EXPECT_THAT(classes_of(index), ElementsAre(1, 2, 2, 1));
    EXPECT_THAT(index.fields()[0].class_names, ElementsAre("0", "cat", "dog", "3", "owl"));
    EXPECT_THAT(index.fields()[0].class_counts, ElementsAre(0u, 2u, 2u, 0u, 0u));
}

TEST_F(Enumerations, OfOneByteAreThoseOfBoolAndOthers) {
    const fs::path file =
        write_enum<std::int8_t>("a.h5", H5T_STD_I8LE, {{"FALSE", 0}, {"TRUE", 1}}, {1, 0, 1});
    const DatasetIndex index = open({file}, "labels=/y");
    EXPECT_EQ(index.fields()[0].type, ElementType::u8);
    EXPECT_THAT(index.fields()[0].class_names, ElementsAre("FALSE", "TRUE"));
    const DatasetIndex values = open({file}, "values=/y");
    EXPECT_THAT(classes_of(values), ElementsAre(1, 0, 1)) << "also where they are no labels";
    EXPECT_TRUE(values.fields()[0].class_names.empty());
}

TEST_F(Enumerations, OfOtherNamesOrBeyondClassesAreErrors) {
    const std::vector<fs::path> files{
        write_enum<std::int32_t>("a.h5", H5T_STD_I32LE, {{"cat", 0}, {"dog", 1}}, {1, 0}),
        write_enum<std::int32_t>("b.h5", H5T_STD_I32LE, {{"dog", 0}}, {0, 0})};
    EXPECT_THAT(error_of(files, "labels=/y", "E208"), HasSubstr("class 0 of '/y' is 'dog' in"));
    EXPECT_EQ(test::caught_code([&] { open_hdf5(files, {{"labels", "/y"}}); }), "E208");
    const fs::path negative = write_enum<std::int32_t>(
        "c.h5", H5T_STD_I32LE, {{"none", -1}, {"cat", 0}, {"all", 1 << 30}}, {0, -1});
    EXPECT_THAT(error_of({negative}, "labels=/y", "E210"), HasSubstr("label -1 of sample 1"));
}

TEST(TextsOfAChild, AreCheckedLikeOtherBytes) {
    const Lists texts{"a", "", "c\xff", "a"};
    const std::vector<std::byte> bytes = to_bytes(texts);
    EXPECT_EQ(lists_from(bytes, 4), texts);
    for (const std::uint64_t rows : {5, 3})
        EXPECT_EQ(caught_code([&] { lists_from(bytes, rows); }), "E230");
}

}  // namespace
}  // namespace lockstep
