// SPDX-License-Identifier: Apache-2.0
// A save that goes on beside steps, whose votes this test adds up.
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/memory.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "train/checkpoint/shares.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/resource.h>

namespace lockstep {
namespace {

const std::vector<TensorMeta> saved_tensors = {
    {"fc.weight", {300, 500}}, {"optimizer.average.fc.weight", {300, 500}}, {"frozen", {7}}};

class CheckpointSaves : public test::SharedFolder {
  protected:
    CheckpointPart part(std::int64_t step) const {
        return {.state = {.step = step, .counters = {{"seen", 3}, {"optimizer.missed.x", 4}}},
                .tensors = saved_tensors,
                .pieces = share_.pieces,
                .changing = share_.pieces.size(),
                .frozen_from = 2};
    }

    CheckpointPlace place(const std::string& name) const {
        return {.root = folder_ / name / "ckpt", .check_still_ours = {}};
    }

    // Beside steps.
    std::unique_ptr<CheckpointSave> begin(const std::string& name, CheckpointPart part) {
        return std::make_unique<CheckpointSave>(ranks_, place(name), std::move(part), &threads_);
    }

    // Between two steps.
    std::unique_ptr<CheckpointSave> blocking(const std::string& name, std::int64_t step = 1) const {
        return std::make_unique<CheckpointSave>(ranks_, place(name), part(step));
    }

    // As a step does.
    bool after_step(CheckpointSave& save) const {
        const SaveVotes mine = save.votes();
        std::array<std::int64_t, 2> sums{mine.done, mine.failed};
        ranks_.all_reduce_sum(sums);
        return save.advance(
            {.done = static_cast<int>(sums[0]), .failed = static_cast<int>(sums[1])});
    }

    void take_steps(CheckpointSave& save) const {
        while (!after_step(save)) std::this_thread::yield();
    }

    // As an update does.
    void change_values() {
        for (std::vector<float>& values : share_.memory)
            for (float& value : values) value = -value - 1;
    }

    // By name, of the only checkpoint.
    std::map<std::string, std::string> files(const std::string& name) const {
        std::map<std::string, std::string> found;
        const auto there = list_checkpoints(folder_ / name / "ckpt");
        EXPECT_EQ(there.size(), 1u) << name;
        if (there.empty()) return found;
        for (const auto& entry : fs::directory_iterator(there.back().path))
            found[entry.path().filename()] = read_file(entry.path());
        ranks_.barrier();
        return found;
    }

