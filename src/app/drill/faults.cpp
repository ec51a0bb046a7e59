// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_status.hpp"

#include "drill/drill.hpp"
#include "train/short_training.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// Also of a training that did not end by itself.
Expectation expect_exit(int code, const Struck& struck) {
    const std::string found =
        struck.exit_code < 0 ? "it did not end" : std::to_string(struck.exit_code);
    return expect_text("exit code", std::to_string(code), found);
}

/// Adds the checks that end every rehearsal: nothing is left, and the run continues as if nothing
/// had happened. The next launcher removes the files of a killed one, so they are checked after it.
void expect_recovery(DrillBed& bed, const Attack& attack, FaultReport& report) {
    report.expectations.push_back(bed.expect_same_parameters(attack));
    report.expectations.push_back(bed.expect_nothing_left(attack));
}

/// Sends `signal` to a rank; "" where it is not there (any more).
std::string hit_rank(const LiveRun& live, int rank, int signal, const char* how) {
    for (const RankTrace& trace : live.traces)
        if (trace.rank == rank && trace.is_running && send_to(live, trace.pid, signal))
            return fmt::format("{} of rank {} (process {} on {}) while it trained",
                               how,
                               rank,
                               trace.pid,
                               trace.host);
    return "";
}

/// Makes the expectation that `logs --first-error` names this rank on this host with this trouble,
/// such as "rank dead", or error code.
Expectation expect_cause(const fs::path& run,
                         int rank,
                         const std::string& host,
                         const std::string& trouble) {
    const auto text = [](int of, const std::string& on, const std::string& what) {
        return fmt::format("rank {} on {}: {}", of, on, what);
    };
    std::string found = "none is told";
    if (const auto cause = root_cause(run, read_incarnation(run)))
        found = text(cause->error.ranks.front(),
                     cause->error.host,
                     cause->is_verdict ? cause->trouble : cause->error.code);
    return expect_text("first error", text(rank, host, trouble), found);
}

/// A rank that is hit by a signal of which it knows nothing.
FaultReport hit(DrillBed& bed, Attack attack, int signal, const char* how, const char* trouble) {
    const int rank = bed.settings.ranks - 1;
    attack.data = bed.data();
    attack.strike = [&](const LiveRun& live) { return hit_rank(live, rank, signal, how); };
    const Struck struck = bed.train(attack);
    FaultReport report{.done = struck.done};
    report.expectations = {expect_exit(76, struck),
                           expect_cause(bed.run(attack.name), rank, host_name(), trouble)};
    expect_recovery(bed, attack, report);
    return report;
}

std::string condition_of(const fs::path& run) {
    try {
        return std::string(run_condition_name(status_of_run(run, StatusDepth::now).condition));
    } catch (const Error& error) {
        return error.code();
    }
}

/// A run whose launcher is sent a signal.
FaultReport hit_launcher(
    DrillBed& bed, const Attack& named, int signal, int exit_code, RunCondition condition) {
    Attack attack = named;
    attack.data = bed.data();
    attack.strike = [&](const LiveRun& live) {
        if (!send_to(live, live.launcher, signal)) return std::string();
        return fmt::format("signal {} to 'lockstep train' (process {})", signal, live.launcher);
    };
    const Struck struck = bed.train(attack);
    bed.wait_until_gone(attack);
    FaultReport report{.done = struck.done};
    report.expectations = {expect_exit(exit_code, struck),
                           expect_text("lockstep status",
                                       std::string(run_condition_name(condition)),
                                       condition_of(bed.run(attack.name)))};
    expect_recovery(bed, attack, report);
    return report;
}

fs::path only_shard(const fs::path& data) {
    for (const auto& entry : fs::directory_iterator(data))
        if (entry.path().extension() == ".h5") return entry.path();
    throw Error("E201", fmt::format("no shard in '{}'", data.string()));
}

/// `bytes` in place of what the file has at `offset`. Returns what was there.
std::string exchange_bytes(const fs::path& file, std::uint64_t offset, const std::string& bytes) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    std::string before(bytes.size(), '\0');
    stream.seekg(static_cast<std::streamoff>(offset));
    stream.read(before.data(), static_cast<std::streamsize>(before.size()));
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    check(stream.good(), "E402", fmt::format("cannot write '{}'", file.string()));
    return before;
}

