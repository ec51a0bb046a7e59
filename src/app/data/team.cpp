// SPDX-License-Identifier: Apache-2.0
#include "data/team.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/signals.hpp"

#include <fmt/format.h>

namespace lockstep {

Team team_of(const Communicator& ranks) {
    return {ranks.rank(), ranks.size(), [&ranks](const std::string& bytes) {
                return ranks.all_gather(bytes);
            }};
}

void stop_if_asked(const std::string& doing) {
    check(stop_requested() == StopRequest::none, [&] {
        return Error("E242",
                     fmt::format("{} was interrupted", doing),
                     "a signal ended it; finished parts are kept",
                     "give the same command again to continue");
    });
}

}  // namespace lockstep
