// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/dataset_index.hpp"

#include "lockstep/data/manifest.hpp"

#include "data/stream/packed_samples.hpp"
#include "support/unit.hpp"

#include <tuple>

namespace lockstep {
namespace {

class Index : public test::PackedByCodec {
  protected:
    Index() : PackedByCodec(3, test::make_samples(100)) {}
    Error error() const {
        return test::error_of([&] { DatasetIndex::open(options_.output); });
    }
};

TEST_P(Index, KnowsFieldsSamplesAndBlocks) {
    const DatasetIndex index = DatasetIndex::open(options_.output);
    EXPECT_EQ(index.samples(), 100u);
    EXPECT_EQ(index.manifest(), manifest_);
    EXPECT_EQ(index.field("images").bytes_per_sample(), 16u);
    EXPECT_THAT(index.field("images").shape, ElementsAre(1, 4, 4));
    EXPECT_EQ(index.field("labels").classes(), 10);
    EXPECT_EQ(index.blocks(), row_blocks(100, 16));
    EXPECT_THAT(index.warnings(), IsEmpty());
    EXPECT_EQ(index.digest().size(), 32u);
    std::uint64_t next = 0;
    for (const StoredBlock& block : index.stored_blocks(0)) {
        EXPECT_EQ(block.first_row, next);
        EXPECT_TRUE(block.is_hashed);
        next += block.rows;
    }
    EXPECT_EQ(next, 100u);
}

TEST_P(Index, BlocksDoNotDependOnCodecOrShards) {
    test::IdxPack other = options_;
    other.output = folder_ / "other";
    other.codec = Codec::zstd;
    other.shards = 1;
    pack_dataset(other);
    EXPECT_EQ(DatasetIndex::open(other.output).blocks(),
              DatasetIndex::open(options_.output).blocks());
}

TEST_P(Index, NoticesBytesThatWereChangedOnTheWayAndSuggestsTheNearestField) {
    const DatasetIndex index = DatasetIndex::open(options_.output);
    const Error error = test::error_of([&] { static_cast<void>(index.field("image")); });
    EXPECT_EQ(error.code(), "E207");
    EXPECT_THAT(error.fix(), HasSubstr("images"));
    std::vector<std::byte> bytes = DatasetIndex::open(options_.output).serialize();
    EXPECT_EQ(caught_code([&] { DatasetIndex::deserialize(std::span(bytes).first(5)); }), "E230");
    EXPECT_EQ(caught_code([&] { DatasetIndex::deserialize(std::span(bytes).first(50)); }), "E230");
    bytes[100] ^= std::byte{1};
    EXPECT_EQ(caught_code([&] { DatasetIndex::deserialize(bytes); }), "E230");
}

TEST_P(Index, SaysHowMuchOfAShardIsThere) {
    const std::uint64_t half = manifest_.shards[1].bytes / 2;
    fs::resize_file(shard(1), half);
    EXPECT_EQ(error().code(), "E204");
    EXPECT_THAT(error().what(),
                HasSubstr(grouped(half) + " of " + grouped(manifest_.shards[1].bytes) + " bytes"));
    fs::resize_file(shard(1), 30);
    EXPECT_EQ(error().code(), "E204");
    fs::resize_file(shard(1), 0);
    EXPECT_EQ(error().code(), "E204");
}

TEST_P(Index, SaysWhatAFileIsThatIsNotHdf5) {
    folder_.file(fs::path("toy") / manifest_.shards[0].name, "PK\x03\x04 and so on");
    EXPECT_EQ(error().code(), "E203");
    EXPECT_THAT(error().why(), HasSubstr("zip"));
    folder_.file(fs::path("toy") / manifest_.shards[0].name, "abc");
    EXPECT_THAT(error().why(), HasSubstr("like text"));
}

TEST_P(Index, NoticesMissingAndExchangedShards) {
    fs::rename(shard(0), folder_ / "kept");
    EXPECT_EQ(error().code(), "E201");
    fs::copy_file(shard(1), shard(0));
    EXPECT_EQ(error().code(), "E208");
}

TEST_P(Index, NoticesShardsOfAnotherDataSet) {
    test::IdxPack other =
        test::options_for(folder_, test::make_samples(100, 2), "other", GetParam());
    other.shards = 3;
    other.name = "toy";
    pack_dataset(other);
    fs::copy_file(
        other.output / manifest_.shards[0].name, shard(0), fs::copy_options::overwrite_existing);
    EXPECT_EQ(error().code(), "E208");
    EXPECT_THAT(error().why(), HasSubstr("another data set"));
}

TEST_P(Index, RefusesPathsThatLeaveTheFolder) {
    const auto code_with_path = [&](const std::string& path) {
        test::rewrite_manifest(options_.output,
                               [&](Json& json) { json["shards"][0]["path"] = path; });
        return error().code();
    };
    folder_.file("outside.h5", "x");
    EXPECT_EQ(code_with_path("../outside.h5"), "E220");
    EXPECT_EQ(code_with_path((folder_ / "outside.h5").string()), "E220");
    EXPECT_EQ(code_with_path(""), "E220");
    fs::create_symlink("../outside.h5", options_.output / "link.h5");
    EXPECT_EQ(code_with_path("link.h5"), "E220");
    fs::create_directory(options_.output / "folder");
    EXPECT_EQ(code_with_path("folder"), "E220");
}

TEST_P(Index, NoticesAChangedManifest) {
    std::string text = content_of(options_.output / manifest_name);
    text.replace(text.find("\"split\": \"train\""), 16, "\"split\": \"trail\"");
    folder_.file("toy/manifest.json", text);
    EXPECT_EQ(error().code(), "E223");
}

TEST_P(Index, NoticesFieldsThatAreNotInTheShards) {
    // An index that does not match sends the reader to HDF5, which knows no such field.
    test::rewrite_manifest(options_.output, [](Json& json) {
        json["fields"][0]["name"] = "pixels";
        for (Json& shard : json["shards"]) {
            shard["index"][0]["field"] = "pixels";
            shard["index"][0]["xxh3_64"] = "0000000000000000";
        }
    });
    EXPECT_EQ(error().code(), "E207");
}

TEST_P(Index, NoticesShapesThatDiffer) {
    test::rewrite_manifest(options_.output, [](Json& json) {
        json["fields"][0]["shape"] = {1, 2, 8};
        json["shards"][2]["index"][0]["xxh3_64"] = "0000000000000000";
    });
    EXPECT_EQ(error().code(), "E208");
    EXPECT_THAT(error().why(), HasSubstr("[36, 1, 4, 4], not [36, 1, 2, 8]"));
}

TEST_P(Index, RefusesBlocksThatNoFileOrChunkHolds) {
    test::rewrite_manifest(
        options_.output, [](Json& json) { json["fields"][0]["shape"] = {std::int64_t{1} << 37}; });
    EXPECT_EQ(error().code(), "E222");
    EXPECT_THAT(error().why(), HasSubstr("blocks of 16 samples of field 'images' have more than"));
}

TEST_P(Index, BelievesNoBlockThatExpandsMoreThanItsCodecCan) {
    test::rewrite_manifest(options_.output, [](Json& json) {
        json["fields"][0]["shape"] = {1, 4096, 3000};
    });
    // Then the shard itself is asked.
    EXPECT_EQ(error().code(), GetParam() == Codec::none ? "E222" : "E208");
}

TEST_P(Index, FindsBlocksAgainWhenTheIndexIsStale) {
    test::overwrite(shard(1), manifest_.shards[1].index[0].offset + 8, "damage");
    const auto index = test::open_index(options_.output);
    ASSERT_EQ(index->warnings().size(), 1u);
    EXPECT_THAT(index->warnings()[0], has(manifest_.shards[1].name, "no hashes"));
    EXPECT_EQ(test::read_all(index), test::expected_content(samples_, options_));
    EXPECT_EQ(DatasetIndex::deserialize(index->serialize()), *index);
}

INSTANTIATE_TEST_SUITE_P(Codecs, Index, test::each_codec, test::name_of_codec);

Manifest example() {
    Manifest manifest{.name = "toy",
                      .split = "train",
                      .uuid = "00000000-0000-8000-8000-000000000001",
                      .writer = "test",
                      .row_order = "source",
                      .codec = Codec::lz4,
                      .samples = 40,
                      .block_rows = 16};
    manifest.fields = {
        {.name = "images", .shape = {3, 2, 2}, .mean = {0.1, 1.0 / 3, 1e-9}, .std = {0.5, 0.25, 2}},
        {.name = "labels",
         .type = ElementType::i64,
         .class_names = {"cat", "d\"og"},
         .class_counts = {30, 10}},
        {.name = "features",
         .type = ElementType::f32,
         .shape = {2},
         .columns = {"mass", "caf\xe9"}}};
    manifest.shards = {
        {"a.h5", 5000, 32, 0, std::string(32, 'a'), {{100, 2, 7}, {200, 2, 8}, {300, 2, 8}}},
        {"b.h5", 4000, 8, 32, std::string(32, 'b'), {{100, 1, 9}, {200, 1, ~0ull}, {300, 1, 8}}}};
    for (Shard& shard : manifest.shards)
        for (std::size_t f = 0; f < 3; ++f) shard.index[f].field = manifest.fields[f].name;
    return manifest;
}

std::string code_of(const Manifest& manifest) {
    return caught_code([&] { parse_manifest(manifest_text(manifest), "toy"); });
}

TEST(Manifest, SurvivesTheWayThroughTextUnlessItIsFromTheFuture) {
    Manifest back = parse_manifest(manifest_text(example()), "toy");
    EXPECT_EQ(back.digest.size(), 32u);
    back.digest.clear();
    EXPECT_EQ(back, example());
    std::string text = manifest_text(example());
    text.replace(text.find("\"format_version\": 1"), 19, "\"format_version\": 9");
    text.resize(text.find(",\n  \"digest\""));
    const Error error = test::error_of([&] { parse_manifest(sealed(text), "toy"); });
    EXPECT_EQ(error.code(), "E305");
    EXPECT_STREQ(error.what(), "'toy' has format 9");
}

TEST(Manifest, RefusesBlocksWhoseBytesOverflow) {
    for (const Codec codec : {Codec::none, Codec::zstd}) {
        Manifest manifest = example();
        manifest.codec = codec;
        manifest.samples = manifest.block_rows = 1 << 30;
        manifest.fields = {{.name = "x", .shape = {(std::int64_t{1} << 34) + 1}}};
        manifest.shards = {
            {"a.h5", 5000, manifest.samples, 0, std::string(32, 'a'), {{100, 1, 7, "x"}}}};
        EXPECT_EQ(code_of(manifest), "E222");
        manifest.fields[0].shape = {1};
        EXPECT_EQ(code_of(manifest), codec == Codec::none ? "E222" : "");
    }
}

TEST(Manifest, NoticesAnyFlippedBitAndThatItWasCutOrExtended) {
    const std::string text = manifest_text(example());
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string flipped = text;
        flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
        EXPECT_NE(caught_code([&] { parse_manifest(flipped, "toy"); }), "") << "at byte " << i;
    }
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

TEST(Manifest, RefusesFormsOfOtherTables) {
    const auto changed = [](auto change) {
        Manifest manifest = example();
        TableForm& form = manifest.fields[2].table;
        form = {
            .width = 3, .columns = {"kind"}, .categories = {{"a", "b"}}, .missing = Missing::mean};
        form.fills = {0.25, 0.75};
        manifest.fields[2].columns = {"kind=a", "kind=b"};
        change(form);
        if (code_of(manifest).empty()) {
            EXPECT_EQ(parse_manifest(manifest_text(manifest), "toy").fields, manifest.fields);
        }
        return code_of(manifest);
    };
    EXPECT_EQ(changed([](TableForm&) {}), "");
    EXPECT_EQ(changed([](TableForm& f) { f = {}; }), "") << "it needs none";
    EXPECT_EQ(changed([](TableForm& f) { f.categories[0] = {"b", "a"}; }), "E222");
    EXPECT_EQ(changed([](TableForm& f) { f.categories[0].push_back("c"); }), "E222");
    EXPECT_EQ(changed([](TableForm& f) { f.categories.push_back({}); }), "E222");
    EXPECT_EQ(changed([](TableForm& f) { f.columns.push_back("more"); }), "E222");
    EXPECT_EQ(changed([](TableForm& f) { f.fills.pop_back(); }), "E222");
    EXPECT_EQ(changed([](TableForm& f) { f.missing = Missing::drop; }), "E222") << "it fills none";
    EXPECT_EQ(changed([](TableForm& f) { f.encoding.assign(3 * most_column_bytes, 'x'); }), "E222");
}

TEST(ReadManifestText, SaysWhatIsMissingAndCodecsAreReadAndWritten) {
    const TempDir folder;
    EXPECT_EQ(caught_code([&] { read_manifest_text(folder / "nowhere"); }), "E201");
    EXPECT_EQ(caught_code([&] { read_manifest_text(folder.path()); }), "E216");
    EXPECT_EQ(caught_code([&] { read_manifest_text(folder.file("file", "x")); }), "E216");
    for (const Codec codec : {Codec::none, Codec::deflate, Codec::lz4, Codec::zstd})
        EXPECT_EQ(parse_codec(codec_name(codec)), codec);
    EXPECT_EQ(caught_code([] { parse_codec("gzip"); }), "E103");
}

Field field_with(const std::vector<std::uint64_t>& occurring,
                 const std::string& name = "labels",
                 std::vector<std::int64_t> shape = {}) {
    Field field{.name = name, .type = ElementType::i64, .shape = std::move(shape)};
    for (const std::uint64_t number : occurring) {
        field.class_counts.resize(std::max(field.class_counts.size(), number + 1));
        field.class_counts[number] = 3;
    }
    return field;
}

std::string masks_text(const std::vector<std::uint64_t>& occurring) {
    return unused_classes_text(field_with(occurring, "masks", {4, 4}));
}

TEST(ClassUse, SaysNothingWhereAllOccur) {
    EXPECT_EQ(unused_classes_text(field_with({0, 1, 2})), "");
    EXPECT_EQ(unused_classes_text(field_with({0, 3}, "tokens", {8})), "")
        << "a vocabulary has more";
    EXPECT_EQ(unused_classes_text({.name = "features", .shape = {3}}), "");
}

TEST(ClassUse, NamesWhatIsNotThereAndNumbersThatBeginAtOne) {
    EXPECT_EQ(unused_classes_text(field_with({0, 1, 2, 3, 5})),
              "labels: 1 of 6 classes does not occur: 4");
    Field named = field_with({1, 2});
    named.class_names = {"cat", "dog", "2"};
    EXPECT_EQ(unused_classes_text(named), "labels: 1 of 3 classes does not occur: 0 (cat)");
    EXPECT_THAT(unused_classes_text(field_with({1, 2, 3, 4})),
                has("1 of 5 classes does not occur: 0. If they are numbered from 1", "y = y - 1"));
}

TEST(ClassUse, ProposesNumbersWhereFewOccurAndKnowsWhatIsUsuallyVoid) {
    EXPECT_THAT(masks_text({0, 127, 255}),
                HasSubstr("masks: 253 of 256 classes do not occur: only 0, 127 and 255 do"));
    EXPECT_THAT(masks_text({0, 127, 255}), HasSubstr("m = numpy.searchsorted([0, 127, 255], m)"));
    std::vector<std::uint64_t> many;
    for (std::uint64_t i = 0; i < 30; ++i) many.push_back(3 * i);
    EXPECT_THAT(unused_classes_text(field_with(many)),
                has("27 and 20 more", "numpy.searchsorted(numpy.unique(y), y)"));
    EXPECT_THAT(masks_text({0, 1, 2, 255}),
                HasSubstr("255 looks like void: train --ignore-index 255 leaves it out"));
    EXPECT_THAT(masks_text({0, 255}), Not(HasSubstr("void"))) << "of two, 255 is what is there";
    EXPECT_THAT(unused_classes_text(field_with({0, 1, 255})), Not(HasSubstr("void")));
}

TEST(ClassUse, RefusesNumbersThatAreNoClasses) {
    const auto refused = [](const Field& field) {
        return caught_text([&] { check_class_numbers(field); });
    };
    EXPECT_THAT(refused(field_with({0, 1, 2, 999'999})),
                HasSubstr("E210: 'labels' has 1,000,000 classes, of which 4 occur"));
    EXPECT_THAT(refused(field_with({0, 999'999})), HasSubstr("searchsorted([0, 999999], y)"));
    EXPECT_EQ(refused(field_with({0, 9'999})), "") << "a warning is enough";
    EXPECT_EQ(refused(field_with({0, 50'000}, "tokens", {8})), "");
}

Field field_of(std::vector<std::int64_t> shape, const std::string& layout = "") {
    return {.name = "images", .shape = std::move(shape), .layout = layout};
}

TEST(Axes, AreThoseThatTrainingTakesAndGuessedOnlyWhereSizesLeaveNoQuestion) {
    EXPECT_EQ(axes_text(field_of({3, 8, 9})), "C 3, H 8, W 9");
    EXPECT_EQ(axes_text(field_of({3, 8, 9}, "CHW")), "C 3, H 8, W 9");
    EXPECT_EQ(axes_text(field_of({8, 9, 3}, "HWC")), "C 3, H 8, W 9 (stored H, W, C)");
    EXPECT_EQ(axes_text(field_of({8, 9})), "H 8, W 9");
    EXPECT_EQ(axes_text(field_of({8})), "");
    EXPECT_EQ(axes_text({.name = "boxes", .shape = {8, 4}}), "");
    EXPECT_EQ(axes_text({.name = "masks", .shape = {8, 9}, .layout = "HW"}), "H 8, W 9");
    for (const auto& [a, b, c] : {std::tuple{224, 224, 3},
                                  {32, 32, 13},
                                  {5, 2, 3},
                                  {16, 16, 13},
                                  {16, 16, 64},
                                  {480, 640, 200}})
        EXPECT_TRUE(may_have_channels_last({a, b, c})) << a << " " << b << " " << c;
    for (const auto& [a, b, c] : {std::tuple{3, 224, 224},
                                  {1, 28, 28},
                                  {13, 32, 32},
                                  {1, 28, 1},
                                  {4, 4, 4},
                                  {3, 480, 640},
                                  {64, 7, 7}})
        EXPECT_FALSE(may_have_channels_last({a, b, c})) << a << " " << b << " " << c;
}

}  // namespace
}  // namespace lockstep
