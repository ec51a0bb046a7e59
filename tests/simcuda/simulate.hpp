// SPDX-License-Identifier: Apache-2.0
// Changes what the simulation is asked for within a test program.
#pragma once

#include "simcuda/settings.hpp"

#include <cstdlib>
#include <map>
#include <string>

namespace simcuda {

/// Sets these variables for this rank, by their names without "SIMCUDA_", and none of the others
/// that tests set.
inline void simulate(const std::map<std::string, std::string>& variables) {
    for (const char* name :
         {"DELAY_US", "SEED", "MEMORY", "DROP_WAIT", "HANG", "STALL", "LOST", "NCCL_VERSION"})
        ::unsetenv((std::string("SIMCUDA_") + name).c_str());
    for (const auto& [name, value] : variables)
        ::setenv(("SIMCUDA_" + name).c_str(), value.c_str(), 1);
    read_settings();
}

}  // namespace simcuda
