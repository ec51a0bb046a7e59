// SPDX-License-Identifier: Apache-2.0
// Foreign files whose numbers are of other widths and byte orders than any field's.

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "format/widening.hpp"
#include "hdf5/h5.hpp"
#include "support/unit.hpp"

#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

using test::encoded;
using test::ForeignDataset;

// The field's values, by a stream.
template <class Value>
std::vector<Value> values_of(const DatasetIndex& index) {
    const std::vector<std::byte> rows = test::streamed(index, 0);
    std::vector<Value> values(rows.size() / sizeof(Value));
    std::memcpy(values.data(), rows.data(), rows.size());
    return values;
}

// Contiguous, in chunks, and in chunks through all filters that do not compress twice.
std::vector<ForeignDataset> layouts(ForeignDataset data, unsigned element) {
    std::vector<ForeignDataset> all{data};
    data.chunk = {4, 2};
    data.chunk.resize(data.size.size());
    all.push_back(data);
    data.filters = {{H5Z_FILTER_SHUFFLE, {element}}};
    all.push_back(data);
    data.filters = {{H5Z_FILTER_DEFLATE, {6}}};
    all.push_back(data);
    data.filters = {{H5Z_FILTER_FLETCHER32, {}},
                    {H5Z_FILTER_SHUFFLE, {element}},
                    {H5Z_FILTER_DEFLATE, {6}},
                    {H5Z_FILTER_FLETCHER32, {}}};
    all.push_back(data);
    return all;
}

class ForeignTypes : public test::ForeignFolder {
  protected:
    DatasetIndex open(const ForeignDataset& data, const FieldMapping& field) {
        return DatasetIndex::open_foreign({write("a.h5", {data})}, {field});
    }

    // `values` in rows of two, stored as `type` in `order`, come out as `Wide`.
    template <class Wide, class Stored>
    void expect_read(hid_t type, std::endian order, ElementType as, std::vector<Stored> values) {
        const ForeignDataset data{
            .type = type, .size = {values.size() / 2, 2}, .bytes = encoded(values, order)};
        const std::vector<Wide> wanted(values.begin(), values.end());
        for (const ForeignDataset& layout : layouts(data, sizeof(Stored))) {
            const DatasetIndex index = open(layout, {"values", "/x/data"});
            EXPECT_EQ(index.fields()[0].type, as);
            EXPECT_THAT(values_of<Wide>(index), ElementsAreArray(wanted));
            const auto received = DatasetIndex::deserialize(index.serialize());
            EXPECT_EQ(received, index);
            EXPECT_THAT(values_of<Wide>(received), ElementsAreArray(wanted));
        }
    }

    // Labels 3, 0, 1, 3, 3, stored as `type` in `order`, are counted and come out as they are.
    template <class Stored>
    void expect_counts(hid_t type, std::endian order, const FieldMapping& field) {
        const ForeignDataset data{.path = "/y",
                                  .type = type,
                                  .size = {5},
                                  .bytes = encoded<Stored>({3, 0, 1, 3, 3}, order)};
        for (const ForeignDataset& layout : layouts(data, sizeof(Stored))) {
            const DatasetIndex index = open(layout, field);
            EXPECT_THAT(index.fields()[0].class_counts, ElementsAre(1, 1, 0, 3));
            if (std::is_floating_point_v<Stored>) {
                EXPECT_THAT(values_of<std::int64_t>(index), ElementsAre(3, 0, 1, 3, 3));
            }
        }
    }

    // Ten values with the least and the largest that there are.
    template <class Stored>
    static std::vector<Stored> extremes() {
        using Limits = std::numeric_limits<Stored>;
        return {Limits::lowest(), Limits::max(), 0, 1, 2, 3, 5, 8, 13, Limits::max() / 3};
    }

    Error error_of(const ForeignDataset& data, const FieldMapping& field) {
        return test::error_of([&] { open(data, field); });
    }
};

