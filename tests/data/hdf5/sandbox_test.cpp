// SPDX-License-Identifier: Apache-2.0
// What the child process that looks at untrusted files may do to this one: nothing.
#include "hdf5/sandbox.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "data/foreign_files.hpp"
#include "format/index_columns.hpp"
#include "hdf5/h5.hpp"
#include "hdf5/look.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>

namespace lockstep {
namespace {

// LOCKSTEP_H5PROBE for a scope: a program, or a shell script in `folder`.
class Helper {
  public:
    explicit Helper(const std::string& path) : before_(std::getenv("LOCKSTEP_H5PROBE")) {
        ::setenv("LOCKSTEP_H5PROBE", path.c_str(), 1);
    }
    Helper(const TempDir& folder, const std::string& script)
        : Helper(folder.file("helper", "#!/bin/sh\n" + script + "\n")) {
        fs::permissions(folder / "helper", fs::perms::owner_all);
    }
    ~Helper() { ::setenv("LOCKSTEP_H5PROBE", before_.c_str(), 1); }
    Helper(const Helper&) = delete;
    Helper& operator=(const Helper&) = delete;

  private:
    std::string before_;
};

class Sandboxed : public InFolder {
  protected:
    Sandboxed() { test::write_foreign(request_.path, test::images_and_labels(50, 1)); }
    // What comes of a helper that is this shell script instead.
    Error error_with(const std::string& script, SandboxLimits limits = {}) {
        const Helper helper(folder_, script);
        return test::error_of([&] { Sandbox(limits).look(request_); });
    }
    // A script that sends a frame of this kind, which announces so many bytes, and `bytes`.
    std::string answer(FrameKind kind, std::size_t announced, std::string_view bytes) {
        const Frame frame{.kind = kind, .bytes = announced};
        std::string all(reinterpret_cast<const char*>(&frame), sizeof frame);
        folder_.file("answer", all.append(bytes));
        return fmt::format("cat {} >&0", (folder_ / "answer").string());
    }
    FileRequest request_{folder_ / "a.h5", {"/x/data", "/y", "/none"}};
};

TEST_F(Sandboxed, ChildSeesWhatThisProcessWouldSee) {
    Sandbox sandbox;
    FileFacts here = look_at_file(request_), there = sandbox.look(request_);
    EXPECT_EQ(there, here);
    EXPECT_EQ(there.datasets.at(2).layout, StorageLayout::missing);
    EXPECT_THAT(sandbox.list(request_.path).datasets, ElementsAre("/x/data", "/y"));
    EXPECT_EQ(sandbox.look(request_), here) << "one child answers many requests";
    EXPECT_EQ(facts_from(to_bytes(here), 3), here);
    EXPECT_EQ(request_from(to_bytes(request_)), request_);
    const RowsRequest rows{request_.path, "/y", ElementType::i64, 1, 2, 16};
    EXPECT_EQ(rows_request_from(to_bytes(rows)), rows);
}

TEST_F(Sandboxed, ChildReadsRowsOfAnyChunks) {
    auto datasets = test::images_and_labels(50, 1);
    datasets[0].chunk = {8, 2, 4};
    datasets[0].filters = {{H5Z_FILTER_SHUFFLE, {1}}, {H5Z_FILTER_DEFLATE, {3}}};
    test::write_foreign(request_.path, datasets);
    Sandbox sandbox;
    for (const std::uint64_t first : {0u, 7u, 41u}) {
        std::vector<std::byte> rows(9 * 15);
        sandbox.read({request_.path, "/x/data", ElementType::u8, first, 9, rows.size()}, rows);
        const std::span wanted = std::span(datasets[0].bytes).subspan(first * 15, rows.size());
        EXPECT_TRUE(std::ranges::equal(rows, wanted)) << first;
        sandbox.look(request_);
    }
    std::vector<float> labels(2);
    sandbox.read({request_.path, "/y", ElementType::f32, 3, 2, 8},
                 std::as_writable_bytes(std::span(labels)));
    EXPECT_THAT(labels, ElementsAre(4, 5)) << "and converts them";
}

TEST_F(Sandboxed, AFileOfANewerFormatIsToldAsSuch) {
    constexpr std::size_t version_at = 8;
    std::string bytes = content_of(request_.path);
    bytes[version_at] = 4;
    write_file_atomically(request_.path, bytes);
    const Error error = test::error_of([&] { Sandbox().look(request_); });
    EXPECT_EQ(error.code(), "E205");
    EXPECT_THAT(error.why(), HasSubstr("its superblock has version 4, which this program's HDF5"));
    EXPECT_THAT(error.fix(), HasSubstr("libver='earliest'"));
    bytes[version_at] = 0;
    bytes[version_at + 5] = 3;  // no size of addresses
    write_file_atomically(request_.path, bytes);
    EXPECT_THAT(caught([&] { Sandbox().look(request_); })->text(),
                Not(HasSubstr("superblock has")));
}

TEST_F(Sandboxed, RowsThatCannotBeReadAreRefused) {
    Sandbox sandbox;
    std::vector<std::byte> rows(15);
    const auto why = [&](const RowsRequest& request) {
        const auto error =
            caught([&] { sandbox.read(request, std::span(rows).first(request.bytes)); });
        EXPECT_TRUE(error && error->code() == "E213");
        return error ? error->why() : "";
    };
    const RowsRequest good{request_.path, "/x/data", ElementType::u8, 49, 1, 15};
    RowsRequest bad = good;
    bad.first = 50;
    EXPECT_THAT(why(bad), HasSubstr("since it was opened"));
    bad.first = ~std::uint64_t{0};
    EXPECT_THAT(why(bad), HasSubstr("since it was opened"));
    bad = good;
    bad.bytes = 14;
    EXPECT_THAT(why(bad), HasSubstr("since it was opened"));
    bad = good;
    bad.dataset = "/none";
    EXPECT_THAT(why(bad), HasSubstr("none"));
    sandbox.read(good, rows);
}

TEST_F(Sandboxed, WhatHappensToTheChildWhileItReadsIsAnError) {
    const auto code_with = [&](const std::string& script, SandboxLimits limits = {}) {
        const Helper helper(folder_, script);
        std::vector<std::byte> rows(15);
        return caught_code([&] {
            Sandbox(limits).read({request_.path, "/x/data", ElementType::u8, 0, 1, 15}, rows);
        });
    };
    EXPECT_EQ(code_with("kill -SEGV $$"), "E231");
    EXPECT_EQ(code_with("exec sleep 60", {.wall_s = 0.1}), "E232");
    const std::string rows(16, 'x'), then_sleep = "; exec sleep 60";
    EXPECT_EQ(code_with(answer(FrameKind::read, 15, rows.substr(1)) + then_sleep), "");
    EXPECT_EQ(code_with(answer(FrameKind::read, 16, rows) + then_sleep), "E233");
    EXPECT_EQ(code_with(answer(FrameKind::look, 15, rows.substr(1)) + then_sleep), "E233");
    EXPECT_EQ(code_with(answer(FrameKind::read, 15, rows.substr(2)) + "; kill -SEGV $$"), "E231");
}

TEST_F(Sandboxed, ChildMayTakeLongerOverManyChunks) {
    const auto cpu_s_for = [&](double chunks) {
        const fs::path seen = folder_ / "seen";
        const Helper helper(folder_, fmt::format("head -c {} > {}", sizeof(Frame), seen.string()));
        std::vector<std::byte> rows(15);
        const RowsRequest request{request_.path, "/x/data", ElementType::u8, 0, 1, 15};
        EXPECT_EQ(caught_code([&] { Sandbox().read(request, rows, chunks); }), "E233");
        Frame frame;
        std::memcpy(&frame, content_of(seen).data(), sizeof frame);
        return frame.cpu_s;
    };
    EXPECT_LT(cpu_s_for(1), 5u);
    EXPECT_GT(cpu_s_for(300'000), 30u);
}

TEST_F(Sandboxed, LeavesNoChildBehind) {
    {
        Sandbox sandbox;
        sandbox.look(request_);
    }
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
    error_with("kill -SEGV $$");
    error_with("exec sleep 60", {.wall_s = 0.05});
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST_F(Sandboxed, CrashesBecomeErrorsThatNameTheFile) {
    for (const char* script : {"kill -SEGV $$", "kill -ABRT $$", "kill -BUS $$", "exit 70"}) {
        const Error error = error_with(script);
        EXPECT_EQ(error.code(), "E231") << script;
        EXPECT_THAT(error.text(), HasSubstr("a.h5"));
    }
    const Error memory = error_with(fmt::format("exit {}", exit_out_of_memory));
    EXPECT_EQ(memory.code(), "E231");
    EXPECT_THAT(memory.text(), HasSubstr("its limit is 4 GiB of addresses"));
    const Helper helper("/nowhere/lockstep-h5probe");
    const Error missing = test::error_of([&] { Sandbox().look(request_); });
    EXPECT_EQ(missing.code(), "E233");
    EXPECT_THAT(missing.text(), HasSubstr("/nowhere/lockstep-h5probe"));
}

TEST_F(Sandboxed, HangsEnd) {
    const double since = now_s();
    EXPECT_EQ(error_with("exec sleep 60", {.wall_s = 0.1}).code(), "E232");
    EXPECT_EQ(error_with("while :; do :; done", {.wall_s = 0.1}).code(), "E232");
    EXPECT_EQ(error_with("exec 0<&-; exec sleep 60", {.wall_s = 30}).code(), "E231")
        << "one that closes its end and goes on is not waited for";
    EXPECT_EQ(error_with("kill -XCPU $$").code(), "E232");
    EXPECT_LT(now_s() - since, 20);
}

TEST_F(Sandboxed, NonsenseIsSeenAsSuch) {
    EXPECT_EQ(error_with("exit 0").code(), "E233");
    EXPECT_EQ(error_with("head -c 4000 /dev/urandom >&0; exec sleep 60").code(), "E233");
    // The right beginning, then more bytes than any answer has.
    EXPECT_EQ(error_with("printf 'h5probe2' >&0; head -c 24 /dev/zero >&0; exec sleep 60").code(),
              "E233");
    const auto code_of = [&](std::size_t announced, std::string_view bytes) {
        return error_with(answer(FrameKind::look, announced, bytes) + "; exec sleep 60").code();
    };
    EXPECT_EQ(code_of(100, std::string(100, 'x')), "E233");
    EXPECT_EQ(code_of(most_frame_bytes + 1, ""), "E233");
    FileFacts other = look_at_file(request_);
    other.datasets.pop_back();
    const auto facts = to_bytes(other);
    EXPECT_EQ(code_of(facts.size(), {reinterpret_cast<const char*>(facts.data()), facts.size()}),
              "E233")
        << "facts about other data sets";
}

TEST_F(Sandboxed, FactsFromElsewhereNeverDoHarm) {
    const auto good = to_bytes(look_at_file(request_));
    const std::span content = std::span(good).first(good.size() - 8);
    CounterRandom random(Purpose::test, {5});
    for (int i = 0; i < 3000; ++i) {
        std::vector<std::byte> bad(content.begin(), content.end());
        if (i % 3 == 0) bad.resize(random.below(bad.size()));
        for (int flips = 0; flips < 4 && !bad.empty(); ++flips)
            bad[random.below(bad.size())] = static_cast<std::byte>(random.below(256));
        ByteWriter sealed_again;
        sealed_again.add(bad);
        const auto bytes = sealed_again.finish();
        const std::string code = caught_code([&] { facts_from(bytes, 3, 1000); });
        EXPECT_TRUE(code.empty() || code == "E230") << code;
    }
}

TEST(Facts, AboutOtherDataSetsThanAskedForTakeNoMemory) {
    // A column in equal steps has any number of chunks in 24 bytes.
    FileFacts facts;
    facts.datasets.resize(1);
    auto& chunks = facts.datasets[0].chunks;
    for (auto* column : {&chunks.offsets, &chunks.bytes, &chunks.skipped}) column->assign(1000, 1);
    facts.datasets.resize(10, facts.datasets[0]);
    const auto bytes = to_bytes(facts);
    EXPECT_LT(bytes.size(), 4000u);
    EXPECT_EQ(facts_from(bytes, 10), facts);
    EXPECT_EQ(caught_code([&] { facts_from(bytes, 1); }), "E230");
    EXPECT_EQ(caught_code([&] { facts_from(bytes, 11); }), "E230");
}

// A file of `chunks` chunks of one row of 64 bytes.
fs::path many_chunks(const TempDir& folder, std::uint64_t chunks, test::Format format) {
    return test::write_foreign(folder / fmt::format("{}.h5", chunks),
                               {{.size = {chunks, 64},
                                 .chunk = {1, 64},
                                 .bytes = test::random_bytes(chunks * 64, chunks),
                                 .encode = test::stored_raw}},
                               format);
}

double cpu_s() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// Looking, opening, and travelling: the best of three.
double cost_of(const fs::path& path) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
        const double since = cpu_s();
        look_at_file({path, {"/x/data"}});
        const DatasetIndex index = DatasetIndex::open_foreign({path}, {{"x", "/x/data"}});
        DatasetIndex::deserialize(index.serialize());
        best = std::min(best, cpu_s() - since);
    }
    return best;
}

TEST(ChunkIndex, WorkIsProportionalToTheNumberOfChunks) {
    const TempDir folder;
    for (const test::Format format : {test::Format::earliest, test::Format::newest}) {
        const fs::path few = many_chunks(folder, 3000, format);
        const fs::path many = many_chunks(folder, 24000, format);
        const auto reads = [](const fs::path& path) {
            const std::uint64_t before = h5::reads();
            look_at_file({path, {"/x/data"}});
            return static_cast<double>(h5::reads() - before);
        };
        EXPECT_LT(reads(many), 8.5 * reads(few) + 100);
        EXPECT_LT(reads(many), 24000 * 1.5) << "one for a chunk, and some for its index";
        // Eight times as many chunks: 8 if linear, 64 if each costs a walk over all.
        EXPECT_LT(cost_of(many), 30 * cost_of(few) + 0.01);
    }
}

TEST(ChunkIndex, ProbingFindsWhatTheLibraryQueriesSay) {
    const TempDir folder;
    for (const test::Format format : {test::Format::earliest, test::Format::newest}) {
        const fs::path path = many_chunks(folder, 300, format);
        const DatasetFacts facts = look_at_file({path, {"/x/data"}}).datasets[0];
        const h5::Handle file = h5::open_for_probing(path);
        const h5::Handle dataset(H5Dopen2(file.id(), "/x/data", H5P_DEFAULT), H5Dclose);
        EXPECT_EQ(h5::find_chunks(dataset, facts), facts.chunks);
        ASSERT_EQ(facts.chunks.offsets.size(), 300u);
        for (std::uint64_t i = 0; i < 300; ++i) {
            const hsize_t start[] = {i, 0};
            unsigned skipped = 0;
            haddr_t address = 0;
            hsize_t bytes = 0;
            ASSERT_GE(H5Dget_chunk_info_by_coord(dataset.id(), start, &skipped, &address, &bytes),
                      0);
            EXPECT_EQ(facts.chunks.offsets[i], address);
            EXPECT_EQ(facts.chunks.bytes[i], bytes);
            EXPECT_EQ(facts.chunks.skipped[i], skipped);
        }
    }
}

}  // namespace
}  // namespace lockstep
