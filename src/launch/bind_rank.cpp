// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/early_binding.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/launch/live_placement.hpp"
#include "lockstep/launch/rank_facts.hpp"

#include <exception>
#include <utility>

namespace lockstep {
namespace {

EarlyBinding own_binding(const RankFacts& facts) {
    const Environment environment;
    if (!may_bind(facts.launch(), environment)) return {};
    return early_binding(facts.node(), facts.launch(), environment, launcher_cpus());
}

constexpr double gpu_deadline_s = 30;

/// Collective. The rank's seat, or none where ranks cannot be placed: checks of their own say why.
RankSeat planned_seat(const Communicator& ranks, const RankFacts& facts) {
    try {
        const LivePlacement live =
            place_live(ranks, facts, {.gpus = SharingRule::allow, .cores = SharingRule::allow});
        return live.plan.seats[static_cast<std::size_t>(ranks.rank())];
    } catch (const Error&) {
        return {};
    }
}

}  // namespace

std::map<std::string, std::string> bind_rank(const RankFacts& facts) {
    try {
        const EarlyBinding binding = own_binding(facts);
        if (binding.memory_node) prefer_memory_of(*binding.memory_node);
        if (binding.cpus.empty() || !bind_thread(binding.cpus)) return {};
        return binding.variables;
    } catch (const std::exception&) {
        return {};  // all ranks together report faults of the launch once MPI is there
    }
}

std::map<std::string, std::string> kept_cores() {
    const Environment environment;
    if (openmp_binding(environment).empty() || environment.text(bound_variable)) return {};
    return {{bound_variable, cpu_list_text(read_node_facts().allowed_cpus)}};
}

void release_first_thread() {
    const auto bound = Environment().text(bound_variable);
    const auto cpus = parse_cpu_list(bound.value_or(""));
    if (cpus && !cpus->empty()) bind_thread(*cpus);
}

std::string binding_note(const RankFacts& facts) {
    return own_binding(facts).why_not;
}

void select_own_gpu(const Communicator& ranks, const RankFacts& facts, DoctorFacts& mine) {
    const RankSeat seat = planned_seat(ranks, facts);
    const bool is_able = mine.plan.uses_gpus && mine.program.cuda_fault.empty() &&
                         !seat.gpu.empty() && !seat.gpu_uuid.starts_with("MIG-");
    const Communicator able = ranks.split(is_able ? 0 : 1);
    if (!is_able) return;
    const auto bootstrap = make_bootstrap(able);
    try {
        mine.gpu = try_gpu({seat.gpu, seat.gpu_uuid}, *bootstrap, gpu_deadline_s).pci;
    } catch (const Error& error) {
        const bool is_anothers = kind_of(error) == ErrorKind::peer_gave_up;
        if (!is_anothers) mine.program.cuda_fault = error.what();
    }
}

RankFacts::RankFacts() : RankFacts([] { return read_topology(); }) {}

RankFacts::RankFacts(Reader read) : read_(std::move(read)) {}

const LaunchFacts& RankFacts::launch() const {
    if (!launch_) launch_ = read_launch_facts(Environment());
    return *launch_;
}

const NodeTopology& RankFacts::node() const {
    if (!node_) node_ = read_();
    return *node_;
}

}  // namespace lockstep