constexpr auto little = std::endian::little, big = std::endian::big;

TEST_F(ForeignTypes, NumbersOfEachWidthAndOrderKeepTheirValues) {
    using enum ElementType;
    expect_read<std::int32_t>(H5T_STD_I8LE, little, i32, extremes<std::int8_t>());
    expect_read<std::int32_t>(H5T_STD_I8BE, big, i32, extremes<std::int8_t>());
    expect_read<std::int32_t>(H5T_STD_I16LE, little, i32, extremes<std::int16_t>());
    expect_read<std::int32_t>(H5T_STD_I16BE, big, i32, extremes<std::int16_t>());
    expect_read<std::int32_t>(H5T_STD_U16LE, little, i32, extremes<std::uint16_t>());
    expect_read<std::int32_t>(H5T_STD_U16BE, big, i32, extremes<std::uint16_t>());
    expect_read<std::int32_t>(H5T_STD_I32BE, big, i32, extremes<std::int32_t>());
    expect_read<std::int64_t>(H5T_STD_U32LE, little, i64, extremes<std::uint32_t>());
    expect_read<std::int64_t>(H5T_STD_U32BE, big, i64, extremes<std::uint32_t>());
    expect_read<std::int64_t>(H5T_STD_I64BE, big, i64, extremes<std::int64_t>());
    expect_read<float>(H5T_IEEE_F32BE, big, f32, extremes<float>());
    expect_read<double>(H5T_IEEE_F64BE, big, f64, extremes<double>());
}

TEST_F(ForeignTypes, LabelsOfEachWholeTypeAreCounted) {
    const FieldMapping field{"labels", "/y"};
    expect_counts<std::int8_t>(H5T_STD_I8LE, little, field);
    expect_counts<std::uint8_t>(H5T_STD_U8LE, little, field);
    expect_counts<std::uint8_t>(H5T_STD_U8BE, big, field);
    expect_counts<std::int16_t>(H5T_STD_I16LE, little, field);
    expect_counts<std::uint16_t>(H5T_STD_U16BE, big, field);
    expect_counts<std::int32_t>(H5T_STD_I32LE, little, field);
    expect_counts<std::uint32_t>(H5T_STD_U32LE, little, field);
    expect_counts<std::int64_t>(H5T_STD_I64BE, big, field);
    expect_counts<std::uint64_t>(H5T_STD_U64LE, little, field);
    expect_counts<std::uint64_t>(H5T_STD_U64BE, big, field);
}

TEST_F(ForeignTypes, LabelsMayBeWholeNumbersStoredAsFloats) {
    const FieldMapping field{"kinds", "/y", RowLayout::label};
    expect_counts<float>(H5T_IEEE_F32LE, little, field);
    expect_counts<float>(H5T_IEEE_F32BE, big, field);
    expect_counts<double>(H5T_IEEE_F64LE, little, field);
    expect_counts<double>(H5T_IEEE_F64BE, big, field);
    for (const double wrong : {0.5, -1.0, 1e300, std::nan("")}) {
        const ForeignDataset data{.path = "/y",
                                  .type = H5T_IEEE_F64LE,
                                  .size = {2},
                                  .bytes = encoded<double>({1, wrong}, little)};
        const Error error = error_of(data, field);
        EXPECT_EQ(error.code(), "E210") << wrong;
        EXPECT_EQ(error.text().find("no whole number") != std::string::npos, wrong != -1) << wrong;
    }
}

