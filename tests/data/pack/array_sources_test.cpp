// SPDX-License-Identifier: Apache-2.0
// Files of arrays: IDX, CIFAR's records of bytes, NumPy's files and archives.
#include "data/samples.hpp"
#include "rows.hpp"
#include "support/made_up_program.hpp"
#include "support/unit.hpp"

namespace lockstep {
namespace {

using test::error_of;
using test::label_of;
using test::npy_text;
using test::values_of;

class IdxSource : public InFolder {
  protected:
    // The error of opening these contents as images and labels.
    Error error_of(const std::string& images, const std::string& labels) {
        const auto a = folder_.file("images", images), b = folder_.file("labels", labels);
        return test::error_of([&] { open_idx(a, b); });
    }

    test::Samples samples_ = test::make_samples(20);
    std::string images_ = test::images_text(samples_), labels_ = test::labels_text(samples_);
};

TEST_F(IdxSource, GivesEachRow) {
    const auto source = open_idx(folder_.file("images", images_), folder_.file("labels", labels_));
    ASSERT_EQ(source->samples(), 20u);
    EXPECT_THAT(source->fields()[0].shape, ElementsAre(1, 4, 4));
    EXPECT_EQ(source->fields()[1].type, ElementType::i64);
    for (std::uint64_t i = 0; i < 20; ++i) {
        EXPECT_EQ(test::bytes_in(values_of<char>(*source, 0, i)), samples_.images[i]);
        EXPECT_EQ(label_of(*source, 1, i), samples_.labels[i]);
    }
}

TEST_F(IdxSource, ReadsFourDimensionsAsChannelsOrInALayoutThatRowsFit) {
    const auto open = [&](const test::Samples& samples, ImageLayout layout) {
        return open_images(folder_.file("images", test::images_text(samples)),
                           folder_.file("labels", test::labels_text(samples)),
                           layout);
    };
    const auto samples = test::make_samples(2, 1, {3, 2, 4, {}, {}});
    for (const ImageLayout layout : {ImageLayout::unstated, ImageLayout::chw})
        EXPECT_THAT(open(samples, layout)->fields()[0].shape, ElementsAre(3, 2, 4));
    const auto turned = open(samples, ImageLayout::hwc);
    EXPECT_THAT(turned->fields()[0].shape, ElementsAre(4, 3, 2));
    const auto image = values_of<char>(*turned, 0, 1);
    EXPECT_EQ(image[0], samples.images[1][0]);
    EXPECT_EQ(image[1], samples.images[1][4]);
    EXPECT_EQ(caught([&] { open(samples_, ImageLayout::hwc); })->code(), "E235");
}

TEST_F(IdxSource, ReadsGzipAsThePlainFileUnlessItIsDamaged) {
    test::write_gzip(folder_ / "images.gz", images_);
    test::write_gzip(folder_ / "labels.gz", labels_);
    const auto zipped = open_idx(folder_ / "images.gz", folder_ / "labels.gz");
    const auto plain = open_idx(folder_.file("images", images_), folder_.file("labels", labels_));
    EXPECT_EQ(zipped->fingerprint(), plain->fingerprint());
    const auto open = [&] { open_idx(folder_ / "images.gz", folder_ / "labels.gz"); };
    fs::resize_file(folder_ / "images.gz", fs::file_size(folder_ / "images.gz") - 20);
    EXPECT_EQ(caught_code(open), "E214");
    test::write_gzip(folder_ / "images.gz", images_);
    test::overwrite(folder_ / "images.gz", 40, "\x55\xaa\x55\xaa");
    EXPECT_EQ(caught_code(open), "E214");
}

TEST_F(IdxSource, NamesWhatIsWrong) {
    EXPECT_EQ(error_of(images_, labels_).code(), "none");
    EXPECT_THAT(error_of("text", labels_).why(), HasSubstr("begins with 74657874"));
    EXPECT_EQ(error_of("<html>", labels_).why(), "it begins like a web page");
    EXPECT_THAT(error_of("", labels_).why(), HasSubstr("ends within its header"));
    EXPECT_THAT(error_of(images_.substr(0, images_.size() - 1), labels_).why(),
                HasSubstr("need 320 bytes; it has 319"));
    EXPECT_THAT(error_of(images_ + "x", labels_).why(), HasSubstr("more than 320"));
    EXPECT_THAT(error_of(labels_, images_).fix(), StartsWith("give --images /"));
    EXPECT_THAT(error_of(images_, images_).fix(), HasSubstr("the file of their labels"));
    EXPECT_EQ(error_of(images_, test::labels_text(test::make_samples(19))).code(), "E209");
    const auto images = folder_.file("images", images_);
    EXPECT_EQ(caught_code([&] { open_idx(images, folder_ / "none"); }), "E201");
    EXPECT_EQ(caught_code([&] { open_idx(folder_.path(), images); }), "E402");
    const std::string huge = test::idx_text({0xffffffff, 0xffff, 0xff}, "abc");
    EXPECT_EQ(error_of(huge, labels_).code(), "E214");
    const std::string large = test::idx_text({60'000, 2'000, 2'000}, "abc");
    EXPECT_THAT(error_of(large, labels_).why(), HasSubstr("it has 3"));
    EXPECT_EQ(error_of(test::idx_text({20, 0, 4}, ""), labels_).code(), "E214");
}

// One record: its labels, and pixels that begin with `first`.
std::string record(const std::string& labels, char first) {
    std::string text = labels + std::string(3072, 'p');
    text[labels.size()] = first;
    return text;
}

std::string lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "class" + std::to_string(i) + "\r\n";
    return text + "\n";
}

using CifarSource = InFolder;

TEST_F(CifarSource, ReadsTheBatchesOfASplit) {
    for (char batch = '1'; batch <= '5'; ++batch)
        folder_.file(std::string("data_batch_") + batch + ".bin",
                     record({'\x03'}, batch) + record({'\x09'}, 'z'));
    folder_.file("test_batch.bin", record({'\0'}, 't'));
    folder_.file("batches.meta.txt", lines(10));
    const auto train = open_cifar10({folder_.path()}, "train");
    EXPECT_EQ(train->samples(), 10u);
    EXPECT_THAT(train->fields()[0].shape, ElementsAre(3, 32, 32));
    EXPECT_EQ(train->fields()[1].class_names.at(9), "class9");
    for (std::uint64_t batch = 0; batch < 5; ++batch) {
        EXPECT_EQ(values_of<char>(*train, 0, 2 * batch)[0], static_cast<char>('1' + batch));
        EXPECT_EQ(values_of<char>(*train, 0, 2 * batch)[3071], 'p');
        EXPECT_EQ(label_of(*train, 1, 2 * batch), 3);
        EXPECT_EQ(label_of(*train, 1, 2 * batch + 1), 9);
    }
    EXPECT_EQ(open_cifar10({folder_.path()}, "test")->samples(), 1u);
    EXPECT_EQ(open_cifar10({folder_ / "test_batch.bin"}, "train")->samples(), 1u);
}

TEST_F(CifarSource, ReadsBothLabelsOfCifar100) {
    folder_.file("train.bin", record("\x13\x63", 'a') + record(std::string(2, '\0'), 'b'));
    folder_.file("fine_label_names.txt", lines(100));
    folder_.file("coarse_label_names.txt", lines(20));
    const auto source = open_cifar100({folder_.path()}, "train");
    EXPECT_EQ(source->fields()[1].name, "labels");
    EXPECT_EQ(source->fields()[2].name, "coarse_labels");
    EXPECT_EQ(label_of(*source, 1, 0), 99);
    EXPECT_EQ(label_of(*source, 2, 0), 19);
    EXPECT_EQ(values_of<char>(*source, 0, 1)[0], 'b');
    EXPECT_EQ(source->fields()[1].class_names.size(), 100u);
    EXPECT_EQ(source->fields()[2].class_names.size(), 20u);
}

TEST_F(CifarSource, NamesWhatIsWrongAndFindsTheFolderThatTheArchiveHas) {
    const auto why = [&](const std::string& content) {
        const auto path = folder_.file("test_batch.bin", content);
        return error_of([&] { open_cifar10({path}, "test"); }).why();
    };
    EXPECT_THAT(why(""), HasSubstr("0 bytes are no multiple of 3,073"));
    EXPECT_THAT(why(record({'\0'}, 'a').substr(1)), HasSubstr("3,072 bytes"));
    EXPECT_THAT(why(record({'\0'}, 'a') + record({'\x0a'}, 'a')),
                HasSubstr("record 1 has the labels 10; there are 10"));
    folder_.file("batches.meta.txt", lines(9));
    EXPECT_THAT(why(record({'\0'}, 'a')), HasSubstr("9 lines"));
    folder_.file("cifar-10-batches-bin/test_batch.bin", record({'\0'}, 't'));
    EXPECT_EQ(open_cifar10({folder_.path()}, "test")->samples(), 1u);
    EXPECT_EQ(error_of([&] { open_cifar10({folder_.path()}, "train"); }).code(), "E201");
}

class NpySource : public InFolder {
  protected:
    std::unique_ptr<RowSource> open(const std::string& field,
                                    const std::string& content,
                                    ImageLayout layout = ImageLayout::unstated) {
        return open_npy({{field, folder_.file("x.npy", content).string()}}, layout);
    }
    Error error(const std::string& content, const std::string& field = "features") {
        return error_of([&] { open(field, content); });
    }
    // A file with this dictionary as its header, and four bytes of data.
    Error error_of_header(const std::string& dictionary) {
        return error(test::npy_of(dictionary, "abcd"));
    }
};

TEST_F(NpySource, ReadsEveryTypeAsItIs) {
    const auto features = open("features", npy_text<float>(ElementType::f32, {2, 2}, {1, 2, 3, 4}));
    EXPECT_THAT(features->fields()[0].shape, ElementsAre(2));
    EXPECT_THAT(values_of<float>(*features, 0, 1), ElementsAre(3, 4));
    const auto doubles = open("targets", npy_text<double>(ElementType::f64, {2}, {0.1, 0.2}));
    EXPECT_THAT(doubles->fields()[0].shape, ElementsAre());
    EXPECT_THAT(values_of<double>(*doubles, 0, 1), ElementsAre(0.2));
    const auto whole = open("ids", npy_text<std::int32_t>(ElementType::i32, {3}, {7, 8, -9}));
    EXPECT_EQ(whole->fields()[0].type, ElementType::i32);
    EXPECT_THAT(values_of<std::int32_t>(*whole, 0, 2), ElementsAre(-9));
}

TEST_F(NpySource, WidensLabels) {
    const auto small = open("labels", npy_text<std::uint8_t>(ElementType::u8, {3}, {0, 255, 2}));
    EXPECT_EQ(small->fields()[0].type, ElementType::i64);
    EXPECT_EQ(label_of(*small, 0, 1), 255);
    const auto middle =
        open("fine_labels", npy_text<std::int32_t>(ElementType::i32, {2, 1}, {5, -6}));
    EXPECT_EQ(label_of(*middle, 0, 1), -6);
    EXPECT_THAT(error(npy_text<float>(ElementType::f32, {1}, {1}), "labels").why(),
                HasSubstr("one whole number each"));
    EXPECT_THAT(error(npy_text<std::int64_t>(ElementType::i64, {1, 2, 1}, {1, 2}), "labels").why(),
                HasSubstr("i64 [2, 1]"));
}

TEST_F(NpySource, PutsChannelsFirst) {
    const std::string grey = npy_text<std::uint8_t>(ElementType::u8, {1, 2, 2}, {1, 2, 3, 4});
    EXPECT_THAT(open("images", grey)->fields()[0].shape, ElementsAre(1, 2, 2));
    std::vector<std::uint8_t> pixels(5 * 2 * 3);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
    const std::string colour = npy_text(ElementType::u8, {1, 5, 2, 3}, pixels);
    EXPECT_EQ(error(colour, "images").code(), "E106");
    const std::vector<std::uint8_t> many(32 * 32 * 13);
    EXPECT_EQ(error(npy_text(ElementType::u8, {1, 32, 32, 13}, many), "images").code(), "E106");
    const auto source = open("images", colour, ImageLayout::hwc);
    EXPECT_THAT(source->fields()[0].shape, ElementsAre(3, 5, 2));
    const auto planes = values_of<std::uint8_t>(*source, 0, 0);
    for (std::size_t c = 0; c < 3; ++c)
        for (std::size_t p = 0; p < 10; ++p) EXPECT_EQ(planes[c * 10 + p], p * 3 + c);
    EXPECT_THAT(open("images", colour, ImageLayout::chw)->fields()[0].shape, ElementsAre(5, 2, 3));
    EXPECT_THAT(error(npy_text<std::uint8_t>(ElementType::u8, {4}, {1, 2, 3, 4}), "images").why(),
                HasSubstr("images have 2 or 3"));
}

TEST_F(NpySource, RefusesALayoutThatRowsDoNotFit) {
    const std::string picture =
        npy_text<std::uint8_t>(ElementType::u8, {8, 7, 3}, std::vector<std::uint8_t>(168));
    const Error one = error_of([&] { open("images", picture, ImageLayout::hwc); });
    EXPECT_EQ(one.code(), "E235");
    EXPECT_THAT(one.why(), HasSubstr("[7, 3]; all of it is [8, 7, 3]: a file holds one sample"));
    EXPECT_THAT(one.fix(), HasSubstr("n.save(o,"));
    const std::string gray =
        npy_text<std::uint8_t>(ElementType::u8, {5, 8, 8}, std::vector<std::uint8_t>(320));
    const Error other = error_of([&] { open("images", gray, ImageLayout::chw); });
    EXPECT_EQ(other.code(), "E235");
    EXPECT_THAT(other.fix(), HasSubstr("else leave --layout away"));
    EXPECT_EQ(error_of([&] { open("pixels", gray, ImageLayout::chw); }).code(), "E106");
}

TEST_F(NpySource, ReadsVersions2And3) {
    for (const char version : {'\x02', '\x03'}) {
        const std::string text =
            test::npy_of("{'shape': (2,), 'fortran_order': False, 'descr': '|u1'}", "ab", version);
        EXPECT_THAT(values_of<std::uint8_t>(*open("x", text), 0, 1), ElementsAre('b'));
    }
}

TEST_F(NpySource, NamesWhatIsWrong) {
    const std::string good = npy_text<float>(ElementType::f32, {2}, {1, 2});
    EXPECT_EQ(error(good).code(), "none");
    EXPECT_THAT(error(good.substr(0, good.size() - 1)).why(), HasSubstr("need 8 bytes; it has 7"));
    EXPECT_THAT(error(good + "x").why(), HasSubstr("it has 9"));
    EXPECT_THAT(error(good.substr(0, 30)).why(), HasSubstr("ends within its header"));
    EXPECT_THAT(error("").why(), HasSubstr("ends within its header"));
    EXPECT_THAT(error("PKZIP and so on").why(), HasSubstr("does not begin as NPY files do"));
    const Error zipped = error("PK\x03\x04 and so on");
    EXPECT_EQ(zipped.why(), "it is no zip archive, or its end is missing");
    EXPECT_THAT(zipped.fix(), HasSubstr("make or download it again"));
    std::string newer = good;
    newer[6] = 9;
    EXPECT_THAT(error(newer).why(), HasSubstr("version 9"));
}

TEST_F(NpySource, RefusesHeadersThatItCannotPack) {
    const auto why = [&](const std::string& dictionary) {
        const Error error = error_of_header(dictionary);
        EXPECT_EQ(error.code(), "E214") << dictionary;
        return error.why();
    };
    const auto with = [](const std::string& descr, const std::string& order, const std::string& s) {
        return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + s + ", }\n";
    };
    EXPECT_EQ(error_of_header(with("'<f4'", "False", "(1,)")).code(), "none");
    EXPECT_THAT(why(with("'<c8'", "False", "(1,)")), HasSubstr("'<c8'"));
    EXPECT_THAT(why(with("'<f16'", "False", "(1,)")), HasSubstr("'<f16'"));
    EXPECT_THAT(why(with("'<U3'", "False", "(1,)")), HasSubstr("'<U3'"));
    EXPECT_THAT(error_of_header(with("'|O'", "False", "(1,)")).fix(), HasSubstr("x.astype(str)"));
    EXPECT_THAT(why(with("'<i3'", "False", "(1,)")), HasSubstr("'<i3'"));
    EXPECT_THAT(why(with("'<f4'", "True", "(1,)")), HasSubstr("Fortran order"));
    EXPECT_THAT(why(with("[('a', '<f4')]", "False", "(1,)")), HasSubstr("structures"));
    EXPECT_THAT(why(with("'<f4'", "False", "()")), HasSubstr("single value"));
    EXPECT_THAT(why(with("'<f4'", "False", "(0, 4)")), HasSubstr("no or too many"));
    EXPECT_THAT(why(with("'<f4'", "False", "(99999999999, 99999999999)")), HasSubstr("too many"));
    EXPECT_THAT(why(with("'<f4'", "False", "(1 2)")), HasSubstr("')' is missing"));
    EXPECT_THAT(why(with("'<f4'", "Maybe", "(1,)")), HasSubstr("neither True nor False"));
    EXPECT_THAT(why("{'descr': '<f4'}"), HasSubstr("are needed"));
    EXPECT_THAT(why("{'descr': '<f4', 'descr': '<f4'}"), HasSubstr("unexpected 'descr'"));
    EXPECT_THAT(why("{'evil': 1}"), HasSubstr("unexpected 'evil'"));
    EXPECT_THAT(why("{'descr': '<f4"), HasSubstr("text is missing"));
    EXPECT_THAT(why(std::string(200, '{')), HasSubstr("makes no sense"));
}

TEST_F(NpySource, WantsTheSameNumberOfEach) {
    const auto a = folder_.file("a", npy_text<float>(ElementType::f32, {2}, {1, 2})).string();
    const auto b = folder_.file("b", npy_text<float>(ElementType::f32, {1}, {1})).string();
    const Error error = error_of([&] { open_npy({{"x", a}, {"y", b}}); });
    EXPECT_EQ(error.code(), "E209");
    EXPECT_THAT(error.what(), HasSubstr("2 x but 1 y"));
    EXPECT_EQ(error_of([&] { open_npy({{"x", a}, {"x", a}}); }).code(), "E103");
    EXPECT_EQ(error_of([&] { open_npy({{"x", folder_.path() / "none"}}); }).code(), "E201");
    EXPECT_EQ(error_of([&] { open_npy({{"x", folder_.path().string()}}); }).code(), "E402");
}

TEST_F(NpySource, IsChosenByTheFirstBytes) {
    const auto samples = test::make_samples(3);
    const auto images = folder_.file(
        "i.npy", npy_text<char>(ElementType::u8, {3, 4, 4}, std::vector<char>(48, 'x')));
    const auto labels = folder_.file("l.npy", npy_text<char>(ElementType::u8, {3}, {0, 1, 2}));
    EXPECT_EQ(open_images(images, labels, ImageLayout::unstated)->samples(), 3u);
    const auto idx_images = folder_.file("i.idx", test::images_text(samples));
    const auto idx_labels = folder_.file("l.idx", test::labels_text(samples));
    EXPECT_EQ(open_images(idx_images, idx_labels, ImageLayout::unstated)->samples(), 3u);
    EXPECT_THAT(error_of([&] { open_images(images, idx_labels, ImageLayout::unstated); }).what(),
                HasSubstr("l.idx"));
}

TEST_F(NpySource, NoticesAFileThatShrinks) {
    const auto source = open("x", npy_text<float>(ElementType::f32, {2}, {1, 2}));
    fs::resize_file(folder_ / "x.npy", fs::file_size(folder_ / "x.npy") - 1);
    EXPECT_THAT(error_of([&] { values_of<float>(*source, 0, 1); }).why(), HasSubstr("1 more are"));
    EXPECT_EQ(error_of([&] { source->fingerprint(); }).code(), "E214");
}

TEST(NamedInput, IsANameAndAPlace) {
    EXPECT_EQ(parse_named_input("npy", "a_b-1=/x=y").place, "/x=y");
    for (const char* bad : {"", "x", "=x", "x=", "a b=c", "../x=c"})
        EXPECT_EQ(error_of([&] { parse_named_input("npy", bad); }).code(), "E103") << bad;
}

// Stored as it is; data_advice_test.cpp reads what NumPy deflates.
TEST_F(NpySource, ReadsAnArrayOfAnArchive) {
    const std::string zip = folder_.file(
        "m.npz",
        test::zip_of({{"x.npy", npy_text<float>(ElementType::f32, {2, 2}, {1, 2, 3, 4})},
                      {"y.npy", npy_text<std::int32_t>(ElementType::i32, {2}, {5, 6})}},
                     ""));
    const auto rows = open_npy({{"features", zip + ":x"}, {"labels", zip + ":y"}});
    EXPECT_THAT(values_of<float>(*rows, 0, 1), ElementsAre(3, 4));
    EXPECT_EQ(label_of(*rows, 1, 0), 5);
    for (const char* name : {"", ":z"}) {
        const Error error = error_of([&] { open_npy({{"labels", zip + name}}); });
        EXPECT_EQ(error.code(), std::string("E214"));
        EXPECT_THAT(error.why(), HasSubstr("its arrays are x <f4 [2, 2]; y <i4 [2]"));
        EXPECT_THAT(error.fix(), HasSubstr("--npy labels=" + zip + ":x"));
    }
    const std::string cut = folder_.file("cut.npz", read_file(zip).substr(0, 200));
    EXPECT_EQ(error_of([&] { open_npy({{"labels", cut + ":y"}}); }).code(), std::string("E214"));
}

}  // namespace
}  // namespace lockstep
