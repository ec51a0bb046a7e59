// SPDX-License-Identifier: Apache-2.0

#include "lockstep/run/run_directory.hpp"

#include "support/unit.hpp"

#include <sys/stat.h>

namespace lockstep {
namespace {

class Control : public InFolder {
  protected:
    fs::path asked() const { return RunPaths{root_}.asked(); }
    fs::path taken() const { return RunPaths{root_}.taken(); }
    ControlBox box(std::int64_t incarnation = 1) const { return {root_, incarnation}; }

    const fs::path root_ = folder_.path();
};

TEST_F(Control, BringsEveryActionToTheRun) {
    double time_s = 0;
    ControlBox box = this->box(3);
    for (const auto action : {ControlAction::save,
                              ControlAction::stop,
                              ControlAction::stop_after_checkpoint,
                              ControlAction::stop_now}) {
        const auto asked = ask_run(root_, action, 3);
        const auto& found = box.poll(time_s += ControlBox::pause_s);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->action, action);
        EXPECT_EQ(found->id, asked.id);
        EXPECT_THAT(found->by, MatchesRegex(".+@.+"));
        EXPECT_THAT(found->asked, MatchesRegex("20.*Z"));
        EXPECT_FALSE(fs::exists(this->asked()));
    }
}

TEST_F(Control, LooksAtMostOnceASecond) {
    ControlBox box = this->box();
    EXPECT_FALSE(box.poll(0.1));
    ask_run(root_, ControlAction::save, 1);
    EXPECT_FALSE(box.poll(1.0));
    EXPECT_TRUE(box.poll(1.2));
}

TEST_F(Control, KeepsTheNewestRequestUntilItIsMet) {
    ControlBox box = this->box();
    const auto asked = ask_run(root_, ControlAction::stop_after_checkpoint, 1);
    EXPECT_TRUE(box.poll(0));
    EXPECT_TRUE(box.poll(5));
    EXPECT_EQ(read_control_request(taken())->id, asked.id);
    EXPECT_EQ(box.answered(), "");
    box.answer();
    EXPECT_FALSE(box.poll(10));
    EXPECT_EQ(box.answered(), asked.id);
    EXPECT_FALSE(fs::exists(taken()));
    ask_run(root_, ControlAction::stop_after_checkpoint, 1);
    EXPECT_TRUE(box.poll(15));
    const auto newer = ask_run(root_, ControlAction::stop_now, 1);
    EXPECT_EQ(box.poll(16)->id, newer.id);
}

TEST_F(Control, IgnoresAndRemovesWhatIsForAnotherStart) {
    ControlBox box = this->box(2);
    for (const std::int64_t other : {1, 3}) {
        ask_run(root_, ControlAction::stop_now, other);
        EXPECT_FALSE(box.poll(static_cast<double>(other)));
        EXPECT_FALSE(fs::exists(asked()));
        EXPECT_FALSE(fs::exists(taken()));
    }
}

TEST_F(Control, IsNotHarmedByWhatLiesInItsPlace) {
    ControlBox box = this->box();
    double time_s = 0;
    for (const std::string text : {"",
                                   "{",
                                   "[]",
                                   "\x1b[31m",
                                   R"({"id": 7, "action": "stop", "incarnation": 1})",
                                   R"({"id": "a", "action": "explode", "incarnation": 1,
                                       "by": "", "asked": ""})"}) {
        folder_.file("control.json", text);
        EXPECT_FALSE(box.poll(time_s += 1)) << text;
        EXPECT_FALSE(fs::exists(asked())) << text;
    }
    folder_.file("control.json", std::string(1 << 20, ' '));
    EXPECT_FALSE(box.poll(time_s += 1));
    ASSERT_EQ(::mkfifo(asked().c_str(), 0600), 0);
    EXPECT_FALSE(box.poll(time_s += 1));
    fs::create_directory(asked());
    EXPECT_FALSE(box.poll(time_s += 1));
    ask_run(root_, ControlAction::save, 1);
    EXPECT_TRUE(box.poll(time_s += 1));
}

TEST_F(Control, IsReadOnlyByItsOwner) {
    ask_run(root_, ControlAction::save, 1);
    EXPECT_EQ(fs::status(asked()).permissions(), fs::perms(0600));
    folder_.file("control.json", "{}");
    EXPECT_EQ(caught_code([&] { read_control_request(asked()); }), "E222");
}

class ControlOfARun : public InFolder {
  protected:
    ControlOfARun() { run_.begin_incarnation(); }

    ControlRequest ask(ControlAction action) {
        auto asked = ask_run(root_, action, 1);
        EXPECT_TRUE(run_.control_request());
        return asked;
    }
    std::string answered_by(RunPhase phase) {
        run_.write_state({.phase = phase});
        return read_run_state(root_)->answered;
    }

    const fs::path root_ = folder_ / "run";
    RunDirectory run_ = RunDirectory::open(root_);
};

TEST_F(ControlOfARun, AnswersASaveWhileItGoesOn) {
    const auto asked = ask(ControlAction::save);
    EXPECT_EQ(answered_by(RunPhase::running), asked.id);
    EXPECT_FALSE(run_.control_request());
    EXPECT_EQ(answered_by(RunPhase::running), asked.id);
}

TEST_F(ControlOfARun, AnswersAStopOnlyWhenItEnds) {
    const auto asked = ask(ControlAction::stop_after_checkpoint);
    EXPECT_EQ(answered_by(RunPhase::running), "");
    EXPECT_TRUE(run_.control_request());
    EXPECT_EQ(answered_by(RunPhase::checkpointed), asked.id);
}

TEST_F(ControlOfARun, RemovesRequestsToItsEarlierStarts) {
    ask(ControlAction::stop_after_checkpoint);
    ask_run(root_, ControlAction::stop_now, 1);
    run_.begin_incarnation();
    EXPECT_FALSE(fs::exists(RunPaths{root_}.asked()));
    EXPECT_FALSE(fs::exists(RunPaths{root_}.taken()));
    EXPECT_FALSE(run_.control_request());
}

}  // namespace
}  // namespace lockstep
