// SPDX-License-Identifier: Apache-2.0
#include "launch_limits.hpp"

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <sys/resource.h>

namespace lockstep {
namespace {

// mpirun was seen to need 40 for 2 ranks, 48 for 4 and 64 for 8; with fewer it waits for ever.
rlim_t files_for(int ranks) {
    return 32 + 8 * static_cast<rlim_t>(std::max(ranks, 1));
}

// Nodes of a job may have cores for all ranks, where --np starts them on this node alone.
std::string other_nodes() {
    const auto nodes = parse_integer(Environment().text("SLURM_JOB_NUM_NODES").value_or(""));
    if (nodes.value_or(1) < 2) return {};
    return fmt::format("; over the {} nodes of this job: mpirun lockstep ..., without --np",
                       *nodes);
}

constexpr rlim_t largest_file_of_mpi = 16 << 20;

void settle_open_files(int ranks) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= files_for(ranks)) return;
    check(limit.rlim_max >= files_for(ranks), [&] {
        return Error(
            "E693",
            fmt::format("this process may open {} files, mpirun needs {} for {} rank(s)",
                        limit.rlim_max,
                        files_for(ranks),
                        ranks),
            "the limit of this shell or job (ulimit -n) is too low",
            fmt::format("ulimit -n {} or more; or ask the administrators to raise the limit",
                        files_for(ranks)));
    });
    limit.rlim_cur = files_for(ranks);
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

void check_file_size() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return;
    check(limit.rlim_cur >= largest_file_of_mpi, [&] {
        return Error(
            "E693",
            fmt::format("files of this process may have at most {}, but Open MPI's have up to {}",
                        bytes_text(limit.rlim_cur),
                        bytes_text(largest_file_of_mpi)),
            "the limit of this shell or job (ulimit -f) is too low; checkpoints can be "
            "larger still",
            "ulimit -f unlimited");
    });
}

}  // namespace

void check_cores(int ranks) {
    const std::size_t cores = read_node_facts().allowed_cpus.size();
    check(cores == 0 || static_cast<std::size_t>(ranks) <= cores, [&] {
        return Error(
            "E601",
            fmt::format("--np {} asks for more ranks than cores", ranks),
            fmt::format("this process may use {} core(s)", cores),
            fmt::format("use --np {}, or --oversubscribe for a test", cores) + other_nodes());
    });
}

void settle_limits(int ranks) {
    settle_open_files(ranks);
    check_file_size();
}

}  // namespace lockstep
