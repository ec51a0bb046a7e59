// SPDX-License-Identifier: Apache-2.0
// From input through a data set and back: nothing changes on the way.
#include "lockstep/data/sources.hpp"

#include "lockstep/data/check.hpp"
#include "lockstep/data/pack.hpp"

#include "data/samples.hpp"
#include "pictures.hpp"
#include "rows.hpp"
#include "support/unit.hpp"

#include <thread>

#include <fmt/format.h>

namespace lockstep {
namespace {

using test::error_of;
using test::npy_text;

template <class T>
std::vector<T> numbers(std::size_t count, std::uint64_t seed, std::uint64_t below) {
    CounterRandom random(Purpose::test, {seed});
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(random.below(below));
    return values;
}

class RoundTrip : public InFolder {
  protected:
    static constexpr std::uint64_t count = 203;

    // One NPY file of each kind that a data set can hold.
    std::vector<NamedInput> write_inputs() {
        using enum ElementType;
        texts_ = {
            {"images", npy_text(u8, {count, 3, 5, 4}, numbers<std::uint8_t>(count * 60, 1, 256))},
            {"masks", npy_text(u8, {count, 5, 4}, numbers<std::uint8_t>(count * 20, 2, 3))},
            {"labels", npy_text(i64, {count}, numbers<std::int64_t>(count, 3, 5))},
            {"features", npy_text(f32, {count, 7}, numbers<float>(count * 7, 4, 1000))},
            {"targets", npy_text(f64, {count}, numbers<double>(count, 5, 1u << 30))},
            {"boxes", npy_text(i32, {count, 2, 4}, numbers<std::int32_t>(count * 8, 6, 99))}};
        std::vector<NamedInput> inputs;
        for (const auto& [name, text] : texts_)
            inputs.push_back({name, folder_.file(name + ".npy", text).string()});
        return inputs;
    }

    fs::path pack(const RowSource& source, const std::string& name, Codec codec = Codec::none) {
        const PackOptions options{.output = folder_ / name,
                                  .codec = codec,
                                  .shards = 3,
                                  .block_rows = 16,
                                  .shuffle_seed = {}};
        return pack_dataset(source, options).path;
    }

    static std::unique_ptr<RowSource> synthetic(SynthKind kind) {
        return make_synthetic({.kind = kind, .samples = 60, .size = 8, .classes = 3});
    }

