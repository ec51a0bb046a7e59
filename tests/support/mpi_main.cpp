// SPDX-License-Identifier: Apache-2.0
// The main of test programs that run on several ranks; and what ends one that hangs, and says which
// ranks hang in which test.
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"

#include "support/mpi_test.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep::test {
namespace {

/// Exit code of a test program that ran past its deadline.
constexpr int deadline_exit_code = 124;

/// One rank's entry. Text is written whole by its owner; a torn read only garbles a diagnosis.
struct Progress {
    std::array<char, 160> test;  ///< "Suite.Name", or what surrounds the tests
    std::array<char, 64> call;   ///< what it waits for others in ("MPI_Barrier"), or ""
};

std::string make_board_file(std::size_t bytes) {
    std::string name = std::filesystem::temp_directory_path() / "lockstep-board-XXXXXX";
    const int fd = ::mkstemp(name.data());
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
        throw std::runtime_error("no board file " + name);
    ::close(fd);
    return name;
}

Progress* map_board_file(const std::string& name, std::size_t bytes) {
    const int fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) throw std::runtime_error("cannot open " + name);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + name);
    return static_cast<Progress*>(memory);
}

/// The test that ranks are in, and what they wait in.
using Place = std::pair<std::string, std::string>;

std::string line_for(const Place& place, const std::vector<int>& ranks) {
    const char* is = ranks.size() == 1 ? "is" : "are";
    if (place.second.empty())
        return fmt::format("{} {} stuck in {}\n", ranks_text(ranks), is, place.first);
    return fmt::format("{} {} in {} of {}\n", ranks_text(ranks), is, place.second, place.first);
}

/// Where every rank is, readable by rank 0 even when a rank no longer answers messages: a file of
/// all ranks' entries, mapped by all and unlinked at once, so that nothing stays behind.
class ProgressBoard {
  public:
    /// Collective.
    explicit ProgressBoard(const Communicator& ranks) : rank_(ranks.rank()), size_(ranks.size()) {
        const std::size_t bytes = sizeof(Progress) * static_cast<std::size_t>(size_);
        const std::string name = ranks.broadcast(ranks.is_root() ? make_board_file(bytes) : "");
        entries_ = map_board_file(name, bytes);
        enter("the start of the program");
        ranks.barrier();
        if (ranks.is_root()) ::unlink(name.c_str());
    }
    ~ProgressBoard() { ::munmap(entries_, sizeof(Progress) * static_cast<std::size_t>(size_)); }
    ProgressBoard(const ProgressBoard&) = delete;
    ProgressBoard& operator=(const ProgressBoard&) = delete;

    Progress& mine() { return entries_[rank_]; }
    void enter(const std::string& test) {
        std::snprintf(mine().test.data(), mine().test.size(), "%s", test.c_str());
    }

    /// Who is stuck, in one line for each place; ranks that only wait inside MPI come after.
    std::string verdict() const {
        std::map<Place, std::vector<int>> places;
        for (int rank = 0; rank < size_; ++rank)
            places[{entries_[rank].test.data(), entries_[rank].call.data()}].push_back(rank);
        std::string stuck, waiting;
        for (const auto& [place, ranks] : places)
            (place.second.empty() ? stuck : waiting) += line_for(place, ranks);
        return stuck + waiting;
    }

  private:
    int rank_, size_;
    Progress* entries_;
};

Progress* caught_progress = nullptr;

void note_call(const char* name) {
    std::snprintf(caught_progress->call.data(), caught_progress->call.size(), "%s", name);
}

/// Runs on the main thread, wherever that is: the innermost frame named MPI_* is what it waits in,
/// or else our own waiting, which gives way to others, and in the end sleeps.
void note_place(int) {
    std::array<void*, 64> frames;
    const int depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
    for (int i = 0; i < depth; ++i) {
        Dl_info symbol;
        if (::dladdr(frames[static_cast<std::size_t>(i)], &symbol) == 0) continue;
        if (symbol.dli_sname == nullptr) continue;
        for (const char* const waits : {"sched_yield", "usleep"})
            if (std::strstr(symbol.dli_sname, waits) != nullptr) note_call("a shared wait");
        const char* name = symbol.dli_sname + (symbol.dli_sname[0] == 'P' ? 1 : 0);
        if (std::strncmp(name, "MPI_", 4) == 0) return note_call(name);
    }
}

/// Watches for `seconds` from construction. Then every rank's watchdog asks its main thread (the
/// one that made it) where it is, and rank 0's prints the verdict and aborts all ranks.
class Deadline {
  public:
    Deadline(double seconds, const Communicator& ranks, ProgressBoard& board)
        : ranks_(ranks), board_(board), main_thread_(::pthread_self()) {
        caught_progress = &board.mine();
        std::array<void*, 1> warm_up;
        ::backtrace(warm_up.data(), 1);  // loads libgcc now, not inside the handler
        struct sigaction action = {};
        action.sa_handler = note_place;
        ::sigaction(SIGUSR2, &action, nullptr);
        watchdog_ = std::jthread([this, seconds](const std::stop_token& over) {
            std::mutex mutex;
            std::unique_lock lock(mutex);
            std::condition_variable_any changed;
            const auto limit = std::chrono::duration<double>(seconds);
            changed.wait_for(lock, over, limit, [] { return false; });
            if (!over.stop_requested()) give_up();
        });
    }

