// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/foreign_end.hpp"

#include "lockstep/core/log.hpp"

#include "support/temp_dir.hpp"

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

class ForeignEnds : public testing::Test {
  protected:
    void note(const std::string& text) { std::ofstream(said_, std::ios::app) << text << "\n"; }

    /// The exit code of a child that does `action`, or 128 + the signal that ended it.
    int exit_of(const std::function<void()>& action) {
        const pid_t child = ::fork();
        if (child == 0) {
            action();
            end_process(9);
        }
        int status = 0;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }

    /// The same, between two guards.
    int exit_of_guarded(const std::function<void()>& action) {
        return exit_of([&] {
            const ForeignEnd outer([&](const Error& error) { note("outer " + error.code()); });
            const ForeignEnd inner([&](const Error& error) {
                note(error.what());
                throw std::runtime_error("no reason to end otherwise");
            });
            action();
        });
    }
    std::string said() const { return test::content_of(said_); }

    const test::TempDir folder_;
    const fs::path said_ = folder_ / "said";
};

TEST_F(ForeignEnds, AreErrorsWhateverTheirCode) {
    const std::function<void()> ends[] = {[] { std::exit(0); },
                                          [] { ::_exit(0); },
                                          [] { std::_Exit(0); },
                                          [] { std::quick_exit(0); }};
    for (const auto& end : ends) {
        EXPECT_EQ(exit_of_guarded(end), 70);
        EXPECT_EQ(said(), "the model ended the process: it called exit(0)\nouter E713\n");
        fs::remove(said_);
    }
    EXPECT_EQ(exit_of_guarded([] { std::exit(3); }), 70);
    EXPECT_THAT(said(), testing::HasSubstr("exit(3)"));
}

TEST_F(ForeignEnds, MeanWhatTheInnermostGuardSays) {
    EXPECT_EQ(exit_of([&] {
                  const auto tell = [&](const Error& error) { note(error.text()); };
                  const ForeignEnd outer(tell);
                  const ForeignEnd inner(tell, [](int status) {
                      return Error("E604", "a library ended it with " + std::to_string(status));
                  });
                  std::exit(1);
              }),
              78);
    EXPECT_THAT(said(), testing::HasSubstr("E604: a library ended it with 1\n"));
    EXPECT_THAT(said(), testing::Not(testing::HasSubstr("E713")));
}

// Else the log would be gone before it is told.
TEST_F(ForeignEnds, AreToldByALogThatIsOpenedLater) {
    EXPECT_EQ(exit_of([&] {
                  const ForeignEnd guard([](const Error& error) { write_error(error.what()); });
                  open_log({.directory = folder_.path(), .keeps_stderr = true});
                  const std::vector<std::string> other(1000, "what would take the log's memory");
                  ::dup2(::open(said_.c_str(), O_WRONLY | O_CREAT, 0600), error_descriptor());
                  std::exit(0);
              }),
              70);
    EXPECT_EQ(said(), "the model ended the process: it called exit(0)");
}

TEST_F(ForeignEnds, AreNotOurOwn) {
    EXPECT_EQ(exit_of_guarded([] { end_process(5); }), 5);
    EXPECT_EQ(exit_of([&] {
                  {
                      const ForeignEnd over([&](const Error& error) { note(error.what()); });
                  }
                  std::exit(6);
              }),
              6);
    EXPECT_EQ(exit_of([] { ::_exit(4); }), 4);
    EXPECT_EQ(said(), "");
}

TEST_F(ForeignEnds, AreNotThoseOfChildren) {
    EXPECT_EQ(exit_of_guarded([&] {
                  const int first = exit_of([] { std::exit(3); });
                  end_process(first * 10 + exit_of([] { ::_exit(2); }));
              }),
              32);
    EXPECT_EQ(said(), "");
}

}  // namespace
}  // namespace lockstep
