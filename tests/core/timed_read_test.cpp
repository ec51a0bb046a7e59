// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/process.hpp"

#include <array>
#include <csignal>
#include <string>

#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

namespace lockstep {
namespace {

struct TestPipe {
    TestPipe() {
        std::array<int, 2> ends{};
        EXPECT_EQ(::pipe(ends.data()), 0);
        read_end = UniqueFd(ends[0]);
        write_end = UniqueFd(ends[1]);
    }
    std::optional<std::size_t> read(double patience_s) {
        return timed_read(
            read_end.value(), std::as_writable_bytes(std::span(buffer)), now_s() + patience_s);
    }
    UniqueFd read_end, write_end;
    std::string buffer = "....";
};

// Signals that come all the time while it lives, and interrupt system calls.
class Interruptions {
  public:
    Interruptions() {
        struct sigaction quiet {};
        quiet.sa_handler = [](int) { count = count + 1; };
        ::sigaction(SIGALRM, &quiet, &before_);
        const itimerval often{{0, 5000}, {0, 5000}};
        ::setitimer(ITIMER_REAL, &often, nullptr);
    }
    ~Interruptions() {
        const itimerval never{};
        ::setitimer(ITIMER_REAL, &never, nullptr);
        ::sigaction(SIGALRM, &before_, nullptr);
    }
    static inline volatile std::sig_atomic_t count = 0;

  private:
    struct sigaction before_ {};
};

TEST(TimedRead, GivesWhatThereIsAndThenTheEnd) {
    TestPipe pipe;
    ASSERT_EQ(::write(pipe.write_end.value(), "abcdefg", 7), 7);
    EXPECT_EQ(pipe.read(20), 4u);
    EXPECT_EQ(pipe.buffer, "abcd");
    EXPECT_EQ(pipe.read(20), 3u);
    EXPECT_EQ(pipe.buffer, "efgd");
    pipe.write_end.reset();
    EXPECT_EQ(pipe.read(20), 0u);
}

TEST(TimedRead, EndsAtTheDeadline) {
    TestPipe pipe;
    const double before_s = now_s();
    EXPECT_EQ(pipe.read(0.05), std::nullopt);
    EXPECT_GE(now_s() - before_s, 0.05);
    ASSERT_EQ(::write(pipe.write_end.value(), "a", 1), 1);
    EXPECT_EQ(pipe.read(-1), std::nullopt) << "it has passed, whatever there is";
    EXPECT_EQ(pipe.read(1e12), 1u) << "more than poll() can count";
}

TEST(TimedRead, SignalsNeitherEndNorProlongTheWait) {
    TestPipe pipe;
    const Interruptions interruptions;
    const double before_s = now_s();
    EXPECT_EQ(pipe.read(0.1), std::nullopt);
    EXPECT_GE(now_s() - before_s, 0.1);
    EXPECT_LT(now_s() - before_s, 20);
    for (int turn = 0; turn < 100 && Interruptions::count < 2; ++turn)
        EXPECT_EQ(pipe.read(0.1), std::nullopt);
    EXPECT_GE(Interruptions::count, 2);
}

TEST(TimedRead, ADescriptorThatIsNoneHasEnded) {
    std::array<std::byte, 4> out{};
    EXPECT_EQ(timed_read(1 << 20, out, now_s() + 20), 0u);
}

}  // namespace
}  // namespace lockstep
