// SPDX-License-Identifier: Apache-2.0
// Chunks of foreign files as filters left them: each chain is undone, and nonsense is named.
#include "lockstep/core/numbers.hpp"

#include "data/foreign_files.hpp"
#include "data/pack/rows.hpp"
#include "data/samples.hpp"
#include "format/codec.hpp"
#include "support/unit.hpp"

#include <blosc.h>

namespace lockstep {
namespace {

using test::ForeignDataset;
using test::streamed;

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
        return DatasetIndex::open_foreign({test::write_foreign(folder_ / "a.h5", {data}, format)},
                                          {{"images", "/x/data"}});
    }
    TempDir folder_;
};

TEST_P(Chains, AreUndone) {
    const ForeignDataset data = dataset();
    for (const test::Format format : {test::Format::earliest, test::Format::newest}) {
        const DatasetIndex index = open(data, format);
        EXPECT_EQ(index.blocks().size(), 1u) << "small chunks are taken together";
        EXPECT_EQ(streamed(index, 0), data.bytes);
        EXPECT_EQ(streamed(DatasetIndex::deserialize(index.serialize()), 0), data.bytes);
        const auto packed = open_hdf5({folder_ / "a.h5"}, {{"values", "/x/data"}});
        EXPECT_EQ(test::rows_of(*packed), data.bytes) << "by the same decoders";
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
    const Error error = test::error_of([&] { streamed(index, 0); });
    EXPECT_EQ(error.code(), "E213");
    EXPECT_THAT(error.text(), has("block 2", grouped(block.offset)));
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
