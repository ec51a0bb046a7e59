// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/sources.hpp"

#include "data/samples.hpp"
#include "rows.hpp"
#include "support/unit.hpp"

namespace lockstep {
namespace {

using test::error_of;
using test::label_of;

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
        EXPECT_EQ(test::bytes_in(test::values_of<char>(*source, 0, i)), samples_.images[i]);
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
    const auto image = test::values_of<char>(*turned, 0, 1);
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
        EXPECT_EQ(test::values_of<char>(*train, 0, 2 * batch)[0], static_cast<char>('1' + batch));
        EXPECT_EQ(test::values_of<char>(*train, 0, 2 * batch)[3071], 'p');
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
    EXPECT_EQ(test::values_of<char>(*source, 0, 1)[0], 'b');
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

}  // namespace
}  // namespace lockstep
