// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/content.hpp"

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "support/unit.hpp"

#include <chrono>
#include <functional>

#include <fmt/format.h>

namespace lockstep {
namespace {

class Content : public InFolder {
  protected:
    std::shared_ptr<const DatasetIndex> open(const std::string& folder,
                                             RowLayout layout = RowLayout::unstated) const {
        const std::vector<FieldMapping> fields{{"images", "/x/data", layout}, {"labels", "/y"}};
        return std::make_shared<const DatasetIndex>(DatasetIndex::open(folder_ / folder, fields));
    }
    // Files of 70 and 41 samples, of which `change` may change the second.
    void write(const std::string& folder,
               const std::function<void(std::vector<test::ForeignDataset>&)>& change = {}) const {
        fs::create_directory(folder_ / folder);
        for (const std::uint64_t rows : {70, 41}) {
            auto content = test::images_and_labels(rows, rows);
            if (rows == 41 && change) change(content);
            test::write_foreign(folder_ / folder / fmt::format("{}.h5", 100 - rows), content);
        }
    }
    static std::string digest(const std::shared_ptr<const DatasetIndex>& index, int parts = 1) {
        std::vector<std::int64_t> all = content_hashes(index, 0, parts);
        for (int part = 1; part < parts; ++part) {
            const auto more = content_hashes(index, part, parts);
            for (std::size_t i = 0; i < all.size(); ++i) all[i] += more[i];
        }
        return content_digest(*index, all);
    }
};

TEST_F(Content, IsTheSameInAnyNumberOfParts) {
    write("a");
    const auto index = open("a");
    EXPECT_EQ(content_bytes(*index), 111u * (15 + 8));
    for (const int parts : {2, 3, 7, 50}) EXPECT_EQ(digest(index, parts), digest(index)) << parts;
}

TEST_F(Content, IsReadOfWholeChunks) {
    fs::create_directory(folder_ / "a");
    auto data = test::images_and_labels(100'000, 1);
    data[0].chunk = {100'000, 3, 5};
    test::write_foreign(folder_ / "a/a.h5", data);
    const auto index = open("a");
    check_reading_memory(*index, 8u << 20);
    const Error error = test::error_of([&] { check_reading_memory(*index, 2u << 20); });
    EXPECT_EQ(error.code(), "E106");
    EXPECT_NE(error.text().find("allow more: --data-memory "), std::string::npos) << error.text();
}

TEST_F(Content, GoesNotByNamesAndTimesButByWhatTheBytesMean) {
    write("a");
    fs::create_directory(folder_ / "b");
    fs::copy_file(folder_ / "a/30.h5", folder_ / "b/x.h5");
    fs::copy_file(folder_ / "a/59.h5", folder_ / "b/y.h5");
    EXPECT_NE(open("a")->digest(), open("b")->digest());
    EXPECT_EQ(digest(open("a")), digest(open("b")));
    test::ForeignDataset images{.size = {4, 5, 6, 3}, .bytes = test::random_bytes(360, 1)};
    fs::create_directory(folder_ / "c");
    test::write_foreign(folder_ / "c/1.h5", {images, test::images_and_labels(4, 1)[1]});
    EXPECT_NE(digest(open("c", RowLayout::hwc)), digest(open("c", RowLayout::chw)));
}

TEST_F(Content, IsAnotherAfterOneByteOrInAnotherOrder) {
    write("a");
    const std::string first = digest(open("a"));
    write("b", [](auto& content) { content[0].bytes[600] ^= std::byte{1}; });
    EXPECT_NE(digest(open("b")), first);
    write("c", [](auto& content) { content[1].bytes[8] ^= std::byte{1}; });
    EXPECT_NE(digest(open("c")), first);
    fs::create_directory(folder_ / "d");
    fs::copy_file(folder_ / "a/30.h5", folder_ / "d/2.h5");
    fs::copy_file(folder_ / "a/59.h5", folder_ / "d/1.h5");
    EXPECT_NE(digest(open("d")), first);
}

const std::vector<FieldMapping> watched_fields{{"images", "/x/data"}, {"labels", "/y"}};

class WatchedFiles : public InFolder {
  protected:
    WatchedFiles() {
        for (const char* name : {"a.h5", "b.h5"})
            test::write_foreign(folder_ / name, test::images_and_labels(40, 1));
    }

    std::shared_ptr<const DatasetIndex> open() const {
        return std::make_shared<const DatasetIndex>(
            DatasetIndex::open(folder_.path(), watched_fields));
    }
    // As another rank has it.
    static std::shared_ptr<const DatasetIndex> sent(const DatasetIndex& index) {
        return std::make_shared<const DatasetIndex>(DatasetIndex::deserialize(index.serialize()));
    }
    void move_time(const fs::path& path) const {
        fs::last_write_time(path, fs::last_write_time(path) + std::chrono::nanoseconds(1000));
    }

    const fs::path b_ = folder_ / "b.h5";
};

TEST_F(WatchedFiles, AreFineAsTheyWereAndWatchedFromTheirOpeningOn) {
    const auto index = open();
    FileWatch(index).check();
    FileWatch(sent(*index)).check();
    move_time(b_);
    EXPECT_THAT(caught_text([&] { FileWatch(index).check(); }), HasSubstr("b.h5"));
    FileWatch(sent(*index)).check();  // which nobody here opened
}

TEST_F(WatchedFiles, ThatChangeAreNamedWithWhatIsNew) {
    const auto watch = FileWatch(open());
    move_time(b_);
    const std::string written = caught_text([&] { watch.check(); });
    EXPECT_THAT(written, has("error E251: '" + b_.string() + "' changed", "it was written again"));
    fs::resize_file(b_, fs::file_size(b_) + 1);
    EXPECT_THAT(caught_text([&] { watch.check(); }), HasSubstr("bytes, and has"));
    fs::remove(b_);
    EXPECT_THAT(caught_text([&] { watch.check(); }), HasSubstr("it is gone"));
}

TEST_F(WatchedFiles, ThatAreReplacedAreNamedWhateverTheirTime) {
    const auto watch = FileWatch(open());
    fs::copy_file(b_, folder_ / "copy");
    fs::last_write_time(folder_ / "copy", fs::last_write_time(b_));
    fs::rename(folder_ / "copy", b_);
    EXPECT_THAT(caught_text([&] { watch.check(); }), HasSubstr("another file has its name"));
}

TEST(PackedFiles, NeedNoWatchForTheyHaveHashes) {
    const TempDir folder;
    const test::IdxPack options = test::options_for(folder, test::make_samples(100), "toy");
    pack_dataset(options);
    const auto index = test::open_index(options.output);
    fs::remove(index->path() / index->shards()[0].name);
    FileWatch(index).check();
}

}  // namespace
}  // namespace lockstep
