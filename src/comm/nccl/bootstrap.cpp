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
                     fmt::format("{} did not come to '{}' within {}",
                                 ranks_text(missing),
                                 purpose,
                                 duration_text(deadline_s)),
                     "it ended, hangs, or is much slower than the others",
                     "its own log says what it was doing");
    });
    return all;
}

std::vector<std::string> gather_or_fail(Bootstrap& bootstrap,
                                        const std::function<std::string()>& mine,
                                        double deadline_s,
                                        const std::string& purpose) {
    std::optional<Error> failure;
    std::string text;
    try {
        text = "=" + mine();
    } catch (const Error& error) {
        failure = error;
        text = fmt::format("!{}", error.what());
    }
    auto all = gather_all(bootstrap, text, deadline_s, purpose);
    if (failure) throw *failure;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        expect(!all[rank].empty(), "every rank says '=' or '!'");
        check(all[rank].front() == '=', [&] {
            return Error("E682",
                         fmt::format("rank {} gave up: {}", rank, all[rank].substr(1)),
                         fmt::format("all ranks were at '{}'", purpose),
                         "the log of that rank has its error in full");
        });
        all[rank].erase(0, 1);
    }
    return all;
}

}  // namespace lockstep