    std::map<std::string, std::string> texts_;
};

TEST_F(RoundTrip, KeepsEveryTypeWithEveryCodec) {
    const auto source = open_npy(write_inputs());
    for (const Codec codec : {Codec::none, Codec::deflate, Codec::lz4, Codec::zstd}) {
        const std::string name(codec_name(codec));
        const auto index = test::open_index(pack(*source, name, codec));
        EXPECT_THAT(verify_dataset(index->path()), ElementsAre());
        export_dataset(index, {folder_ / (name + "-npy"), {}});
        for (const auto& [field, text] : texts_)
            EXPECT_EQ(content_of(folder_ / (name + "-npy") / (field + ".npy")), text) << field;
    }
}

TEST_F(RoundTrip, GivesAnEqualDataSetAgain) {
    const auto index = test::open_index(pack(*open_npy(write_inputs()), "first"));
    export_dataset(index, {folder_ / "npy", {}});
    std::vector<NamedInput> inputs;
    for (const Field& field : index->fields())
        inputs.push_back({field.name, (folder_ / "npy" / (field.name + ".npy")).string()});
    fs::create_directory(folder_ / "again");
    const auto again = test::open_index(pack(*open_npy(inputs), "again/first"));
    EXPECT_EQ(again->manifest(), index->manifest());
}

TEST_F(RoundTrip, ExportsTheSamplesAskedFor) {
    const auto index = test::open_index(pack(*open_npy(write_inputs()), "x"));
    export_dataset(index, {folder_ / "some", {202, 0, 17, 18, 19, 0}});
    const InputFile file(folder_ / "some/labels.npy");
    const NpyHeader header = read_npy_header(file);
    ASSERT_THAT(header.shape, ElementsAre(6));
    std::vector<std::int64_t> labels(6);
    file.read(header.data_offset, std::as_writable_bytes(std::span(labels)));
    const auto all = numbers<std::int64_t>(count, 3, 5);
    EXPECT_THAT(labels, ElementsAre(all[202], all[0], all[17], all[18], all[19], all[0]));
}

TEST_F(RoundTrip, DescribesFieldsOfAnyType) {
    const auto index = test::open_index(pack(*open_npy(write_inputs()), "x"));
    const std::string text = inspect_data(index->path());
    for (const char* line : {"\nmasks  u8 [203, 5, 4]  ",
                             "\nfeatures  f32 [203, 7]  ",
                             "\ntargets  f64 [203]  ",
                             "\nboxes  i32 [203, 2, 4]  "})
        EXPECT_THAT(text, HasSubstr(line));
    EXPECT_EQ(index->field("masks").layout, "HW");
}

TEST_F(RoundTrip, StreamsMasksAndTargets) {
    for (const SynthKind kind : {SynthKind::segmentation, SynthKind::regression}) {
        const auto source = synthetic(kind);
        const auto index = test::open_index(pack(*source, "synth"));
        BatchStream batches(index, {.lanes = 2, .batch = 7});
        std::uint64_t seen = 0;
        while (seen < 60) {
            const Batch batch = batches.next();
            for (std::size_t row = 0; row < batch.sample_ids.size(); ++row, ++seen)
                for (std::size_t f = 0; f < 2; ++f) {
                    const std::size_t bytes = index->fields()[f].bytes_per_sample();
                    const auto expected =
                        test::values_of<std::byte>(*source, f, batch.sample_ids[row]);
                    EXPECT_TRUE(
                        std::ranges::equal(batch.fields[f].subspan(row * bytes, bytes), expected));
                }
        }
        fs::remove_all(folder_ / "synth");
    }
}

TEST_F(RoundTrip, ExportLeavesNothingBehindWhenItFails) {
    const fs::path packed = pack(*synthetic(SynthKind::classes), "synth");
    const auto index = test::open_index(packed);
    const fs::path out = folder_ / "out";
    EXPECT_EQ(error_of([&] { export_dataset(index, {out, {60}}); }).code(), "E102");
    EXPECT_THROW(
        export_dataset(
            index, {out, {}}, [](std::uint64_t) { throw std::runtime_error("cancelled"); }),
        std::runtime_error);
    test::damage_block(*index, 0, index->stored_blocks(0).size() - 1);
    EXPECT_EQ(error_of([&] { export_dataset(index, {out, {}}); }).code(), "E213");
    for (const auto& entry : fs::directory_iterator(folder_.path()))
        EXPECT_EQ(entry.path(), packed) << "is left over";
    fs::create_directory(out);
    EXPECT_EQ(error_of([&] { export_dataset(index, {out, {}}); }).code(), "E407");
}

TEST_F(RoundTrip, PacksImagesFromAFolder) {
    for (int i = 0; i < 40; ++i)
        folder_.file(fmt::format("photos/{}/{:02}.png", i % 3, i),
                     test::png_text(test::picture(6 + static_cast<std::uint32_t>(i % 5), 9, 3)));
    const auto source = open_folder(folder_ / "photos", {.images = {.resize = ImageSize{8, 8}}});
    const auto index = test::open_index(pack(*source, "x"));
    const auto all = test::read_all(index);
    ASSERT_EQ(all.size(), 40u);
    for (const auto& [row, sample] : all) {
        EXPECT_EQ(sample.image, test::bytes_in(test::values_of<char>(*source, 0, row)));
        EXPECT_EQ(sample.label, test::label_of(*source, 1, row));
    }
}

// What threads do to each other shows under ThreadSanitizer, or as wrong rows.
TEST_F(RoundTrip, SourcesServeSeveralThreads) {
    for (int i = 0; i < 8; ++i)
        folder_.file(fmt::format("photos/a/{}.{}", i, i % 2 == 0 ? "png" : "jpg"),
                     i % 2 == 0 ? test::png_text(test::picture(20, 20, 3))
                                : test::jpeg_text(test::picture(20, 20, 3), JCS_UNKNOWN, 50 + i));
    std::vector<std::unique_ptr<RowSource>> sources;
    sources.push_back(open_folder(folder_ / "photos"));
    sources.push_back(open_npy(write_inputs()));
    sources.push_back(make_synthetic({.samples = 8, .size = 8}));
    sources.push_back(open_csv(folder_.file("t.csv", "1,a\n2,b\n3,a\n4,c\n"), {.label = "2"}));
    for (const auto& source : sources) {
        const auto rows = std::min<std::uint64_t>(source->samples(), 8);
        std::vector<std::vector<std::byte>> expected;
        for (std::uint64_t row = 0; row < rows; ++row)
            expected.push_back(test::values_of<std::byte>(*source, 0, row));
        std::vector<int> wrong(3);
        std::vector<std::thread> threads;
        for (int& count_wrong : wrong)
            threads.emplace_back([&] {
                for (std::uint64_t i = 0; i < 10 * rows; ++i)
                    count_wrong +=
                        test::values_of<std::byte>(*source, 0, i % rows) != expected[i % rows];
            });
        for (std::thread& thread : threads) thread.join();
        EXPECT_THAT(wrong, ElementsAre(0, 0, 0));
    }
}

}  // namespace
}  // namespace lockstep