/// The rank that met an error of its own, as `logs --first-error` says; any will do.
Expectation expect_error(const fs::path& run, const std::string& code) {
    const auto cause = root_cause(run, read_incarnation(run));
    const std::string expected = fmt::format("{}, with its rank on {}", code, host_name());
    if (!cause) return {"first error", expected, "none is told", false};
    const bool is_met = cause->error.code == code && cause->error.host == host_name();
    const std::string found = fmt::format(
        "{}, rank {} on {}", cause->error.code, cause->error.ranks.front(), cause->error.host);
    return {"first error", expected, found, is_met};
}

constexpr double named_within_s = 180;  // 30 s, and the time to begin and to end

/// Ranks of another host, which were stopped.
struct LostRanks {
    std::string host;
    std::vector<int> ranks;
    std::vector<std::int64_t> pids;
};

/// Those of the last host; none where all are here.
LostRanks last_ranks(const LiveRun& live) {
    LostRanks lost{.host = live.traces.back().host};
    if (lost.host == live.traces.front().host) return lost;
    for (const RankTrace& trace : live.traces)
        if (trace.host == lost.host) {
            lost.ranks.push_back(trace.rank);
            lost.pids.push_back(trace.pid);
        }
    return lost;
}

/// Sends a signal on another host, by the program with which mpirun reaches it. Returns whether.
bool signal_there(const LostRanks& lost, const char* signal) {
    const auto agents = Environment().text("OMPI_MCA_plm_rsh_agent").value_or("ssh");
    std::istringstream text(agents.substr(0, agents.find(':')));
    std::vector<std::string> words(std::istream_iterator<std::string>(text), {});
    words.insert(words.end(),
                 {lost.host, fmt::format("kill -{} {}", signal, fmt::join(lost.pids, " "))});
    constexpr double limit_s = 30;
    return run_process(words, {}, limit_s).exit_code == 0;
}

Expectation expect_lost_ranks(const fs::path& run, const LostRanks& lost) {
    const auto cause = root_cause(run, read_incarnation(run));
    const std::string expected =
        fmt::format("E660, of rank(s) {} on {}", fmt::join(lost.ranks, ", "), lost.host);
    if (!cause) return {"first error", expected, "none is told", false};
    const bool is_met = cause->error.code == "E660" && cause->error.host == lost.host &&
                        std::ranges::includes(lost.ranks, cause->error.ranks);
    const std::string found = fmt::format("{}, of rank(s) {} on {}",
                                          cause->error.code,
                                          fmt::join(cause->error.ranks, ", "),
                                          cause->error.host);
    return {"first error", expected, found, is_met};
}

FaultReport kill_rank(DrillBed& bed) {
    return hit(bed, {.name = "killed-rank"}, SIGKILL, "kill -9", "rank dead");
}

FaultReport stop_rank(DrillBed& bed) {
    return hit(bed,
               {.name = "stuck-rank", .more = {"--comm-timeout", "5s"}},
               SIGSTOP,
               "kill -STOP",
               "rank stopped");
}

FaultReport kill_launcher(DrillBed& bed) {
    return hit_launcher(
        bed, {.name = "killed-launcher"}, SIGKILL, 128 + SIGKILL, RunCondition::lost);
}

FaultReport preempt(DrillBed& bed) {
    return hit_launcher(bed, {.name = "preempt"}, SIGTERM, 75, RunCondition::checkpointed);
}

FaultReport damage_data(DrillBed& bed) {
    const Attack attack{.name = "damaged-data", .data = bed.settings.scratch / "damaged"};
    fs::copy(bed.data(), attack.data, fs::copy_options::recursive);
    const fs::path shard = only_shard(attack.data);
    const std::uint64_t middle = fs::file_size(shard) / 2;
    const std::string before = exchange_bytes(shard, middle, "damage");
    const Struck struck = bed.train(attack);
    FaultReport report{
        .done = fmt::format("6 bytes in the middle of '{}' were changed before the training",
                            shard.filename().string())};
    report.expectations = {expect_exit(65, struck), expect_error(bed.run(attack.name), "E213")};
    exchange_bytes(shard, middle, before);
    expect_recovery(bed, attack, report);
    return report;
}

