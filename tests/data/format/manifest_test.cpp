// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/manifest.hpp"

#include "data/samples.hpp"
#include "support/caught.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::caught;
using test::caught_code;

Field field(const std::string& name, ElementType type, std::vector<std::int64_t> shape) {
    Field made;
    made.name = name;
    made.type = type;
    made.shape = std::move(shape);
    return made;
}

Manifest example() {
    Manifest manifest;
    manifest.name = "toy";
    manifest.split = "train";
    manifest.uuid = "00000000-0000-8000-8000-000000000001";
    manifest.writer = "test";
    manifest.row_order = "source";
    manifest.codec = Codec::lz4;
    manifest.samples = 40;
    manifest.block_rows = 16;
    manifest.fields = {field("images", ElementType::u8, {3, 2, 2}),
                       field("labels", ElementType::i64, {}),
                       field("features", ElementType::f32, {2})};
    manifest.fields[0].mean = {0.1, 1.0 / 3, 1e-9};
    manifest.fields[0].std = {0.5, 0.25, 2};
    manifest.fields[1].class_counts = {30, 10};
    manifest.fields[1].class_names = {"cat", "d\"og"};
    manifest.fields[2].columns = {"mass", "caf\xe9"};
    manifest.shards = {
        {"a.h5", 5000, 32, 0, std::string(32, 'a'), {{100, 2, 7}, {200, 2, 8}, {300, 2, 8}}},
        {"b.h5", 4000, 8, 32, std::string(32, 'b'), {{100, 1, 9}, {200, 1, ~0ull}, {300, 1, 8}}}};
    return manifest;
}

std::string code_of(const Manifest& manifest) {
    return caught_code([&] { parse_manifest(manifest_text(manifest), "toy"); });
}

TEST(Manifest, SurvivesTheWayThroughText) {
    Manifest back = parse_manifest(manifest_text(example()), "toy");
    EXPECT_EQ(back.digest.size(), 32u);
    back.digest.clear();
    EXPECT_EQ(back, example());
}

TEST(Manifest, RefusesBlocksWhoseBytesOverflow) {
    for (const Codec codec : {Codec::none, Codec::zstd}) {
        Manifest manifest = example();
        manifest.codec = codec;
        manifest.samples = manifest.block_rows = 1 << 30;
        manifest.fields = {field("x", ElementType::u8, {(std::int64_t{1} << 34) + 1})};
        manifest.shards = {
            {"a.h5", 5000, manifest.samples, 0, std::string(32, 'a'), {{100, 1, 7}}}};
        EXPECT_EQ(code_of(manifest), "E222");
        manifest.fields[0].shape = {1};
        EXPECT_EQ(code_of(manifest), codec == Codec::none ? "E222" : "");
    }
}

TEST(Manifest, NoticesAnyFlippedBit) {
    const std::string text = manifest_text(example());
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string flipped = text;
        flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
        EXPECT_NE(caught_code([&] { parse_manifest(flipped, "toy"); }), "") << "at byte " << i;
    }
}

TEST(Manifest, NoticesThatItWasCutOrExtended) {
    const std::string text = manifest_text(example());
    EXPECT_EQ(caught_code([&] { parse_manifest(text.substr(0, text.size() / 2), "toy"); }), "E222");
    EXPECT_EQ(caught_code([&] { parse_manifest(text + "\n", "toy"); }), "E223");
}

TEST(Manifest, RefusesWhatContradictsItself) {
    const auto changed = [](auto change) {
        Manifest manifest = example();
        change(manifest);
        return code_of(manifest);
    };
    EXPECT_EQ(changed([](Manifest&) {}), "");
    EXPECT_EQ(changed([](Manifest& m) { m.samples = 41; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.samples = 0; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.block_rows = 0; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.block_rows = 24; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.shards[1].first_sample = 31; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.shards[1].name = "a.h5"; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.shards[0].index[0].offset = 4990; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.shards[0].index.pop_back(); }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.shards.pop_back(); }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.fields[0].shape = {0, 2}; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.fields[0].shape = {1ll << 40, 1ll << 40}; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.fields[0].name = "../images"; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.fields[1].class_names.pop_back(); }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.fields[2].columns.pop_back(); }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.fields[2].columns.clear(); }), "") << "as before";
    EXPECT_EQ(changed([](Manifest& m) { m.fields[0].columns = {"a", "b", "c"}; }), "E222");
    EXPECT_EQ(changed([](Manifest& m) { m.fields[2].columns[0].assign(most_column_bytes, 'm'); }),
              "E222");
}

TEST(Manifest, RefusesVersionsFromTheFuture) {
    std::string text = manifest_text(example());
    text.replace(text.find("\"format_version\": 1"), 19, "\"format_version\": 9");
    text.resize(text.find(",\n  \"digest\""));
    const auto error = caught([&] { parse_manifest(sealed(text), "toy"); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), "E305");
    EXPECT_STREQ(error->what(), "'toy' has format 9");
}

TEST(ReadManifestText, SaysWhatIsMissing) {
    const test::TempDir folder;
    EXPECT_EQ(caught_code([&] { read_manifest_text(folder / "nowhere"); }), "E201");
    EXPECT_EQ(caught_code([&] { read_manifest_text(folder.path()); }), "E216");
    EXPECT_EQ(caught_code([&] { read_manifest_text(folder.file("file", "x")); }), "E216");
}

TEST(Codecs, AreReadAndWritten) {
    for (const Codec codec : {Codec::none, Codec::deflate, Codec::lz4, Codec::zstd})
        EXPECT_EQ(parse_codec(codec_name(codec)), codec);
    EXPECT_EQ(caught_code([] { parse_codec("gzip"); }), "E103");
}

}  // namespace
}  // namespace lockstep
