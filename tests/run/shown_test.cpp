// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"
#include "lockstep/run/memory.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/run_status.hpp"
#include "lockstep/run/text_table.hpp"

#include "support/unit.hpp"

#include <array>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace {

using Lines = std::vector<std::string>;

/// A sink that remembers, and a clock that the test turns.
struct Screen {
    Lines shown, said, recorded;
    double now = 1000;

    ProgressSink sink(bool is_live) {
        return {.is_live = is_live,
                .show = [this](std::string_view line) { shown.emplace_back(line); },
                .say = [this](std::string_view line) { said.emplace_back(line); },
                .record = [this](std::string_view line) { recorded.emplace_back(line); },
                .now_s = [this] { return now; }};
    }
};

class ProgressTest : public testing::Test {
  protected:
    Screen screen_;
};

TEST_F(ProgressTest, SaysAPlainLineEveryThirtySecondsAndNothingInAShortTime) {
    Progress brief("training", 10, ProgressUnit::count, screen_.sink(false));
    screen_.now += 29;
    EXPECT_FALSE(brief.is_due());
    brief.update(10, "step 10");
    EXPECT_THAT(screen_.said, IsEmpty());
    Progress progress("training", 1000, ProgressUnit::count, screen_.sink(false));
    for (std::uint64_t step = 1; step <= 1000; ++step) {
        screen_.now += 0.125;
        progress.update(step, "step " + std::to_string(step));
    }
    EXPECT_THAT(screen_.said, ElementsAre("step 240", "step 480", "step 720", "step 960"));
    EXPECT_THAT(screen_.shown, IsEmpty());
}

TEST_F(ProgressTest, SumsUpEachOfSeveralStages) {
    Progress progress(screen_.sink(false));
    progress.finish();  // none has begun
    progress.update("pack", 0, 10, ProgressUnit::count);
    screen_.now += 1;
    progress.update("pack", 10, 10, ProgressUnit::count);
    progress.update("verify", 0, 2048, ProgressUnit::bytes);
    screen_.now += 2;
    progress.update("verify", 2048, 2048, ProgressUnit::bytes);
    progress.finish();
    EXPECT_THAT(screen_.said, ElementsAre("pack 10 in 1.0s", "verify 2 KiB in 2.0s"));
}

TEST_F(ProgressTest, ShowsALiveLineAtMostTenTimesASecond) {
    Progress progress("training", 1000, ProgressUnit::count, screen_.sink(true));
    for (std::uint64_t step = 1; step <= 1000; ++step) {
        screen_.now += 0.015625;
        progress.update(step, "step");
    }
    EXPECT_THAT(screen_.shown, SizeIs(AllOf(Ge(100u), Le(157u))));
    EXPECT_THAT(screen_.said, IsEmpty());
}

TEST_F(ProgressTest, HasBarAndEtaInTheLiveLineAndRemovesItAtTheEnd) {
    { Progress brief("training", 10, ProgressUnit::count, screen_.sink(true)); }
    EXPECT_THAT(std::exchange(screen_.shown, {}), ElementsAre(""));
    Progress progress("training", 1000, ProgressUnit::count, screen_.sink(true));
    screen_.now += 10;
    progress.update(250, "step 250 | loss 0.5");
    EXPECT_THAT(screen_.shown,
                ElementsAre("[#####---------------]  25 % eta 30.0s | step 250 | loss 0.5"));
    EXPECT_THAT(screen_.recorded, IsEmpty());
    screen_.now += 21;
    progress.update(250, "step 250");
    EXPECT_THAT(screen_.recorded, ElementsAre("step 250")) << "in the file, too";
}

TEST_F(ProgressTest, WritesALineOfItsOwnInBytes) {
    Progress progress("packing", 4ull << 30, ProgressUnit::bytes, screen_.sink(false));
    screen_.now += 32;
    progress.update(1ull << 30);
    screen_.now += 32;
    progress.update(2ull << 30);
    progress.finish();
    EXPECT_THAT(screen_.said,
                ElementsAre("packing 1 GiB of 4 GiB | 32 MiB/s",
                            "packing 2 GiB of 4 GiB | 32 MiB/s",
                            "packing 2 GiB in 1m04s"));
}