FaultReport lose_node(DrillBed& bed) {
    const std::string& hosts = bed.settings.hosts;
    if (hosts.find(',') == std::string::npos)
        return {.why_skipped =
                    "it needs two nodes, and a --scratch that both see: --hosts a:1,b:1"};
    Attack attack{.name = "node-loss",
                  .data = bed.data(),
                  .more = {"--comm-timeout", "10m"},
                  .hosts = hosts,
                  .limit_s = named_within_s};
    LostRanks lost;
    attack.strike = [&](const LiveRun& live) -> std::string {
        lost = last_ranks(live);
        if (lost.pids.empty() || !signal_there(lost, "STOP")) return "nothing could be stopped";
        return fmt::format("kill -STOP of all ranks on {} while they trained: silence", lost.host);
    };
    const Struck struck = bed.train(attack);
    if (lost.pids.empty())
        return {.why_skipped = fmt::format("no rank of {} was on another host", hosts)};
    signal_there(lost, "KILL");  // they are gone already, unless the launcher could not end them
    return {.done = struck.done,
            .expectations = {expect_exit(76, struck),
                             expect_lost_ranks(bed.run(attack.name), lost),
                             bed.expect_nothing_left(attack),
                             bed.expect_same_parameters(attack)}};
}

/// Returns the reason why no file system could be mounted.
struct MountRefused {
    std::string why;
};

MountRefused refused(const char* what) {
    return {fmt::format("{}: {}", what, std::strerror(errno))};
}

void leave_mounts() {
    const uid_t user = ::geteuid();
    const gid_t group = ::getegid();
    if (::unshare(CLONE_NEWNS) != 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            throw refused("this user may not mount file systems here");
        // Maps one user, who keeps his name: files stay his.
        std::ofstream("/proc/self/setgroups") << "deny";
        std::ofstream("/proc/self/uid_map") << fmt::format("{} {} 1", user, user);
        std::ofstream("/proc/self/gid_map") << fmt::format("{} {} 1", group, group);
    }
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        throw refused("mounts cannot be made private here");
}

FaultReport report_of(const std::function<FaultReport()>& work) {
    try {
        leave_mounts();
        return work();
    } catch (const MountRefused& refusal) {
        return {.why_skipped = refusal.why};
    } catch (const std::exception& exception) {
        const Error error = as_error(exception);
        return {.expectations = {{"the rehearsal", "to its end", error.text(), false}}};
    }
}

[[noreturn]] void be_child(const std::function<FaultReport()>& work, int out, int parent) {
    die_with_parent(parent);
    const std::string text = serialize(report_of(work));
    write_all(out, std::as_bytes(std::span(text)), "pipe");
    ::_exit(0);  // the parent removes what it has made
}

std::string read_to_end(int fd, const std::function<void()>& look) {
    constexpr double pace_s = 0.1;
    std::string text;
    std::array<char, 4096> block{};
    while (true) {
        look();
        const auto got = timed_read(fd, std::as_writable_bytes(std::span(block)), now_s() + pace_s);
        if (got && *got == 0) return text;
        if (got) text.append(block.data(), *got);
    }
}

/// Runs `work` in a child with mounts of its own, for which root's rights or unprivileged user
/// namespaces are needed; they go with it. `look` is called ten times a second meanwhile, and may
/// throw: then the child is told to end, too. The report says why it was skipped where the system
/// refuses, also where `work` throws MountRefused. To be called while there is one thread.
FaultReport with_own_mounts(const std::function<FaultReport()>& work,
                            const std::function<void()>& look) {
    std::array<int, 2> ends{};
    check(::pipe2(ends.data(), O_CLOEXEC) == 0,
          [] { return system_error("open", "a pipe", errno); });
    const UniqueFd in(ends[0]);
    UniqueFd out(ends[1]);
    const int parent = ::getpid();
    const pid_t pid = ::fork();
    check(pid >= 0, [] { return system_error("start", "a process", errno); });
    if (pid == 0) be_child(work, out.value(), parent);
    out.reset();
    std::string text;
    try {
        text = read_to_end(in.value(), look);
    } catch (...) {
        ::kill(pid, SIGTERM);  // it ends its training, and itself
        reap_child(pid);
        throw;
    }
    reap_child(pid);
    return deserialize<FaultReport>(text, "the rehearsal's report");
}

