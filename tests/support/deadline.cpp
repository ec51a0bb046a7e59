// SPDX-License-Identifier: Apache-2.0
#include "support/deadline.hpp"

#include "lockstep/core/error.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep::test {
namespace {

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

}  // namespace

ProgressBoard::ProgressBoard(const Communicator& ranks) : rank_(ranks.rank()), size_(ranks.size()) {
    const std::size_t bytes = sizeof(Progress) * static_cast<std::size_t>(size_);
    const std::string name = ranks.broadcast(ranks.is_root() ? make_board_file(bytes) : "");
    entries_ = map_board_file(name, bytes);
    enter("the start of the program");
    ranks.barrier();
    if (ranks.is_root()) ::unlink(name.c_str());
}

ProgressBoard::~ProgressBoard() {
    ::munmap(entries_, sizeof(Progress) * static_cast<std::size_t>(size_));
}

void ProgressBoard::enter(const std::string& test) {
    std::snprintf(mine().test.data(), mine().test.size(), "%s", test.c_str());
}

std::string ProgressBoard::verdict() const {
    std::map<Place, std::vector<int>> places;
    for (int rank = 0; rank < size_; ++rank)
        places[{entries_[rank].test.data(), entries_[rank].call.data()}].push_back(rank);
    std::string stuck, waiting;
    for (const auto& [place, ranks] : places)
        (place.second.empty() ? stuck : waiting) += line_for(place, ranks);
    return stuck + waiting;
}

Deadline::Deadline(double seconds, const Communicator& ranks, ProgressBoard& board)
    : ranks_(ranks), board_(board), main_thread_(::pthread_self()) {
    caught_progress = &board.mine();
    std::array<void*, 1> warm_up;
    ::backtrace(warm_up.data(), 1);  // loads libgcc now, not inside the handler
    struct sigaction action = {};
    action.sa_handler = note_place;
    ::sigaction(SIGUSR2, &action, nullptr);
    watchdog_ = std::thread([this, seconds] { watch(seconds); });
}

Deadline::~Deadline() {
    {
        std::lock_guard lock(mutex_);
        done_ = true;
    }
    changed_.notify_all();
    watchdog_.join();
}

void Deadline::watch(double seconds) {
    std::unique_lock lock(mutex_);
    const auto limit = std::chrono::duration<double>(seconds);
    if (!changed_.wait_for(lock, limit, [this] { return done_; })) give_up();
}

void Deadline::give_up() {
    using namespace std::chrono_literals;
    // A spinning rank may be met between two of the calls that give it away: ask several times.
    for (int tries = 0; tries < 20 && board_.mine().call[0] == 0; ++tries) {
        ::pthread_kill(main_thread_, SIGUSR2);
        std::this_thread::sleep_for(10ms);
    }
    const bool speaks = ranks_.is_root();
    // Ranks start at slightly different times; others speak up only if rank 0 has lost its voice.
    std::this_thread::sleep_for(speaks ? 2s : 15s);
    const std::string text = "[ DEADLINE ] this test program took too long\n" + board_.verdict();
    std::fputs(text.c_str(), stderr);
    ranks_.abort(deadline_exit_code);
}

}  // namespace lockstep::test
