// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/progress.hpp"

#include "lockstep/core/files.hpp"

#include <array>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
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

TEST(Progress, SaysAPlainLineEveryThirtySeconds) {
    Screen screen;
    Progress progress("training", 1000, ProgressUnit::count, screen.sink(false));
    for (std::uint64_t step = 1; step <= 1000; ++step) {
        screen.now += 0.125;
        progress.update(step, "step " + std::to_string(step));
    }
    EXPECT_THAT(screen.said, ElementsAre("step 240", "step 480", "step 720", "step 960"));
    EXPECT_THAT(screen.shown, IsEmpty());
}

TEST(Progress, SaysNothingInAShortTime) {
    Screen screen;
    Progress progress("training", 10, ProgressUnit::count, screen.sink(false));
    screen.now += 29;
    EXPECT_FALSE(progress.is_due());
    progress.update(10, "step 10");
    EXPECT_THAT(screen.said, IsEmpty());
}

TEST(Progress, SumsUpEachOfSeveralStages) {
    Screen screen;
    Progress progress(screen.sink(false));
    progress.finish();  // none has begun
    progress.update("pack", 0, 10, ProgressUnit::count);
    screen.now += 1;
    progress.update("pack", 10, 10, ProgressUnit::count);
    progress.update("verify", 0, 2048, ProgressUnit::bytes);
    screen.now += 2;
    progress.update("verify", 2048, 2048, ProgressUnit::bytes);
    progress.finish();
    EXPECT_THAT(screen.said, ElementsAre("pack 10 in 1.0s", "verify 2 KiB in 2.0s"));
}

TEST(Progress, ShowsALiveLineAtMostTenTimesASecond) {
    Screen screen;
    Progress progress("training", 1000, ProgressUnit::count, screen.sink(true));
    for (std::uint64_t step = 1; step <= 1000; ++step) {
        screen.now += 0.015625;
        progress.update(step, "step");
    }
    EXPECT_THAT(screen.shown, SizeIs(testing::AllOf(testing::Ge(100u), testing::Le(157u))));
    EXPECT_THAT(screen.said, IsEmpty());
}

TEST(Progress, HasBarAndEtaInTheLiveLine) {
    Screen screen;
    Progress progress("training", 1000, ProgressUnit::count, screen.sink(true));
    screen.now += 10;
    progress.update(250, "step 250 | loss 0.5");
    EXPECT_THAT(screen.shown,
                ElementsAre("[#####---------------]  25 % eta 30.0s | step 250 | loss 0.5"));
}

TEST(Progress, WritesLiveLinesIntoTheFileToo) {
    Screen screen;
    Progress progress("training", 1000, ProgressUnit::count, screen.sink(true));
    screen.now += 31;
    progress.update(250, "step 250");
    EXPECT_THAT(screen.recorded, ElementsAre("step 250"));
}

TEST(Progress, RemovesTheLiveLineAtTheEnd) {
    Screen screen;
    { Progress progress("training", 10, ProgressUnit::count, screen.sink(true)); }
    EXPECT_THAT(screen.shown, ElementsAre(""));
}

TEST(Progress, WritesALineOfItsOwnInBytes) {
    Screen screen;
    Progress progress("packing", 4ull << 30, ProgressUnit::bytes, screen.sink(false));
    screen.now += 32;
    progress.update(1ull << 30);
    screen.now += 32;
    progress.update(2ull << 30);
    progress.finish();
    EXPECT_THAT(screen.said,
                ElementsAre("packing 1 GiB of 4 GiB | 32 MiB/s",
                            "packing 2 GiB of 4 GiB | 32 MiB/s",
                            "packing 2 GiB in 1m04s"));
}

TEST(Progress, CountsWithoutAKnownEnd) {
    Screen screen;
    Progress progress("reading", 0, ProgressUnit::count, screen.sink(false));
    screen.now += 40;
    progress.update(40000);
    EXPECT_THAT(screen.said, ElementsAre("reading 40,000 | 1,000/s"));
    EXPECT_LT(progress.eta_s(), 0);
}

TEST(Progress, DoesNotCountWhatAnEarlierRunDid) {
    Screen screen;
    Progress progress("training", 1000, ProgressUnit::count, screen.sink(false));
    progress.start_at(500);
    screen.now += 10;
    progress.update(600);
    EXPECT_DOUBLE_EQ(progress.eta_s(), 40);
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
    NarrowStdout(const NarrowStdout&) = delete;
    NarrowStdout& operator=(const NarrowStdout&) = delete;

    void resize(unsigned short columns) const {
        const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
        ::ioctl(controller_.value(), TIOCSWINSZ, &size);
    }

  private:
    UniqueFd controller_, stdout_;
};

TEST(Progress, FitsTheTerminalAsItIsNow) {
    Screen screen;
    {
        const NarrowStdout terminal(20);
        Progress progress("packing", 1000, ProgressUnit::count, screen.sink(true));
        for (const unsigned short columns : std::array<unsigned short, 4>{20, 50, 12, 1}) {
            terminal.resize(columns);
            screen.now += 10;
            progress.update(500, "step 500 | loss 0.5");
        }
        Progress endless("waiting", 0, ProgressUnit::count, screen.sink(true));
        terminal.resize(10);
        endless.update(0, "waiting for a lock");
    }
    const Lines shown(screen.shown.begin(), screen.shown.begin() + 5);
    EXPECT_THAT(shown,
                ElementsAre(" 50 % eta 10.0s | s",
                            "[##########----------]  50 % eta 20.0s | step 500",
                            " 50 % eta 3",
                            "",
                            "waiting f"));
}

TEST(Progress, SaysNothingOfItsEndWhereAProgramReads) {
    Screen screen;
    ProgressSink sink = screen.sink(false);
    sink.sums_up = false;
    Progress progress("measuring", 10, ProgressUnit::count, sink);
    screen.now += 31;
    progress.update(5, "measuring 1 MiB");
    progress.finish();
    EXPECT_THAT(screen.said, ElementsAre("measuring 1 MiB"));
}

}  // namespace
}  // namespace lockstep