    test::Share share_{saved_tensors, ranks_.rank(), ranks_.size(), 0, 1};
    SaveThreads threads_{300'007};
};

TEST_F(CheckpointSaves, WriteTheSameBytesInBothModesHoweverSoonValuesChangeAfterTheCopy) {
    blocking("blocking")->finish();
    const auto expected = files("blocking");
    EXPECT_EQ(expected.size(), static_cast<std::size_t>(ranks_.size()) + 1);
    const auto save = begin("overlapped", part(1));
    save->wait_copied();
    EXPECT_TRUE(save->is_copied());
    change_values();
    take_steps(*save);
    EXPECT_EQ(files("overlapped"), expected);
    EXPECT_NO_THROW(verify_checkpoint(folder_ / "overlapped/ckpt/step-000001"));
}

// Blocking, it reads the values when it writes them: that is an update that does not wait.
TEST_F(CheckpointSaves, OfValuesThatChangeTooEarlyDiffer) {
    begin("right", part(1))->finish();
    const auto save = blocking("wrong");
    change_values();
    save->finish();
    EXPECT_NE(files("wrong"), files("right"));
}

TEST_F(CheckpointSaves, HashTheModelsValuesFromTheirFiles) {
    begin("run", part(1))->finish();
    std::vector<float> weights(saved_tensors[0].count()), frozen(7);
    std::iota(weights.begin(), weights.end(), 0.0F);
    std::iota(frozen.begin(), frozen.end(), 2.0F);
    const std::int64_t seen = 3;
    Hasher128 hasher;
    hasher.add(bytes_of("fc.weight"));
    hasher.add(std::as_bytes(std::span(weights)));
    hasher.add(bytes_of("seen"));
    hasher.add(std::as_bytes(std::span(&seen, 1)));
    hasher.add(bytes_of("frozen"));
    hasher.add(std::as_bytes(std::span(frozen)));
    EXPECT_EQ(read_checkpoint_state(folder_ / "run/ckpt/step-000001").parameter_hash,
              hasher.value().hex());
}

TEST_F(CheckpointSaves, AreComparedBitForBit) {
    const auto saved = [&](const std::string& name, CheckpointPart what) {
        CheckpointSave(ranks_, place(name), std::move(what)).finish();
        return folder_ / name / "ckpt/step-000001";
    };
    const fs::path first = saved("first", part(1));
    EXPECT_EQ(compare_checkpoints(first, saved("again", part(1))).tensors, 5u);
    EXPECT_TRUE(compare_checkpoints(first, folder_ / "again/ckpt/step-000001").different.empty());
    if (ranks_.rank() == ranks_.size() - 1) share_.memory[0].back() += 2;
    CheckpointPart changed = part(1);
    changed.state.counters["seen"] = 7;
    changed.tensors[1].shape = {500, 300};
    changed.tensors[2].name = "other";
    const auto found = compare_checkpoints(first, saved("changed", std::move(changed)));
    EXPECT_EQ(found.tensors, 6u);
    ASSERT_EQ(found.different.size(), 5u);
    EXPECT_EQ(found.different[0].name, "fc.weight");
    EXPECT_EQ(found.different[0].differing, 1u);
    EXPECT_EQ(found.different[0].largest, 2);
    EXPECT_EQ(found.different[1].name, "optimizer.average.fc.weight");
    EXPECT_NE(found.different[1].first, found.different[1].second);
    EXPECT_FALSE(found.different[2].second.has_value()) << found.different[2].name;
    EXPECT_EQ(found.different[3].name, "seen");
    EXPECT_EQ(found.different[3].largest, 4);
    EXPECT_FALSE(found.different[4].first.has_value()) << found.different[4].name;
    ranks_.barrier();
}

// Others take the core of the training thread that wakes them.
TEST_F(CheckpointSaves, RunOnThreadsOfBatchWork) {
    for (const int nice : {5, 15}) {
        SideThread thread(nice);
        int policy = 0, found = 0;
        thread.run([&] {
            policy = ::sched_getscheduler(0);
            found = ::getpriority(PRIO_PROCESS, 0);  // of this thread, on Linux
        });
        thread.wait();
        EXPECT_EQ(policy, SCHED_BATCH);
        EXPECT_EQ(found, nice);
    }
}

// Else the first copy takes ten times as long as others.
TEST_F(CheckpointSaves, HaveThePagesOfTheirCopyBefore) {
    const SaveThreads threads(std::size_t{16} << 20);
    threads.copier.wait();
    const auto copy = threads.staging.bytes();
    EXPECT_GE(resident_bytes(copy), copy.size() - (std::size_t{64} << 10));
    EXPECT_LT(resident_bytes(Pages(copy.size()).bytes()), copy.size() / 2)
        << "the system gives pages when they are asked for";
}

TEST_F(CheckpointSaves, AreThereOnlyWhenAllRanksHaveSaidSo) {
    const auto save = begin("run", part(1));
    int steps = 0;
    do {
        EXPECT_TRUE(list_checkpoints(folder_ / "run/ckpt").empty() || steps >= 2);
        ranks_.barrier();
        ++steps;
    } while (!after_step(*save));
    EXPECT_GE(steps, 3) << "the folder, the shards and the commit";
    EXPECT_EQ(list_checkpoints(folder_ / "run/ckpt").size(), 1u);
    EXPECT_FALSE(fs::exists(folder_ / "run/ckpt/.tmp-step-000001-i1"));
    ranks_.barrier();
}

TEST_F(CheckpointSaves, MayBeFinishedAtAnyStep) {
    for (int steps = 0; steps < 4; ++steps) {
        const std::string name = fmt::format("run{}", steps);
        const auto save = begin(name, part(steps));
        for (int step = 0; step < steps; ++step)
            if (after_step(*save)) break;
        save->finish();
        EXPECT_EQ(files(name).size(), static_cast<std::size_t>(ranks_.size()) + 1);
    }
}

TEST_F(CheckpointSaves, AreSpreadOverStepsUntilSomebodyWaits) {
    threads_.spread = 1000;
    const auto begin_slowly = [&](const std::string& name) {
        auto save = begin(name, part(1));
        for (int step = 0; step < 30; ++step) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            EXPECT_FALSE(after_step(*save)) << step;
        }
        return save;
    };
    const auto waits = begin_slowly("waits");
    waits->finish();
    EXPECT_GT(waits->rested_s(), 0);
    const auto hurries = begin_slowly("hurries");
    hurries->hurry();
    take_steps(*hurries);
    EXPECT_EQ(files("hurries"), files("waits"));
    begin_slowly("abandoned");
    threads_.spread = 7;
    const auto steps = begin("steps", part(1));
    take_steps(*steps);
    EXPECT_EQ(files("steps"), files("waits"));
}

TEST_F(CheckpointSaves, LeaveNoCheckpointBehindIfTheyAreAbandoned) {
    for (int steps = 0; steps < 3; ++steps) {
        begin("run", part(1))->finish();
        {
            const auto save = begin("run", part(2));
            for (int step = 0; step < steps; ++step)
                if (after_step(*save)) break;
            ranks_.barrier();
        }
        ranks_.barrier();
        const auto there = list_checkpoints(folder_ / "run/ckpt");
        ASSERT_FALSE(there.empty());
        for (const CheckpointInfo& one : there) EXPECT_NO_THROW(verify_checkpoint(one.path));
        ranks_.barrier();
    }
}

// Of the disk, on the last rank; and of the values.
TEST_F(CheckpointSaves, ThatFailOnOneRankFailOnAllAndKeepWhatThereIs) {
    begin("run", part(1))->finish();
    const bool is_last = ranks_.rank() == ranks_.size() - 1;
    const auto expect_failure = [&](const std::string& code, const std::function<void()>& save) {
        try {
            save();
            ADD_FAILURE() << "no error";
        } catch (const AgreedError& error) {
            EXPECT_EQ(error.code(), code);
            EXPECT_EQ(error.failed(), std::vector{ranks_.size() - 1});
        }
        EXPECT_EQ(list_checkpoints(folder_ / "run/ckpt").size(), 1u);
        EXPECT_NO_THROW(verify_checkpoint(folder_ / "run/ckpt/step-000001"));
        ranks_.barrier();
    };
    for (const auto& [number, code] :
         std::map<int, std::string>{{ENOSPC, "E405"}, {EIO, "E409"}, {EROFS, "E402"}}) {
        CheckpointPart broken = part(2);
        if (is_last)
            broken.also = [number = number] { throw system_error("write", "shard", number); };
        expect_failure(code, [&] { take_steps(*begin("run", std::move(broken))); });
    }
    if (is_last) share_.memory[0].front() = std::nanf("");
    expect_failure("E701", [&] { take_steps(*begin("run", part(2))); });
    expect_failure("E701", [&] { blocking("run", 2)->finish(); });
}

TEST_F(CheckpointSaves, OfAStartThatWasReplacedMakeNotEvenAFolder) {
    CheckpointPlace taken = place("run");
    taken.check_still_ours = [] { throw Error("E408", "taken over"); };
    for (SaveThreads* const threads : {&threads_, static_cast<SaveThreads*>(nullptr)}) {
        CheckpointSave save(ranks_, taken, part(1), threads);
        EXPECT_THROW(threads != nullptr ? take_steps(save) : save.finish(), AgreedError);
        EXPECT_FALSE(fs::exists(folder_ / "run"));
        ranks_.barrier();
    }
}

// The newer start removes what the older one has not committed: its writes fail by that.
TEST_F(CheckpointSaves, OfAStartThatIsReplacedMeanwhileSayThatTheRunWasTakenOver) {
    std::atomic<bool> is_taken = false;
    CheckpointPlace taken = place("run");
    taken.check_still_ours = [&] {
        if (is_taken) throw Error("E408", "taken over");
    };
    CheckpointPart replaced = part(1);
    replaced.also = [&] {
        std::error_code ignored;  // other ranks remove it, too
        fs::remove_all(taken.root, ignored);
        is_taken = true;
    };
    CheckpointSave save(ranks_, taken, std::move(replaced), &threads_);
    EXPECT_THAT([&] { take_steps(save); },
                testing::Throws<AgreedError>(testing::Property(&Error::code, "E408")));
    ranks_.barrier();
}

}  // namespace
}  // namespace lockstep