TEST_F(ForeignTypes, LabelsOfFilesMayDifferInWidth) {
    const auto file = [&](const std::string& name, hid_t type, std::vector<std::byte> bytes) {
        return write(name, {{.path = "/y", .type = type, .size = {3}, .bytes = std::move(bytes)}});
    };
    const fs::path bytes = file("a.h5", H5T_STD_U8LE, encoded<std::uint8_t>({2, 0, 1}, little)),
                   narrow = file("b.h5", H5T_STD_I32LE, encoded<std::int32_t>({3, 2, 1}, little)),
                   wide = file("c.h5", H5T_STD_I64LE, encoded<std::int64_t>({0, 4, 1}, little));
    for (const std::vector<fs::path>& files :
         {std::vector{bytes, narrow, wide}, {wide, narrow, bytes}, {narrow, wide, bytes}}) {
        const DatasetIndex index = DatasetIndex::open_foreign(files, {{"labels", "/y"}});
        EXPECT_EQ(index.fields()[0].type, ElementType::i64);
        EXPECT_THAT(index.fields()[0].class_counts, ElementsAre(2, 3, 2, 1, 1));
    }
    const DatasetIndex index = DatasetIndex::open_foreign({bytes, wide}, {{"labels", "/y"}});
    EXPECT_THAT(values_of<std::int64_t>(index), ElementsAre(2, 0, 1, 0, 4, 1));
    const FieldMapping values{"labels", "/y", RowLayout::value};
    EXPECT_EQ(test::error_of_opening({bytes, wide}, {values}).code(), "E208");
}

TEST_F(ForeignTypes, LabelsBeyondTheirRangeAreRefused) {
    const auto expect_refused = [&]<class Stored>(hid_t type, Stored beyond) {
        const std::vector<Stored> values{1, beyond};
        const Error error =
            error_of({.path = "/y", .type = type, .size = {2}, .bytes = encoded(values, little)},
                     {"labels", "/y"});
        EXPECT_EQ(error.code(), "E210") << error.text();
        EXPECT_THAT(error.fix(), StartsWith("to predict these numbers: --field targets=/y;"));
    };
    expect_refused(H5T_STD_I8LE, std::int8_t{-1});
    expect_refused(H5T_STD_I32LE, std::int32_t{0x10000000});
    expect_refused(H5T_STD_U32LE, std::uint32_t{4294967295U});
    expect_refused(H5T_STD_U64LE, ~std::uint64_t{0});
    expect_refused(H5T_STD_U64LE, std::uint64_t{1} << 63);
}

TEST_F(ForeignTypes, NumbersThatNoFieldHoldsAreRefusedByName) {
    const auto text_of = [&](hid_t type, const FieldMapping& field, std::vector<hsize_t> size) {
        const Error error = error_of(
            {.type = type, .size = std::move(size), .bytes = test::random_bytes(4096, 1)}, field);
        EXPECT_EQ(error.code(), "E234");
        return error.text();
    };
    const FieldMapping values{"values", "/x/data"}, labels{"labels", "/x/data"};
    EXPECT_THAT(text_of(H5T_STD_U64LE, values, {64}), HasSubstr("only labels of it are read"));
    EXPECT_THAT(text_of(H5T_STD_U64LE, labels, {64, 8}), HasSubstr("only labels of it"));
    EXPECT_THAT(text_of(H5T_C_S1, values, {64, 64}), HasSubstr("it is text"));
    const h5::Handle narrow(H5Tcopy(H5T_STD_U16LE), H5Tclose);
    H5Tset_precision(narrow.id(), 12);
    EXPECT_THAT(text_of(narrow.id(), values, {64}), HasSubstr("it is u16; whole numbers"));
}

// A type of 16 bits, as h5py writes numpy's float16 and as others write bfloat16.
h5::Handle short_float(std::size_t exponent_bits, H5T_order_t order) {
    h5::Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
    H5Tset_fields(type.id(), 15, 15 - exponent_bits, exponent_bits, 0, 15 - exponent_bits);
    H5Tset_ebias(type.id(), (std::size_t{1} << (exponent_bits - 1)) - 1);
    H5Tset_precision(type.id(), 16);
    H5Tset_size(type.id(), 2);
    H5Tset_order(type.id(), order);
    return type;
}

