// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"

#include "lockstep/core/hash.hpp"

#include "support/unit.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

using namespace std::string_literals;
using namespace test;

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
        names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
}

unsigned mode_of(const fs::path& path) {
    struct stat facts {};
    EXPECT_EQ(::stat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 07777;
}

bool is_open(int fd) {
    return ::fcntl(fd, F_GETFD) >= 0;
}

struct Files : testing::Test {
    const TempDir folder;
};

TEST(UniqueFd, ClosesWhatItOwnsOnceUnlessItLetsGo) {
    UniqueFd first(::open("/dev/null", O_RDONLY));
    const int number = first.value();
    UniqueFd second(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_TRUE(is_open(number));
    second = UniqueFd();
    EXPECT_FALSE(is_open(number));
    UniqueFd other(::open("/dev/null", O_RDONLY));
    const UniqueFd released(other.release());
    EXPECT_FALSE(other);
    EXPECT_TRUE(is_open(released.value()));
}

TEST_F(Files, ReadFileReturnsTheWholeContentUnlessItIsTooLargeMissingOrAFolder) {
    const std::string content("a\0b\n", 4);
    EXPECT_EQ(read_file(folder.file("f", content)), content);
    EXPECT_EQ(read_file(folder.file("empty", "")), "");
    EXPECT_EQ(caught_code([&] { read_file(folder.file("f", "12345"), 4); }), "E406");
    EXPECT_EQ(caught_code([&] { read_file(folder / "none"); }), "E201");
    EXPECT_EQ(caught_code([&] { read_file(folder.path()); }), "E402");
}

TEST_F(Files, OpenForReadingWaitsForNoPipeAndTouchesNoDevice) {
    const fs::path pipe = folder / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_THAT(caught_text([&] { open_for_reading(pipe); }), has("E206: ", "a pipe (FIFO)"));
    EXPECT_EQ(caught_code([] { open_for_reading("/dev/zero"); }), "E206");
}

TEST_F(Files, OpenForWritingWaitsForNoPipeAndFollowsNoLink) {
    const fs::path pipe = folder / "pipe", link = folder / "link", file = folder.file("f", "x");
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    fs::create_symlink(file, link);
    for (const int flags : {O_WRONLY | O_CREAT | O_APPEND, O_RDWR | O_CREAT, O_WRONLY | O_TRUNC}) {
        EXPECT_FALSE(open_for_writing(pipe, flags));
        EXPECT_EQ(system_error("open", pipe, errno).code(), "E206");
        EXPECT_FALSE(open_for_writing(link, flags));
        EXPECT_EQ(errno, ELOOP);
        EXPECT_FALSE(open_for_writing(folder.path(), flags));
    }
    EXPECT_EQ(content_of(file), "x");
    EXPECT_TRUE(open_for_writing(folder / "new", O_WRONLY | O_CREAT));
    EXPECT_EQ(mode_of(folder / "new"), 0600u);
}

TEST(ReadFile, IsNotAllowedWithoutPermission) {
    constexpr uid_t nobody = 65534;
    const TempDir folder;
    const auto path = folder.file("f", "x");
    const auto hidden = folder.file("closed/below/f", "x");
    ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
    ASSERT_EQ(::chmod(path.c_str(), 0), 0);
    ASSERT_EQ(::chmod((folder / "closed").c_str(), 0), 0);
    const auto user = ::geteuid();
    if (user == 0) {
        EXPECT_EQ(::seteuid(nobody), 0);  // root may read everything
    }
    const auto code = caught_code([&] { read_file(path); });
    const auto text = caught_text([&] { read_file(hidden); });
    EXPECT_EQ(::seteuid(user), 0);
    EXPECT_EQ(code, "E202");
    EXPECT_THAT(text, HasSubstr("may not enter '" + (folder / "closed").string() + "'\n"));
    ASSERT_EQ(::chmod((folder / "closed").c_str(), 0700), 0);
}

TEST_F(Files, ReadAtStopsAtTheEndOfTheFile) {
    const auto path = folder.file("f", "0123456789");
    const auto fd = open_for_reading(path);
    std::array<std::byte, 6> out{};
    EXPECT_EQ(read_at(fd.value(), out, 0, path), 6u);
    EXPECT_EQ(static_cast<char>(out[5]), '5');
    EXPECT_EQ(read_at(fd.value(), out, 7, path), 3u);
    EXPECT_EQ(static_cast<char>(out[2]), '9');
    EXPECT_EQ(read_at(fd.value(), out, 10, path), 0u);
    EXPECT_EQ(read_at(fd.value(), out, 1000, path), 0u);
}

TEST(WriteAll, SaysWhenTheDiskIsFull) {
    const UniqueFd full(::open("/dev/full", O_WRONLY));
    ASSERT_TRUE(full);
    EXPECT_EQ(caught_code([&] { write_all(full.value(), bytes_of("x"), "/dev/full"); }), "E405");
}

TEST_F(Files, WriteFileAtomicallyReplacesTheContentAndLeavesNothingBehindWhenItFails) {
    write_file_atomically(folder / "f", "one");
    write_file_atomically(folder / "f", "two");
    EXPECT_EQ(content_of(folder / "f"), "two");
    EXPECT_EQ(mode_of(folder / "f"), 0600u);
    EXPECT_THAT(names_in(folder.path()), ElementsAre("f"));
    const auto before = fs::current_path();
    fs::current_path(folder.path());
    EXPECT_NO_THROW(write_file_atomically("f", "x"));
    fs::current_path(before);
    EXPECT_EQ(content_of(folder / "f"), "x");
    fs::remove(folder / "f");
    fs::create_directory(folder / "taken");
    folder.file("taken/inside", "x");
    EXPECT_EQ(caught_code([&] { write_file_atomically(folder / "taken", "x"); }), "E402");
    EXPECT_THAT(names_in(folder.path()), ElementsAre("taken"));
    EXPECT_EQ(caught_code([&] { write_file_atomically(folder / "none/f", "x"); }), "E401");
}

TEST_F(Files, WriteFileAtomicallyReplacesWhatSomebodyPlanted) {
    const fs::path file = folder.file("f", "old"), link = folder / "link", pipe = folder / "pipe";
    fs::create_symlink(file, link);
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    for (const fs::path& planted : {link, pipe}) {
        write_file_atomically(planted, "new");
        EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(planted)));
        EXPECT_EQ(content_of(planted), "new");
    }
    EXPECT_EQ(content_of(file), "old");
}

