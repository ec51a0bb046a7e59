// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::error_of;
using test::label_of;
using testing::ElementsAre;
using testing::HasSubstr;

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

class CifarSource : public testing::Test {
  protected:
    test::TempDir folder_;
};

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

TEST_F(CifarSource, FindsTheFolderThatTheArchiveHas) {
    folder_.file("cifar-10-batches-bin/test_batch.bin", record({'\0'}, 't'));
    EXPECT_EQ(open_cifar10({folder_.path()}, "test")->samples(), 1u);
    EXPECT_EQ(error_of([&] { open_cifar10({folder_.path()}, "train"); }).code(), "E201");
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

TEST_F(CifarSource, NamesWhatIsWrong) {
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
}

}  // namespace
}  // namespace lockstep
