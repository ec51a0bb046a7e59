// SPDX-License-Identifier: Apache-2.0
#include "one_node.hpp"

#include "lockstep/core/error.hpp"

#include <array>
#include <cstdint>

#include <fmt/format.h>

namespace lockstep {

bool are_on_one_node(const Communicator& ranks) {
    std::array<std::int64_t, 1> most_on_a_node = {ranks.split_by_node().size()};
    ranks.all_reduce_max(most_on_a_node);
    return most_on_a_node[0] == ranks.size();
}

void check_one_node(bool are_on_one_node, const Communicator& ranks) {
    check(are_on_one_node, [&] {
        return Error("E631",
                     fmt::format("{} ranks on several nodes cannot share memory", ranks.size()),
                     "shared memory was asked for by name",
                     "leave the choice to Lockstep, or ask for what crosses nodes");
    });
}

}  // namespace lockstep
