// SPDX-License-Identifier: Apache-2.0
// What a training takes of the machine besides its processors.
#include "program.hpp"

#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

namespace lockstep::test {
namespace {

long faults_of_children() {
    rusage used{};
    ::getrusage(RUSAGE_CHILDREN, &used);
    return used.ru_minflt + used.ru_majflt;
}

// Of one rank, whose steps use 20 MB.
long faults_of_training(int steps) {
    const TempDir folder;
    const long before = faults_of_children();
    EXPECT_THAT(
        run_lockstep(train_words(train_data(), folder / "run", "cnn", 60) +
                     typed("--checkpoint-every never --max-steps %", {std::to_string(steps)})),
        ends(0));
    return faults_of_children() - before;
}

TEST(Memory, OfAStepIsThatOfTheStepBefore) {
    const long few = faults_of_training(10);
    EXPECT_LT(faults_of_training(40) - few, 3000);
}

/// A control group below that of this process, for commands whose memory counts together.
class MemoryGroup {
  public:
    MemoryGroup() {
        const std::string groups = content_of("/proc/self/cgroup");
        const auto first = groups.find(":memory:"), second = groups.find("0::");
        is_newer_ = first == groups.npos;
        const auto begin = is_newer_ ? second + 3 : first + 8;
        const std::string own = groups.substr(begin, groups.find('\n', begin) - begin);
        const fs::path mount = is_newer_ ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        above_ = mount.string() + own;
        folder_ = above_ / fmt::format("lockstep-test-{}", ::getpid());
        std::error_code refused;
        is_there_ = fs::create_directory(folder_, refused) && fs::exists(limit());
    }
    ~MemoryGroup() { ::rmdir(folder_.c_str()); }
    MemoryGroup(const MemoryGroup&) = delete;
    MemoryGroup& operator=(const MemoryGroup&) = delete;

    bool is_there() const { return is_there_; }
    std::uint64_t peak() const {
        return std::stoull(
            content_of(folder_ / (is_newer_ ? "memory.peak" : "memory.max_usage_in_bytes")));
    }
    void allow(std::uint64_t bytes) const { std::ofstream(limit()) << bytes; }
    /// In the group, which this process leaves again: a child begins where its parent is.
    ProcessResult run(const Words& words) const {
        enter(folder_);
        ProcessResult result = run_lockstep(words);
        enter(above_);
        return result;
    }

  private:
    fs::path limit() const {
        return folder_ / (is_newer_ ? "memory.max" : "memory.limit_in_bytes");
    }

    static void enter(const fs::path& group) {
        std::ofstream(group / "cgroup.procs") << ::getpid() << std::flush;
    }

