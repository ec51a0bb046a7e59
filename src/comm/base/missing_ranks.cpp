// SPDX-License-Identifier: Apache-2.0
#include "missing_ranks.hpp"

#include "lockstep/core/clock.hpp"

#include <fmt/format.h>

namespace lockstep {

Error missing_ranks_error(std::span<const int> missing,
                          std::string_view purpose,
                          double deadline_s) {
    return Error("E630",
                 fmt::format("{} {} did not come to '{}' within {}",
                             missing.size() == 1 ? "rank" : "ranks",
                             fold_ranks(missing),
                             purpose,
                             duration_text(deadline_s)),
                 "it ended, hangs, or is much slower than the others",
                 "its own log says what it was doing; start the same command again to resume");
}

}  // namespace lockstep
