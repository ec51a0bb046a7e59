// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/link_times.hpp"

#include <algorithm>

namespace lockstep {

void describe(Record& record, LinkTimes& times) {
    record.field("from", times.from);
    record.field("messages", times.messages);
    record.field("bytes", times.bytes);
    record.field("seconds", times.seconds);
}

void add_links(std::vector<LinkTimes>& sums, std::span<const LinkTimes> more) {
    for (const LinkTimes& times : more) {
        auto at = std::ranges::lower_bound(sums, times.from, {}, &LinkTimes::from);
        if (at == sums.end() || at->from != times.from) at = sums.insert(at, {.from = times.from});
        at->messages += times.messages;
        at->bytes += times.bytes;
        at->seconds += times.seconds;
    }
}

}  // namespace lockstep
