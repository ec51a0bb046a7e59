// SPDX-License-Identifier: Apache-2.0
#include "spin.hpp"

#include <cstring>
#include <string>

#include <sched.h>

namespace lockstep {

Patience patience_of(const Communicator& ranks) {
    cpu_set_t own, all;
    CPU_ZERO(&own);
    CPU_ZERO(&all);
    ::sched_getaffinity(0, sizeof own, &own);
    const std::string bytes(reinterpret_cast<const char*>(&own), sizeof own);
    for (const std::string& gathered : ranks.all_gather(bytes)) {
        cpu_set_t theirs;
        std::memcpy(&theirs, gathered.data(), sizeof theirs);
        CPU_OR(&all, &all, &theirs);
    }
    return CPU_COUNT(&all) < ranks.size() ? Patience::little : Patience::much;
}

}  // namespace lockstep