    fs::path above_, folder_;
    bool is_newer_ = false, is_there_ = false;
};

// The copy needs 182 MiB.
TEST(Memory, OfAControlGroupThatHasNoRoomForTheCopyOfACheckpointLeavesItOut) {
    const MemoryGroup group;
    if (!group.is_there()) GTEST_SKIP() << "this user may make no control group for memory";
    const TempDir folder;
    const auto trained = [&](const char* run, const char* period) {
        return group.run(train_words(train_data(), folder / run, "mlp", 24) +
                         typed("--channels 20000 --virtual-ranks 4 --max-steps 4 "
                               "--checkpoint-every %",
                               {period}));
    };
    const std::string without = output_of(trained("without", "never"));
    group.allow(group.peak() - 100'000'000);
    const std::string within = output_of(trained("within", "2steps"));
    EXPECT_THAT(within, has("checkpoints are written between two steps: a copy of"));
    EXPECT_EQ(printed_hash(within), printed_hash(without));
    EXPECT_THAT(run_lockstep({"ckpt", "verify", folder / "within"}), ends(0));
    EXPECT_TRUE(fs::exists(folder / "within/ckpt/step-000002"));
}

// `ulimit` LIMIT, then the line with "lockstep" as the program under test. Below 40 MB of addresses
// the loader ends even `lockstep` by itself.
ProcessResult limited(const std::string& limit, const std::string& line) {
    return in_shell("/", fmt::format("ulimit {}; {}", limit, line));
}

std::size_t refusals(const std::string& line, int from_kib, int to_kib, int step_kib) {
    std::size_t refused = 0;
    for (int kib = from_kib; kib <= to_kib; kib += step_kib) {
        const ProcessResult result = limited(fmt::format("-v {}", kib), line);
        if (result.exit_code == 0) continue;
        ++refused;
        EXPECT_EQ(result.exit_code, 78) << kib << ": " << result.output;
        EXPECT_THAT(result, says("error E225: ")) << kib;
        EXPECT_THAT(result, says("'ulimit -v' leaves")) << kib;
    }
    return refused;
}

class FewAddresses : public RunsTest {
  protected:
    std::string data() const { return train_data().string(); }
    std::string place(const char* name) const { return (folder_ / name).string(); }
};

TEST_F(FewAddresses, ArePackedWithinOrRefused) {
    const std::string line = fmt::format(
        "rm -rf {0}; lockstep data pack --images {1} --labels {2} --out {0} --threads 8",
        place("packed"),
        train_images().string(),
        train_labels().string());
    EXPECT_GT(refusals(line, 40'000, 120'000, 8'000), 0u);
    EXPECT_EQ(refusals(line, 400'000, 400'000, 1), 0u);
}

TEST_F(FewAddresses, AreReadWithinOrRefused) {
    const std::string shard = shard_of(train_data()).string();
    for (const std::string& line :
         {fmt::format("lockstep data inspect {}", data()),
          fmt::format("lockstep data verify {} --threads 8", data()),
          fmt::format("lockstep data inspect {} --field images=/data/images:CHW", shard)}) {
        refusals(line, 40'000, 100'000, 12'000);
        EXPECT_EQ(refusals(line, 400'000, 400'000, 1), 0u) << line;
    }
}

// The helper ends with 71 where it is refused memory; it has no more than its parent.
TEST_F(FewAddresses, OfTheHelperAreToldAsSuch) {
    const fs::path helper = folder_.file("helper", "#!/bin/sh\nexit 71\n");
    fs::permissions(helper, fs::perms::owner_all);
    EXPECT_THAT(
        limited(
            "-v 400000",
            fmt::format("LOCKSTEP_H5PROBE={} lockstep data inspect {} --field images=/data/images",
                        helper.string(),
                        shard_of(train_data()).string())),
        ends(78,
             "error E225: the system refuses 'lockstep-h5probe'",
             "'ulimit -v' allows it 390.6 MiB"));
}

// LibTorch takes some 440 MiB before its program can say anything: it is tried before.
TEST_F(FewAddresses, AreTrainedWithinOrRefused) {
    const std::string line = fmt::format(
        "rm -rf {0}; lockstep train --data {1} --run {0} --model mlp --batch 50 --max-steps 3",
        place("run"),
        data());
    EXPECT_GT(refusals(line, 200'000, 460'000, 65'000), 0u);
    EXPECT_GT(refusals(line, 450'000, 498'000, 8'000), 0u);
    EXPECT_EQ(refusals(line, 3'000'000, 3'000'000, 1), 0u);
    EXPECT_THAT(limited("-v 300000", line), says("lockstep-train' has too little memory to start"));
    for (const char* ranks : {" --np 1", " --np 2"}) {
        EXPECT_THAT(limited("-v 400000", line + ranks),
                    ends(78, "E225", "a process 390.6 MiB of addresses"));
        EXPECT_FALSE(fs::exists(place("run")));
    }
}

// Between what LibTorch takes and what MPI takes besides, ranks were said to have crashed.
TEST_F(FewAddresses, AreTrainedWithinByTwoRanksOrRefused) {
    const std::string line = fmt::format(
        "rm -rf {0}; lockstep train --data {1} --run {0} --model mlp --batch 50 --max-steps 3 --np "
        "2",
        place("run"),
        data());
    EXPECT_EQ(refusals(line, 450'000, 650'000, 100'000), 3u);
    refusals(line, 712'000, 776'000, 32'000);
    EXPECT_EQ(refusals(line, 3'000'000, 3'000'000, 1), 0u);
}

// Open MPI itself fails without a word, or waits for ever, where it has little: it is not begun.
TEST_F(FewAddresses, AreLeftToMpiOrRefused) {
    const Words narrow{"bash", "-c", "ulimit -v 200000; \"$@\"; exit $?", "bash", program()};
    EXPECT_THAT(
        run_process(mpirun_words(2) + narrow + Words{"data", "verify", data()}, {}, ample_s),
        ends(78, "error E225: MPI does not start with so little memory"));
}

}  // namespace
}  // namespace lockstep::test