TEST_F(Files, WriteNamedFileWritesWhereALinkLeads) {
    fs::create_directories(folder / "a/b");
    folder.file("a/x", "old");
    fs::create_symlink("../x", folder / "a/b/near");
    fs::create_symlink(folder / "a/b/near", folder / "far");
    write_named_file(folder / "far", "new");
    EXPECT_EQ(content_of(folder / "a/x"), "new");
    EXPECT_TRUE(fs::is_symlink(folder / "far") && fs::is_symlink(folder / "a/b/near"));
    fs::create_symlink("a/none", folder / "dangling");
    write_named_file(folder / "dangling", "made");
    EXPECT_EQ(content_of(folder / "a/none"), "made");
    EXPECT_THAT(names_in(folder / "a"), ElementsAre("b", "none", "x"));
    fs::create_symlink("loop", folder / "loop");
    EXPECT_EQ(caught_code([&] { write_named_file(folder / "loop", "x"); }), "E402");
    EXPECT_THAT(names_in(folder.path()), ElementsAre("a", "dangling", "far", "loop"));
}

TEST_F(Files, WriteNamedFileWritesIntoAPipeThatSomebodyReads) {
    const fs::path pipe = folder / "pipe", link = folder / "link";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    fs::create_symlink("pipe", link);
    for (const fs::path& place : {pipe, link}) {
        EXPECT_THAT(caught_text([&] { write_named_file(place, "x"); }),
                    has("E206: ", "nobody reads"));
        const UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
        write_named_file(place, "content");
        std::string got(16, '\0');
        got.resize(static_cast<std::size_t>(::read(reader.value(), got.data(), got.size())));
        EXPECT_EQ(got, "content");
    }
    EXPECT_TRUE(fs::is_fifo(pipe) && fs::is_symlink(link));
    EXPECT_THAT(names_in(folder.path()), ElementsAre("link", "pipe"));
}