TEST_F(ProgressTest, CountsWithoutAKnownEndAndNotWhatAnEarlierRunDid) {
    Progress progress("reading", 0, ProgressUnit::count, screen_.sink(false));
    screen_.now += 40;
    progress.update(40000);
    EXPECT_THAT(screen_.said, ElementsAre("reading 40,000 | 1,000/s"));
    EXPECT_LT(progress.eta_s(), 0);
    Progress resumed("training", 1000, ProgressUnit::count, screen_.sink(false));
    resumed.start_at(500);
    screen_.now += 10;
    resumed.update(600);
    EXPECT_DOUBLE_EQ(resumed.eta_s(), 40);
}

/// stdout as a terminal of `columns`, for its lifetime.
class NarrowStdout {
  public:
    explicit NarrowStdout(unsigned short columns)
        : controller_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)), stdout_(::dup(1)) {
        ::grantpt(controller_.value());
        ::unlockpt(controller_.value());
        const UniqueFd end(::open(::ptsname(controller_.value()), O_RDWR | O_NOCTTY));
        ::dup2(end.value(), 1);
        resize(columns);
    }
    ~NarrowStdout() { ::dup2(stdout_.value(), 1); }
    NarrowStdout& operator=(NarrowStdout&&) = delete;

    void resize(unsigned short columns) const {
        const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
        ::ioctl(controller_.value(), TIOCSWINSZ, &size);
    }

  private:
    UniqueFd controller_, stdout_;
};

TEST_F(ProgressTest, FitsTheTerminalAsItIsNow) {
    {
        const NarrowStdout terminal(20);
        Progress progress("packing", 1000, ProgressUnit::count, screen_.sink(true));
        for (const unsigned short columns : std::array<unsigned short, 4>{20, 50, 12, 1}) {
            terminal.resize(columns);
            screen_.now += 10;
            progress.update(500, "step 500 | loss 0.5");
        }
        Progress endless("waiting", 0, ProgressUnit::count, screen_.sink(true));
        terminal.resize(10);
        endless.update(0, "waiting for a lock");
    }
    const Lines shown(screen_.shown.begin(), screen_.shown.begin() + 5);
    EXPECT_THAT(shown,
                ElementsAre(" 50 % eta 10.0s | s",
                            "[##########----------]  50 % eta 20.0s | step 500",
                            " 50 % eta 3",
                            "",
                            "waiting f"));
}

TEST_F(ProgressTest, SaysNothingOfItsEndWhereAProgramReads) {
    ProgressSink sink = screen_.sink(false);
    sink.sums_up = false;
    Progress progress("measuring", 10, ProgressUnit::count, sink);
    screen_.now += 31;
    progress.update(5, "measuring 1 MiB");
    progress.finish();
    EXPECT_THAT(screen_.said, ElementsAre("measuring 1 MiB"));
}

TEST(MemoryUse, IsReadFromTheKernelsFiles) {
    const TempDir root;
    EXPECT_EQ(memory_use(root.path()).resident_bytes, 0u) << "the kernel says nothing";
    EXPECT_EQ(proportional_memory_bytes(root.path()), 0u);
    root.file("proc/self/status", "VmPeak: 9 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n");
    root.file("proc/self/smaps_rollup",
              "55-7f ---p [rollup]\nRss:  9 kB\nPss:   512 kB\n"
              "Pss_Anon:  1 kB\n");
    EXPECT_EQ(memory_use(root.path()).resident_bytes, 1024u << 10);
    EXPECT_EQ(memory_use(root.path()).peak_resident_bytes, 2048u << 10);
    EXPECT_EQ(proportional_memory_bytes(root.path()), 512u << 10);
}

TEST(MemoryUse, GrowsWithTheProcess) {
    constexpr std::size_t bytes = 32u << 20;
    const auto before = memory_use();
    const std::vector<char> block(bytes, 1);
    const auto after = memory_use();
    EXPECT_GT(after.resident_bytes, before.resident_bytes + bytes / 2);
    EXPECT_GE(after.peak_resident_bytes, after.resident_bytes);
    EXPECT_EQ(block.back(), 1);
}