  private:
    void give_up() {
        using namespace std::chrono_literals;
        // A spinning rank may be met between two of the calls that give it away: ask several times.
        for (int tries = 0; tries < 20 && board_.mine().call[0] == 0; ++tries) {
            ::pthread_kill(main_thread_, SIGUSR2);
            std::this_thread::sleep_for(10ms);
        }
        const bool speaks = ranks_.is_root();
        // Ranks start at slightly different times; others speak up only if rank 0 has lost its
        // voice.
        std::this_thread::sleep_for(speaks ? 2s : 15s);
        const std::string text =
            "[ DEADLINE ] this test program took too long\n" + board_.verdict();
        std::fputs(text.c_str(), stderr);
        ranks_.abort(deadline_exit_code);
    }

    const Communicator& ranks_;
    ProgressBoard& board_;
    pthread_t main_thread_;
    std::jthread watchdog_;
};

const Communicator* all_ranks = nullptr;

/// Keeps the board up to date and the ranks together: no rank begins a test before all ended the
/// last one, so that a message is never taken for another test's. Ranks other than 0 print their
/// failures alone, as "[rank 2] file:line: failure in Suite.Name" in one write each.
class Pace : public testing::EmptyTestEventListener {
  public:
    Pace(const Communicator& ranks, ProgressBoard& board) : ranks_(ranks), board_(board) {}

  private:
    void OnTestStart(const testing::TestInfo& test) override {
        board_.enter(fmt::format("{}.{}", test.test_suite_name(), test.name()));
    }
    void OnTestEnd(const testing::TestInfo& test) override {
        board_.enter(fmt::format("the end of {}.{}", test.test_suite_name(), test.name()));
        ranks_.barrier();
    }
    void OnTestPartResult(const testing::TestPartResult& result) override {
        if (ranks_.is_root() || !result.failed()) return;
        const char* file = result.file_name() == nullptr ? "?" : result.file_name();
        std::string text = fmt::format("[rank {}] {}:{}: failure in {}\n",
                                       ranks_.rank(),
                                       file,
                                       result.line_number(),
                                       board_.mine().test.data());
        std::istringstream lines(result.message());
        for (std::string line; std::getline(lines, line);)
            text += fmt::format("[rank {}]   {}\n", ranks_.rank(), line);
        std::fputs(text.c_str(), stderr);
    }

    const Communicator ranks_;
    ProgressBoard& board_;
};

double deadline_s() {
    const char* text = std::getenv("LOCKSTEP_TEST_DEADLINE_S");
    return text == nullptr ? 600.0 : std::atof(text);
}

void make_quiet() {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    GTEST_FLAG_SET(output, "");
}

/// Properties draw the same cases on all ranks.
void share_random_seed(const Communicator& ranks) {
    const char* given = std::getenv("RC_PARAMS");
    std::string params = given == nullptr ? "" : given;
    if (params.empty())
        params = fmt::format("seed={}", testing::UnitTest::GetInstance()->random_seed());
    ::setenv("RC_PARAMS", ranks.broadcast(params).c_str(), 1);
}

/// Collective. The worst exit code of all ranks; rank 0 names the ranks that failed.
int agreed_exit_code(const Communicator& ranks, int mine) {
    std::array<std::int64_t, 1> worst = {mine};
    std::vector<int> failed;
    const std::vector<std::string> codes = ranks.all_gather(std::to_string(mine));
    for (int rank = 0; rank < ranks.size(); ++rank)
        if (codes[static_cast<std::size_t>(rank)] != "0") failed.push_back(rank);
    ranks.all_reduce_max(worst);
    if (ranks.is_root() && !failed.empty())
        fmt::print(stderr, "[  FAILED  ] on rank(s) {} of {}\n", fold_ranks(failed), ranks.size());
    return static_cast<int>(worst[0]);
}

int run_all(const Communicator& world) {
    ProgressBoard board(world);
    Deadline deadline(deadline_s(), world, board);
    if (!world.is_root()) make_quiet();
    share_random_seed(world);
    testing::UnitTest::GetInstance()->listeners().Append(new Pace(world.duplicate(), board));
    const int mine = RUN_ALL_TESTS();
    board.enter("the end of the program");
    return agreed_exit_code(world, mine);
}

}  // namespace

const Communicator& ranks() {
    return *all_ranks;
}

}  // namespace lockstep::test

int main(int argc, char** argv) {
    lockstep::MpiSession session;
    testing::InitGoogleTest(&argc, argv);
    const lockstep::Communicator world = lockstep::Communicator::world();
    const lockstep::Communicator tests = world.duplicate();
    lockstep::test::all_ranks = &tests;
    return lockstep::test::run_all(world);
}