/// Replaces the file again and again until it is killed.
[[noreturn]] void write_for_ever(const fs::path& path, int ready) {
    const std::array contents{std::string(100'000, 'a'), std::string(300'000, 'b')};
    for (std::size_t i = 0;; ++i) {
        write_file_atomically(path, contents[i % 2]);
        if (i == 1 && ::write(ready, "r", 1) != 1) ::_exit(1);
    }
}

TEST_F(Files, WriteFileAtomicallyIsWholeWheneverItsWriterIsKilled) {
    const auto path = folder / "f";
    for (unsigned round = 0; round < 12; ++round) {
        std::array<int, 2> pipe{};
        ASSERT_EQ(::pipe(pipe.data()), 0);
        const auto child = ::fork();
        if (child == 0) write_for_ever(path, pipe[1]);
        char ready = 0;
        ASSERT_EQ(::read(pipe[0], &ready, 1), 1);
        ::usleep(round * 1700);
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        ::close(pipe[0]);
        ::close(pipe[1]);
        const auto content = read_file(path);
        const bool is_a = content == std::string(100'000, 'a');
        EXPECT_TRUE(is_a || content == std::string(300'000, 'b')) << content.size();
    }
}

TEST_F(Files, MakeDirectoriesMakesWhatIsMissingForTheOwnerOrWhomTheUmaskLetsIn) {
    make_directories(folder / "a/b/c");
    EXPECT_NO_THROW(make_directories(folder / "a/b/c"));
    EXPECT_NO_THROW(make_directories(folder / "a/d/"));
    EXPECT_TRUE(fs::is_directory(folder / "a/d"));
    const mode_t before = ::umask(022);
    make_directories(folder / "open/b", FolderAccess::umask);
    ::umask(before);
    for (const char* own : {"a", "a/b/c"}) EXPECT_EQ(mode_of(folder / own), 0700u) << own;
    for (const char* open : {"open", "open/b"}) EXPECT_EQ(mode_of(folder / open), 0755u) << open;
}

TEST_F(Files, MakeDirectoriesSaysWhatIsInTheWay) {
    folder.file("f", "x");
    EXPECT_EQ(caught_code([&] { make_directories(folder / "f"); }), "E401");
    EXPECT_EQ(caught_code([&] { make_directories(folder / "f/below"); }), "E401");
    EXPECT_EQ(caught_code([] { make_directories("/proc/none"); }), "E401");
    const fs::path long_name = folder / std::string(300, 'x');
    for (const std::string& said : {caught_text([&] { make_directories(long_name); }),
                                    caught_text([&] { write_file_atomically(long_name, "x"); })})
        EXPECT_THAT(said, has("E401", "fix: give a shorter name"));
}

TEST_F(Files, MakeOwnFolderRefusesALinkAndNamesIt) {
    make_own_folder(folder / "target/inside");
    fs::create_directory_symlink(folder / "target", folder / "link");
    EXPECT_THAT(caught_text([&] { make_own_folder(folder / "link"); }),
                AllOf(HasSubstr("E220: "), HasSubstr((folder / "target").string())));
    EXPECT_NO_THROW(make_own_folder(folder / "link/inside")) << "what leads to it may be a link";
    EXPECT_NO_THROW(check_no_link(folder / "none"));
    fs::create_directory_symlink(folder / "nowhere", folder / "dangling");
    EXPECT_EQ(caught_code([&] { make_own_folder(folder / "dangling"); }), "E401");
}

TEST_F(Files, FreeBytesAreSomethingAndUnlimitedIfTheFileSystemDoesNotSay) {
    EXPECT_GT(free_bytes(folder.path()), 0u);
    EXPECT_EQ(free_bytes("/proc"), std::numeric_limits<std::uint64_t>::max());
    EXPECT_NE(caught_code([&] { static_cast<void>(free_bytes(folder / "none")); }), "");
}

class PathBeneathTest : public InFolder {
  protected:
    PathBeneathTest() {
        folder_.file("set/a.h5", "x");
        folder_.file("set/sub/b.h5", "x");
        folder_.file("secret", "x");
        folder_.file("set-evil/c.h5", "x");
    }

    std::string code_of(const std::string& name) const {
        return caught_code([&] { static_cast<void>(path_beneath(folder_ / "set", name)); });
    }
};

TEST_F(PathBeneathTest, FindsFilesInsideTheFolder) {
    EXPECT_EQ(path_beneath(folder_ / "set", "a.h5"), folder_ / "set/a.h5");
    EXPECT_EQ(path_beneath(folder_ / "set", "sub/b.h5"), folder_ / "set/sub/b.h5");
    EXPECT_EQ(code_of("not-yet-written.h5"), "");
    EXPECT_EQ(content_of(path_beneath(folder_ / "set/", "a.h5")), "x");
}

TEST_F(PathBeneathTest, TakesARelativeFolder) {
    const auto before = fs::current_path();
    fs::current_path(folder_ / "set");
    EXPECT_NO_THROW(static_cast<void>(path_beneath(".", "a.h5")));
    EXPECT_NO_THROW(static_cast<void>(path_beneath("sub", "b.h5")));
    EXPECT_NO_THROW(static_cast<void>(path_beneath("../set", "a.h5")));
    fs::current_path(before);
}

TEST_F(PathBeneathTest, RefusesWaysOut) {
    for (const auto* name : {"", "../secret", "sub/../../secret", "/etc/passwd", "..", "."}) {
        EXPECT_EQ(code_of(name), "E220") << name;
    }
    EXPECT_EQ(code_of(folder_ / "set/a.h5"), "E220");
    EXPECT_EQ(code_of(std::string("a.h5\0.txt", 9)), "E220") << "a zero byte";
}

TEST_F(PathBeneathTest, RefusesLinksOutAndWhatIsNoFile) {
    fs::create_symlink(folder_ / "secret", folder_ / "set/link");
    fs::create_directory_symlink(folder_.path(), folder_ / "set/up");
    fs::create_directory_symlink(folder_ / "set-evil", folder_ / "set/evil");
    fs::create_symlink("a.h5", folder_ / "set/inner");
    ASSERT_EQ(::mkfifo((folder_ / "set/pipe").c_str(), 0600), 0);
    for (const char* name : {"link", "up/secret", "evil/c.h5", "pipe", "sub"})
        EXPECT_EQ(code_of(name), "E220") << name;
    EXPECT_EQ(code_of("inner"), "");
}

TEST_F(Files, FileStampIsAnotherAfterAnyChange) {
    const fs::path path = folder.file("a", "abc");
    const FileStamp first = file_stamp(path);
    EXPECT_EQ(file_stamp(path), first);
    EXPECT_EQ(first.bytes, 3u);
    fs::last_write_time(path, fs::last_write_time(path) + std::chrono::nanoseconds(1000));
    EXPECT_EQ(file_stamp(path).time_ns, first.time_ns + 1000);
    const auto time = fs::last_write_time(path);
    const FileStamp second = file_stamp(path);
    folder.file("b", "abc");
    fs::rename(folder / "b", path);
    fs::last_write_time(path, time);
    EXPECT_EQ(file_stamp(path).time_ns, second.time_ns);
    EXPECT_NE(file_stamp(path), second) << "another file";
    EXPECT_EQ(caught_code([&] { file_stamp(folder / "none"); }), "E201");
}

std::string zip_with(const std::string& name) {
    return "PK\x03\x04"s + std::string(22, '\0') + static_cast<char>(name.size()) +
           std::string(3, '\0') + name + "content";
}

TEST(FileStart, TellsArchivesByTheirFirstFileAndIsToldInWords) {
    EXPECT_EQ(file_kind(zip_with("w.npy")), FileKind::numpy_archive);
    EXPECT_EQ(file_kind(zip_with("resnet/data.pkl")), FileKind::torch_save);
    EXPECT_EQ(file_kind(zip_with("resnet/data/0")), FileKind::torch_script);
    EXPECT_EQ(file_kind(zip_with("readme.txt")), FileKind::zip);
    EXPECT_EQ(file_kind("PK\x03\x04"), FileKind::zip);
    EXPECT_EQ(file_kind(std::string(8, '\0')), FileKind::zeros);
    EXPECT_EQ(file_start_text(""), "it is empty");
    EXPECT_EQ(file_start_text("<html>"), "it begins like a web page");
    EXPECT_EQ(file_start_text("\x01\xff"s), "it begins with the bytes 01 ff");
}

}  // namespace
}  // namespace lockstep
