// SPDX-License-Identifier: Apache-2.0
#include "support/progress_board.hpp"

#include "lockstep/core/error.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
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
    const char* verb = ranks.size() == 1 ? "rank" : "ranks";
    const char* is = ranks.size() == 1 ? "is" : "are";
    if (place.second.empty())
        return fmt::format("{} {} {} stuck in {}\n", verb, fold_ranks(ranks), is, place.first);
    return fmt::format(
        "{} {} {} in {} of {}\n", verb, fold_ranks(ranks), is, place.second, place.first);
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

}  // namespace lockstep::test