/// Within that: an empty memory file system of `bytes` over the folder `at`. Throws MountRefused.
void mount_small(const fs::path& at, std::uint64_t bytes) {
    const std::string options = fmt::format("size={},mode=0700", bytes);
    if (::mount("tmpfs", at.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
        throw refused("no small file system can be mounted here");
}

constexpr std::uint64_t disk_bytes = 128u << 20, shm_bytes = 1u << 20;

/// Takes all that is left of a file system, also where others take and give meanwhile.
void fill(const fs::path& file) {
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (!fd) throw system_error("create", file, errno);
    constexpr std::uint64_t page_bytes = 4096;
    std::uint64_t size = 0, part = free_bytes(file.parent_path());
    while (part >= page_bytes) {
        if (::posix_fallocate(fd.value(), static_cast<off_t>(size), static_cast<off_t>(part)) == 0)
            size += part;
        else
            part /= 2;
        part = std::min(part, free_bytes(file.parent_path()));
    }
}

/// Checks the training's output, because it may have had no room to log.
Expectation expect_said(const Struck& struck, const std::string& words) {
    const bool is_said = struck.output.find(words) != std::string::npos;
    return {"its message", words, is_said ? words : "it does not say so", is_said};
}

FaultReport fill_disk(DrillBed& bed) {
    const fs::path disk = bed.run("disk");
    fs::create_directory(disk);
    mount_small(disk, disk_bytes);
    Attack attack{.name = "disk/run", .data = bed.data()};
    attack.strike = [&](const LiveRun&) {
        fill(disk / "filler");
        return fmt::format("a file system of {} was filled while the training wrote to it",
                           bytes_text(disk_bytes));
    };
    const Struck struck = bed.train(attack);
    FaultReport report{.done = struck.done};
    const bool is_seen_early = struck.output.find("error E403") != std::string::npos;
    report.expectations = {expect_exit(73, struck),
                           expect_said(struck, is_seen_early ? "error E403" : "error E405"),
                           bed.expect_nothing_left(attack)};
    fs::remove(disk / "filler");
    report.expectations.push_back(bed.expect_same_parameters(attack));
    return report;
}

FaultReport fill_shm(DrillBed& bed) {
    mount_small("/dev/shm", shm_bytes);
    const Attack attack{.name = "full-shm", .data = bed.data()};
    Expectation same = bed.expect_same_parameters(attack);
    same.what = "training all the same";
    FaultReport report{
        .done = fmt::format("a training in whose /dev/shm there are {}", bytes_text(shm_bytes))};
    report.expectations = {same, bed.expect_nothing_left(attack)};
    return report;
}

constexpr std::array faults{
    Fault{"killed-rank", "a rank is killed (kill -9), as when memory runs out", kill_rank},
    Fault{"stuck-rank", "a rank is stopped (kill -STOP)", stop_rank},
    Fault{"killed-launcher", "the command and its child processes are killed", kill_launcher},
    Fault{"preempt", "the job gets TERM, as SLURM sends it before a preemption", preempt},
    Fault{"damaged-data", "some bytes of the data are damaged", damage_data},
    Fault{"full-disk",
          "the run's file system, a small one made for this, becomes full",
          fill_disk,
          true},
    Fault{"full-shm", "a /dev/shm made for this has no room for Open MPI's files", fill_shm, true},
    Fault{"node-loss", "all ranks of the last host in --hosts stop answering", lose_node},
};

}  // namespace

std::span<const Fault> all_faults() {
    return faults;
}

FaultReport rehearse(const Fault& fault, DrillBed& bed) {
    const auto apart = [&] {
        DrillBed own{bed.settings, [](const std::string&) { give_up_if_asked("the drill"); }};
        return fault.rehearse(own);
    };
    const double begin_s = now_s();
    FaultReport report = fault.has_own_mounts
                             ? with_own_mounts(apart, [&] { bed.look(fault.name); })
                             : fault.rehearse(bed);
    report.name = fault.name;
    report.seconds = now_s() - begin_s;
    return report;
}

}  // namespace lockstep