TEST(ResidentBytes, CountsPagesThatWereTouchedAndPartsOfPages) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const at =
        ::mmap(nullptr, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    const std::span memory(static_cast<std::byte*>(at), 16 * page);
    EXPECT_EQ(resident_bytes(memory), 0u);
    for (std::size_t i = 4; i < 7; ++i) memory[i * page] = std::byte{1};
    EXPECT_EQ(resident_bytes(memory), 3 * page);
    EXPECT_EQ(resident_bytes(memory.subspan(4 * page + 100, page)), page);
    EXPECT_EQ(resident_bytes(memory.subspan(6 * page + 100, page)), page - 100);
    EXPECT_EQ(resident_bytes({}), 0u);
    ::munmap(at, memory.size());
}

TEST(Memory, LeavesWhatTheTightestGroupHasNotUsed) {
    TempDir root;
    root.file("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    8000 kB\n");
    EXPECT_EQ(memory_left(root.path()), 8000u << 10) << "of the node";
    root.file("proc/self/cgroup", "0::/job/step\n");
    root.file("sys/fs/cgroup/job/memory.max", "4000000\n");
    root.file("sys/fs/cgroup/job/memory.current", "3000000\n");
    root.file("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 500000\nfile 9\n");
    root.file("sys/fs/cgroup/job/step/memory.max", "5000000\n");
    root.file("sys/fs/cgroup/job/step/memory.current", "3000000\n");
    EXPECT_EQ(memory_left(root.path()), 1'500'000u);
}

TEST(TextTable, AlignsColumnsAndLeavesEmptyOnesOut) {
    EXPECT_EQ(text_table({{"ranks", "gpu", "step"}, {"1", "", "54 ms"}, {"16", "", "6 ms"}},
                         Align::right,
                         Align::left),
              "  ranks  step\n"
              "      1  54 ms\n"
              "     16  6 ms\n");
    EXPECT_EQ(text_table({{"a", "b"}, {"10", "200"}}, Align::left, Align::right, ""),
              "a     b\n10  200\n");
    EXPECT_EQ(text_table({{"a"}, {"\033[31m"}}, Align::left, Align::left, ""), "a\n?[31m\n");
}

TEST(TextTable, WritesNumbersShort) {
    EXPECT_EQ(seconds_text(0), "0 s");
    EXPECT_EQ(seconds_text(707), "707 s");
    EXPECT_EQ(seconds_text(0.05413), "54.13 ms");
    EXPECT_EQ(seconds_text(8e-7), "0.8 us");
    EXPECT_EQ(percent_text(0.8108), "81.1 %");
    EXPECT_EQ(ranks_count_text(1), "1 rank");
    EXPECT_EQ(ranks_count_text(4), "4 ranks");
}

TEST(Wrapped, BreaksBetweenWordsAndNotWithinThem) {
    EXPECT_EQ(wrapped("one two three", 2, 7), "one two\n  three");
    EXPECT_EQ(wrapped("one two three", 2, 6), "one\n  two\n  three");
    EXPECT_EQ(wrapped("eleventh on", 0, 4), "eleventh\non");
    EXPECT_EQ(wrapped("", 2, 7), "");
}

TEST(RunTable, HasALineForEachRun) {
    RunStatus run{.root = "runs/a", .condition = RunCondition::running, .incarnation = 2};
    run.step = 50;
    run.steps_total = 200;
    run.eta_s = 90;
    run.times = {.elapsed = 100, .training = 80};
    const RunStatus other{.root = "runs/longer\033[31m"};
    const std::vector<RunStatus> both = {run, other};
    const std::vector<RunColumn> more = {{"lr", {"0.1", "0.2"}}};
    EXPECT_EQ(
        status_table(both, more),
        "run                  phase              step  done in  starts   lost  goodput   lr\n"
        "runs/a             running  50 of 200 (25 %)    1m30s       2  20.0s     80 %  0.1\n"
        "runs/longer?[31m  starting                 0        -       0      -        -  0.2\n");
}

}  // namespace
}  // namespace lockstep
