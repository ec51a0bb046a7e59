// SPDX-License-Identifier: Apache-2.0
// mpirun's line, and what it says: that it goes on unchanged, and is kept.
#include "lockstep/launch/mpirun.hpp"

#include "lockstep/core/host_name.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/shell_word.hpp"

#include "launcher.hpp"
#include "support/unit.hpp"

#include <csignal>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace {

// In which Open MPI lets root run.
Environment allowing() {
    return Environment({{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
}

LaunchRequest request_for(int np, bool oversubscribe) {
    LaunchRequest request;
    request.np = np;
    request.oversubscribe = oversubscribe;
    request.words = {"train", "--run", "a b"};
    request.program = "/bin/trainer";
    return request;
}

TEST(MpirunLine, StartsTheProgramWithItsWordsAsksNoResourceManagerAndPutsFilesIntoTheGivenFolder) {
    LaunchRequest request = request_for(1, false);
    const auto line = mpirun_line(request, allowing());
    EXPECT_THAT(std::vector(line.begin(), line.begin() + 3), ElementsAre("mpirun", "-np", "1"));
    EXPECT_THAT(std::vector(line.end() - 4, line.end()),
                ElementsAre("/bin/trainer", "train", "--run", "a b"));
    EXPECT_THAT(line, Not(Contains("--oversubscribe")));
    EXPECT_THAT(line, Not(Contains("orte_tmpdir_base")));
    request.folder = "/dev/shm/x";
    EXPECT_THAT(shell_text(mpirun_line(request, allowing())),
                has(" --mca orte_tmpdir_base /dev/shm/x ",
                    " --mca btl_vader_backing_directory /dev/shm/x ",
                    " --mca osc_sm_backing_directory /dev/shm/x "));
    EXPECT_THAT(shell_text(line),
                has(" --mca ras '^slurm,tm,",
                    " --mca plm '^rsh,slurm,tm,",
                    " --mca orte_default_hostfile none "));
}

LaunchRequest request_on(const std::string& hosts, int np = 0) {
    LaunchRequest request = request_for(np, false);
    request.hosts = hosts;
    return request;
}

TEST(MpirunLine, StartsRanksOnHostsWithoutSocketsWhereAllAreThisOneAndRefusesHostsThatMakeNoSense) {
    const auto text = shell_text(mpirun_line(request_on("127.0.0.1:2,127.0.0.1"), allowing()));
    EXPECT_THAT(text, StartsWith("mpirun -np 3 --host 127.0.0.1:3 "));
    EXPECT_THAT(text, HasSubstr("--mca btl self,vader --mca ras '^slurm,"));
    EXPECT_THAT(shell_text(mpirun_line(request_on("127.0.0.1:4", 2), allowing())),
                StartsWith("mpirun -np 2 --host 127.0.0.1:4 "));
    const auto code = [](const LaunchRequest& request) {
        return caught_code([&] { mpirun_line(request, allowing()); });
    };
    EXPECT_EQ(code(request_on("no-such-host.invalid:2")), "E647");
    EXPECT_EQ(code(request_on("127.0.0.1:x")), "E607");
    EXPECT_EQ(code(request_on("127.0.0.1:2", 3)), "E607");
    EXPECT_THAT(caught_text([] { mpirun_line(request_on("::1:1"), allowing()); }),
                HasSubstr("E647: host '::1' has no IPv4 address"));
}

TEST(LaunchNetwork, LeadsToAllHostsAndCarriesMessagesBySocketsUnlessHostsHaveRdmaInCommon) {
    EXPECT_EQ(shell_text(network_words({.is_needed = true, .network = "10.0.0.0/24", .note = {}})),
              "--mca btl self,vader,tcp --mca btl_tcp_if_include 10.0.0.0/24 --mca "
              "oob_tcp_if_include 10.0.0.0/24");
    EXPECT_THAT(network_words({.is_needed = true, .network = {}, .note = {}}),
                ElementsAre("--mca", "btl", "self,vader,tcp"));
    const Environment none{std::map<std::string, std::string>{}};
    const Environment chosen(std::map<std::string, std::string>{{"OMPI_MCA_pml", "ucx"}});
    const LaunchNetwork sockets{.is_needed = true, .network = "10.0.0.0/24", .note = {}};
    const LaunchNetwork rdma{
        .is_needed = true, .network = "10.0.0.0/24", .note = {}, .has_rdma = true};
    EXPECT_THAT(carrier_words(sockets, none), ElementsAre("--mca", "pml", "ob1"));
    EXPECT_THAT(carrier_words({}, chosen), ElementsAre("--mca", "pml", "ob1")) << "one node";
    EXPECT_THAT(carrier_words(rdma, none), IsEmpty());
    EXPECT_THAT(carrier_words(sockets, chosen), IsEmpty());
    EXPECT_EQ(network_words(rdma), network_words(sockets)) << "what there is beside it";
}

TEST(LaunchNetwork, IsTheUsersWhereVariablesChooseIt) {
    const std::vector<std::string> hosts{"192.0.2.7"};  // nobody's: nothing may be asked there
    const Environment environment(
        std::map<std::string, std::string>{{"OMPI_MCA_oob_tcp_if_include", "eth7"}});
    const auto network = network_towards(hosts, {}, environment);
    EXPECT_TRUE(network.is_needed);
    EXPECT_EQ(network.network, "");
    EXPECT_THAT(network.note, HasSubstr("OMPI_MCA_oob_tcp_if_include is set"));
}

TEST(MpirunLine, AllowsMoreRanksThanCoresOnlyIfAsked) {
    EXPECT_THAT(mpirun_line(request_for(100'000, true), allowing()), Contains("--oversubscribe"));
    EXPECT_EQ(caught_code([] { mpirun_line(request_for(100'000, false), allowing()); }), "E601");
    const auto text = [] {
        return caught_text([] { mpirun_line(request_for(100'000, false), allowing()); });
    };
    EXPECT_THAT(text(), Not(HasSubstr("nodes of this job")));
    ::setenv("SLURM_JOB_NUM_NODES", "2", 1);
    EXPECT_THAT(text(), HasSubstr("over the 2 nodes of this job: mpirun lockstep"));
    ::unsetenv("SLURM_JOB_NUM_NODES");
}

TEST(MpirunLine, RefusesRootWithoutLeave) {
    const Environment none{std::map<std::string, std::string>{}};
    const auto code = caught_code([&] { mpirun_line(request_for(1, false), none); });
    EXPECT_EQ(code, ::geteuid() == 0 ? "E603" : "");
}

TEST(ShellText, QuotesWhatAShellWouldChangeAndIsReadBackByOne) {
    EXPECT_EQ(shell_text({"mpirun", "-np", "2", "--lr=3e-4", "a/b_c.d:e,f+g@h%"}),
              "mpirun -np 2 --lr=3e-4 a/b_c.d:e,f+g@h%");
    EXPECT_EQ(shell_text({"a b", "", "$HOME", "it's", "x;y", "*"}),
              R"('a b' '' '$HOME' 'it'\''s' 'x;y' '*')");
    EXPECT_EQ(shell_text({}), "");
    const std::vector<std::string> words = {"printf", "%s\\n", "a b", "it's", "$x `y` \"z\"", "~"};
    const auto result = run_process({"sh", "-c", shell_text(words)});
    EXPECT_EQ(result.output, "a b\nit's\n$x `y` \"z\"\n~\n");
}

/// This process's stderr, or `fd` instead, is a pipe as long as it lives.
class OtherStderr {
  public:
    explicit OtherStderr(int fd = STDERR_FILENO) : fd_(fd), before_(::dup(fd)) {
        int ends[2];
        EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
        reader_ = UniqueFd(ends[0]);
        ::dup2(ends[1], fd_);
        ::close(ends[1]);
        ::fcntl(reader_.value(), F_SETFL, O_NONBLOCK);
    }
    ~OtherStderr() { ::dup2(before_.value(), fd_); }
    OtherStderr& operator=(OtherStderr&&) = delete;

    std::string read() {
        std::string text, piece(1 << 16, '\0');
        for (ssize_t got; (got = ::read(reader_.value(), piece.data(), piece.size())) > 0;)
            text += piece.substr(0, static_cast<std::size_t>(got));
        return text;
    }
    void stop_reading() { reader_.reset(); }

  private:
    int fd_;
    UniqueFd before_, reader_;
};

class LauncherOutputs : public InFolder {
  protected:
    /// Of start 3, with a place once `has_place_`.
    LauncherLog log() {
        return {3, [this](LaunchState) { return has_place_ ? folder_ / "i3" : fs::path(); }};
    }
    void run(const std::string& script, const KeptOutput& limits = {}) {
        Child child = start_child({"bash", "-c", script}, {}, ChildPipes::apart);
        LauncherOutput output(std::move(child.errors), log(), limits);
        reap_child(child.pid);
        while (output.has_more()) output.move();
    }
    fs::path file() const { return folder_ / "i3" / fmt::format("launcher-{}.jsonl", host_name()); }
    std::vector<std::string> kept() const {
        std::vector<std::string> texts;
        std::ifstream lines(file());
        for (std::string line; std::getline(lines, line);) {
            const Json record = parse_json(line, "record");
            EXPECT_EQ(record.at("event"), "launcher");
            EXPECT_EQ(record.at("start"), 3);
            EXPECT_TRUE(record.at("rank").is_null());
            texts.push_back(record.at("text").get<std::string>());
        }
        return texts;
    }

    bool has_place_ = true;
};

TEST_F(LauncherOutputs, GoOnUnchangedAndAreKeptByLine) {
    OtherStderr seen;
    run("printf 'one\\n\\033[1mtwo\\n\\nno end' >&2; echo not this");
    EXPECT_EQ(seen.read(), "one\n\033[1mtwo\n\nno end");
    EXPECT_THAT(kept(), ElementsAre("one", "?[1mtwo", "", "no end"));
}

constexpr const char* rule =
    "--------------------------------------------------------------------------\\n";

TEST_F(LauncherOutputs, ShowOpenMpisBoxesWithoutRulesAndNoiseNotAtAll) {
    OtherStderr seen;
    const std::string box = "The job has\\nmore processes.\\n\\n  App: true\\n";
    run(fmt::format(
        "printf 'a\\n{0}{1}{0}{0}Primary job  terminated normally, but\\n1 failed.\\n{0}' "
        ">&2; echo '[n1:7] 1 more process has sent help message x' >&2; "
        "echo '[n1:7] [[2,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file "
        "../../../orte/util/show_help.c at line 501' >&2; echo '[warn] Epoll MOD(1) on fd 24 "
        "failed. Old events were 6' >&2; echo [b] >&2",
        rule,
        box));
    EXPECT_EQ(seen.read(), "a\nOpen MPI: The job has\n  more processes.\n    App: true\n[b]\n");
    EXPECT_EQ(kept().size(), 15u) << "all of them";
}

TEST_F(LauncherOutputs, ShowABoxWithoutAnEndAsItCame) {
    OtherStderr seen;
    run(fmt::format("printf -- '{}half\\n--' >&2", rule));
    EXPECT_EQ(seen.read(), std::string(74, '-') + "\nhalf\n--");
    run("printf -- '----\\n-----' >&2");
    EXPECT_EQ(seen.read(), "----\n-----") << "a program's own rules";
}

TEST_F(LauncherOutputs, ShowWhatWasHeldBackOnceNothingMoreComes) {
    OtherStderr seen;
    Child child =
        start_child({"bash", "-c", "printf 'Sure? \\n[y/n] ' >&2"}, {}, ChildPipes::apart);
    LauncherOutput output(std::move(child.errors), log());
    reap_child(child.pid);
    while (output.has_more()) output.move();
    EXPECT_EQ(seen.read(), "Sure? \n");
    output.settle();
    output.settle();
    output.move();
    EXPECT_EQ(seen.read(), "[y/n] ");
}

TEST_F(LauncherOutputs, WaitForAPlace) {
    OtherStderr seen;
    Child child = start_child({"bash", "-c", "echo early >&2"}, {}, ChildPipes::apart);
    LauncherOutput output(std::move(child.errors), log());
    reap_child(child.pid);
    has_place_ = false;
    while (output.has_more()) output.move();
    output.settle();
    EXPECT_FALSE(fs::exists(file()));
    has_place_ = true;
    output.settle();
    EXPECT_THAT(kept(), ElementsAre("early")) << "at once: this process may be killed";
}

TEST_F(LauncherOutputs, LeaveNothingWhereThereIsNoPlaceOrNothingToKeep) {
    OtherStderr seen;
    run("true");
    EXPECT_FALSE(fs::exists(folder_ / "i3"));
    has_place_ = false;
    run("echo words >&2");
    EXPECT_FALSE(fs::exists(folder_ / "i3"));
    EXPECT_EQ(seen.read(), "words\n");
}

TEST_F(LauncherOutputs, KeepTheBeginningAndTheEndOfMuch) {
    OtherStderr seen;
    run("for ((i = 1; i <= 500; ++i)); do echo \"line $i\"; done >&2",
        {.head_bytes = 3000, .tail_bytes = 1500});
    EXPECT_THAT(seen.read(), EndsWith("line 499\nline 500\n"));
    const auto lines = kept();
    ASSERT_GT(lines.size(), 10u);
    EXPECT_LT(lines.size(), 60u);
    EXPECT_EQ(lines.front(), "line 1");
    EXPECT_EQ(lines.back(), "line 500");
    EXPECT_THAT(lines, Contains(MatchesRegex("\\([0-9]+ lines were not kept\\)")));
}

TEST_F(LauncherOutputs, DoNotWaitForAReader) {
    OtherStderr seen;
    Child child = start_child(
        {"bash", "-c", "head -c 200000 /dev/zero | tr '\\0' x >&2"}, {}, ChildPipes::apart);
    LauncherOutput output(std::move(child.errors), log());
    while (output.awaited().fd != STDERR_FILENO) output.move();
    output.move();
    EXPECT_TRUE(output.has_more()) << "it waits for a reader, and this process does not";
    std::string text = seen.read();
    while (text.size() < 200000) {
        output.move();
        text += seen.read();
    }
    EXPECT_EQ(text, std::string(200000, 'x'));
    reap_child(child.pid);
}

// What keeps its supervisor busy all the time.
TEST_F(LauncherOutputs, DoNotKeepALauncherAlive) {
    OtherStderr seen;
    seen.stop_reading();
    SupervisedRanks ranks{.have_begun = [] { return false; }, .log = log()};
    ranks.limits = {.begin_s = 1, .gone_s = 60, .end_s = 0.2};
    EXPECT_EQ(
        caught_code([&] {
            supervise({"bash", "-c", "trap '' TERM; while :; do echo words; done >&2"}, {}, ranks);
        }),
        "E691");
    EXPECT_LT(fs::file_size(file()), 3u << 20);
}

TEST_F(LauncherOutputs, AreNotWaitedForByWhoInterruptsTwice) {
    OtherStderr seen;
    SupervisedRanks ranks{.have_begun = [] { return true; }, .log = log()};
    const std::string flood =
        "trap '' USR2; yes >&2 & for i in {1..150}; do sleep 0.2; kill -INT $PPID; done";
    EXPECT_EQ(supervise({"bash", "-c", flood}, {}, ranks), 130);
}

// mpirun would crash if its own stdout were closed.
TEST_F(LauncherOutputs, OfATrainingGoOnWithoutAReader) {
    OtherStderr seen, words(STDOUT_FILENO);
    words.stop_reading();
    const SupervisedRanks training{.have_begun = [] { return true; }, .log = log()};
    const std::string talk = "for i in {1..40}; do echo line $i || exit 1; sleep 0.01; done";
    EXPECT_EQ(supervise({"bash", "-c", talk}, {}, training), 0);
    EXPECT_THAT(kept(), ElementsAre(HasSubstr("stdout is closed")));
    EXPECT_THAT(seen.read(), StartsWith("warn: stdout is closed"));
    EXPECT_EQ(supervise({"bash", "-c", talk + "; sleep 60"}, {}), 128 + SIGPIPE)
        << "others have nothing to save";
    EXPECT_EQ(seen.read(), "");
}

TEST_F(LauncherOutputs, OfATrainingGoOnWhereStdoutTakesNoMoreAndOthersFailAtTheirEnd) {
    OtherStderr seen, words(STDOUT_FILENO);
    const UniqueFd sealed(::memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::fcntl(sealed.value(), F_ADD_SEALS, F_SEAL_WRITE), 0);
    ::dup2(sealed.value(), STDOUT_FILENO);
    const SupervisedRanks training{.have_begun = [] { return true; }, .log = log()};
    EXPECT_EQ(supervise({"bash", "-c", "echo a; sleep 0.2; echo b; sleep 0.2"}, {}, training), 0);
    EXPECT_THAT(kept(), ElementsAre(HasSubstr("stdout cannot be written")));
    EXPECT_THAT(seen.read(),
                StartsWith("warn: stdout cannot be written (Operation not permitted)"));
    EXPECT_EQ(caught_code([] { supervise({"echo", "a"}, {}); }), "E202");
}

TEST_F(LauncherOutputs, AreKeptWhereNobodyReadsThemAnyMore) {
    OtherStderr seen;
    seen.stop_reading();
    run("echo words >&2");
    EXPECT_THAT(kept(), ElementsAre("words"));
    struct sigaction now {};
    ::sigaction(SIGPIPE, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace lockstep
