// SPDX-License-Identifier: Apache-2.0
#include "file_bootstrap.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"

#include <chrono>
#include <thread>

#include <fmt/format.h>

namespace lockstep {

std::filesystem::path FileBootstrap::path_of(const std::string& kind, int rank) const {
    return folder_ / fmt::format("{}.{}", kind, rank);
}

std::vector<std::optional<std::string>> FileBootstrap::gather_within(const std::string& bytes,
                                                                     double deadline_s) {
    const std::string kind = fmt::format("gather-{}", gathers_++);
    write_file_atomically(path_of(kind, rank_), bytes);
    std::vector<std::optional<std::string>> all(static_cast<std::size_t>(size_));
    const double end = now_s() + deadline_s;
    for (int rank = 0; rank < size_;) {
        if (std::filesystem::exists(path_of(kind, rank))) {
            all[static_cast<std::size_t>(rank)] = read_file(path_of(kind, rank));
            ++rank;
        } else if (now_s() < end) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } else {
            ++rank;
        }
    }
    return all;
}

void FileBootstrap::announce(const std::string& text) {
    write_file_atomically(path_of("notice", rank_), text);
}

std::optional<Notice> FileBootstrap::notice() {
    for (int rank = 0; rank < size_; ++rank) {
        if (rank == rank_ || heard_.contains(rank)) continue;
        if (!std::filesystem::exists(path_of("notice", rank))) continue;
        heard_.insert(rank);
        return Notice{rank, read_file(path_of("notice", rank))};
    }
    return {};
}

}  // namespace lockstep
