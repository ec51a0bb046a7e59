// SPDX-License-Identifier: Apache-2.0
#include "mpi_check.hpp"

#include "lockstep/core/error.hpp"

#include <array>
#include <string>

#include <fmt/format.h>
#include <mpi.h>

namespace lockstep {

void check_mpi(int result, std::string_view call) {
    if (result == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(result, text.data(), &length);
    throw Error("E620",
                fmt::format("{} failed: {}", call, text.data()),
                "another rank may have ended, or the network between ranks failed",
                "look at the logs of the other ranks; start the same command again to resume");
}

}  // namespace lockstep
