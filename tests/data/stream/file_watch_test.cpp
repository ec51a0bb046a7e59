// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/content.hpp"

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "support/caught.hpp"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::caught_text;
using testing::HasSubstr;

const std::vector<FieldMapping> watched_fields{{"images", "/x/data"}, {"labels", "/y"}};

class WatchedFiles : public testing::Test {
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

    test::TempDir folder_;
    const fs::path b_ = folder_ / "b.h5";
};

TEST_F(WatchedFiles, AreFineAsTheyWere) {
    const auto index = open();
    FileWatch(index).check();
    FileWatch(sent(*index)).check();
}

TEST_F(WatchedFiles, ThatChangeAreNamedWithWhatIsNew) {
    const auto watch = FileWatch(open());
    move_time(b_);
    const std::string written = caught_text([&] { watch.check(); });
    EXPECT_THAT(written, HasSubstr("error E251: '" + b_.string() + "' changed"));
    EXPECT_THAT(written, HasSubstr("it was written again"));
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

TEST_F(WatchedFiles, AreWatchedFromTheirOpeningOn) {
    const auto index = open();
    move_time(b_);
    EXPECT_THAT(caught_text([&] { FileWatch(index).check(); }), HasSubstr("b.h5"));
    FileWatch(sent(*index)).check();  // which nobody here opened
}

TEST(PackedFiles, NeedNoWatchForTheyHaveHashes) {
    const test::TempDir folder;
    const PackOptions options = test::options_for(folder, test::make_samples(100), "toy");
    pack_dataset(options);
    const auto index = test::open_index(options.output);
    fs::remove(index->path() / index->shards()[0].name);
    FileWatch(index).check();
}

}  // namespace
}  // namespace lockstep
