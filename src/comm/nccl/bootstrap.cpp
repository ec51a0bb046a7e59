// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/bootstrap.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include <fmt/format.h>

namespace lockstep {

std::vector<std::string> gather_all(Bootstrap& bootstrap,
                                    const std::string& bytes,
                                    double deadline_s,
                                    const std::string& purpose) {
    std::vector<std::string> all;
    std::vector<int> missing;
    const auto found = bootstrap.gather_within(bytes, deadline_s);
    for (int rank = 0; rank < bootstrap.size(); ++rank) {
        const auto& text = found[static_cast<std::size_t>(rank)];
        if (!text) missing.push_back(rank);
        all.push_back(text.value_or(""));
    }
    check(missing.empty(), [&] {
        return Error("E630",
                     fmt::format("{} {} did not come to '{}' within {}",
                                 missing.size() == 1 ? "rank" : "ranks",
                                 fold_ranks(missing),
                                 purpose,
                                 duration_text(deadline_s)),
                     "it ended, hangs, or is much slower than the others",
                     "its own log says what it was doing");
    });
    return all;
}

}  // namespace lockstep
