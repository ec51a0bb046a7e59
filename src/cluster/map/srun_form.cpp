// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/core/error.hpp"

#include "plan_forms.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// "0xff00": one bit for each CPU.
std::string mask_of(const std::vector<int>& cpus) {
    if (cpus.empty()) return "0x0";
    std::vector<unsigned> digits(static_cast<std::size_t>(cpus.back()) / 4 + 1);
    for (const int cpu : cpus) digits[static_cast<std::size_t>(cpu) / 4] |= 1u << (cpu % 4);
    std::string text = "0x";
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit)
        text += fmt::format("{:x}", *digit);
    return text;
}

std::string masks_of(const HostSeats& host) {
    std::vector<std::string> masks;
    for (const auto& seat : host.seats) masks.push_back(mask_of(seat.cpus));
    return fmt::format("{}", fmt::join(masks, ","));
}

void check_form(const std::vector<HostSeats>& hosts, const char* form) {
    check(!hosts.empty() && !hosts.front().seats.front().cpus.empty(), [&] {
        return Error("E645",
                     fmt::format("a plan without cores has no form '{}'", form),
                     "nothing is known of the nodes",
                     "give --topology FILE, made on such a node by 'lockstep map --save-topology'");
    });
    check(are_hosts_alike(hosts), [&] {
        return Error("E645",
                     fmt::format("this plan has no form '{}'", form),
                     "srun binds every node alike, and here nodes have different ranks",
                     "the same number of ranks on every node, or --format rankfile with mpirun");
    });
}

/// Options that the step and the batch job have in common.
std::vector<std::string> shape_of(const std::vector<HostSeats>& hosts) {
    const auto& first = hosts.front();
    std::vector<std::string> words{fmt::format("--nodes={}", hosts.size()),
                                   fmt::format("--ntasks-per-node={}", first.seats.size())};
    const auto gpus =
        std::ranges::count_if(first.seats, [](const auto& seat) { return !seat.gpu.empty(); });
    if (gpus > 0) words.push_back(fmt::format("--gpus-per-node={}", gpus));
    return words;
}

std::string task_cpus(const HostSeats& host) {
    std::size_t cpus = 0;
    for (const auto& seat : host.seats) cpus = std::max(cpus, seat.cpus.size());
    return fmt::format("--cpus-per-task={}", cpus);
}

/// A step with --cpus-per-task gets so many CPUs wherever SLURM picks them, and refuses masks that
/// name others: it takes the whole node.
std::string step_line(const Placement& placement, const std::vector<HostSeats>& hosts) {
    return fmt::format("srun --mpi=pmix {} --whole --distribution={} --cpu-bind=mask_cpu:{} {}\n",
                       fmt::join(shape_of(hosts), " "),
                       is_by_slot(placement) ? "block" : "cyclic",
                       masks_of(hosts.front()),
                       train_words(placement));
}

}  // namespace

std::string srun_text(const Placement& placement) {
    const auto hosts = seats_by_host(placement);
    check_form(hosts, "srun");
    return step_line(placement, hosts);
}

std::string sbatch_text(const Placement& placement) {
    const auto hosts = seats_by_host(placement);
    check_form(hosts, "sbatch");
    std::string text = "#!/bin/bash\n";
    for (const auto& word : shape_of(hosts)) text += "#SBATCH " + word + "\n";
    text += "#SBATCH " + task_cpus(hosts.front()) + "\n";
    // Masks name CPUs of the whole node; a job with a part of it has others.
    text += "#SBATCH --exclusive\n#SBATCH --signal=USR1@120\n";
    return text + "\n" + step_line(placement, hosts);
}

}  // namespace lockstep