// The value of bits with sign, exponent and fraction, by arithmetic.
float value_of_bits(unsigned bits, int exponent_bits) {
    const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const auto fraction = static_cast<float>(bits & ((1U << fraction_bits) - 1));
    const float whole = static_cast<float>(1 << fraction_bits);
    const float sign = bits >> 15 != 0 ? -1.0F : 1.0F;
    if (exponent == (1 << exponent_bits) - 1)
        return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                             : std::numeric_limits<float>::quiet_NaN();
    if (exponent == 0) return sign * std::ldexp(fraction / whole, 1 - bias);
    return sign * std::ldexp(1 + fraction / whole, exponent - bias);
}

TEST_F(ForeignTypes, FloatsOf16BitsBecomeF32WithTheirValue) {
    std::vector<std::uint16_t> bits(65536);
    std::iota(bits.begin(), bits.end(), std::uint16_t{0});
    for (const int exponent_bits : {5, 8})
        for (const std::endian order : {little, big}) {
            const h5::Handle type = short_float(static_cast<std::size_t>(exponent_bits),
                                                order == big ? H5T_ORDER_BE : H5T_ORDER_LE);
            const DatasetIndex index =
                open({.type = type.id(), .size = {256, 256}, .bytes = encoded(bits, order)},
                     {"values", "/x/data"});
            EXPECT_EQ(index.fields()[0].type, ElementType::f32);
            const std::vector<float> values = values_of<float>(index);
            ASSERT_EQ(values.size(), bits.size());
            std::size_t different = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                const float wanted = value_of_bits(bits[i], exponent_bits);
                const bool is_same = std::isnan(wanted) ? std::isnan(values[i])
                                                        : std::bit_cast<std::uint32_t>(values[i]) ==
                                                              std::bit_cast<std::uint32_t>(wanted);
                different += is_same ? 0 : 1;
            }
            EXPECT_EQ(different, 0u) << exponent_bits;
        }
}

TEST_F(ForeignTypes, FilesOfOtherTypesDoNotFitTogether) {
    const auto file = [&](const std::string& name, hid_t type, std::size_t bytes) {
        return write(name, {{.type = type, .size = {64}, .bytes = test::random_bytes(bytes, 1)}});
    };
    const fs::path narrow = file("a.h5", H5T_STD_I16LE, 128),
                   wide = file("b.h5", H5T_STD_I32BE, 256),
                   other = file("c.h5", H5T_STD_U32LE, 256);
    const FieldMapping values{"values", "/x/data"};
    EXPECT_EQ(DatasetIndex::open_foreign({narrow, wide}, {values}).samples(), 128U)
        << "what they become is the same";
    EXPECT_EQ(test::error_of_opening({narrow, other}, {values}).code(), "E208");
}

TEST(Widening, RefusesSizesThatDoNotFit) {
    const Widening widening = Widening::of({.bytes = 2, .is_whole = true, .has_sign = true});
    ASSERT_TRUE(widening.is_known());
    std::vector<std::byte> stored(8), raw(16);
    EXPECT_TRUE(widening.undo(stored, raw));
    EXPECT_FALSE(widening.undo(std::span(stored).first(7), raw));
    EXPECT_FALSE(widening.undo(stored, std::span(raw).first(15)));
    EXPECT_FALSE(widening.undo(stored, std::span(raw).first(12)));
    EXPECT_FALSE(Widening::of({.bytes = 3, .is_whole = true}).is_known());
    EXPECT_FALSE(Widening::of({.bytes = 4, .is_whole = true, .has_sign = true}).is_known());
    EXPECT_FALSE(Widening(99).is_known());
    EXPECT_NE(filter_fault({{FilterKind::widening, 99}}), "");
    EXPECT_NE(filter_fault({{FilterKind::deflate}, {FilterKind::widening, 1}}), "");
    EXPECT_FALSE(is_known_filter(static_cast<std::uint64_t>(FilterKind::widening)))
        << "no file may name it";
}

}  // namespace
}  // namespace lockstep
