// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/bind_rank.hpp"

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/cluster/early_binding.hpp"
#include "lockstep/cluster/memory_policy.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"

#include <exception>

namespace lockstep {
namespace {

EarlyBinding own_binding(const RankFacts& facts) {
    const Environment environment;
    if (!may_bind(facts.launch(), environment)) return {};
    return early_binding(facts.node(), facts.launch(), environment, launcher_cpus());
}

}  // namespace

std::map<std::string, std::string> bind_rank(const RankFacts& facts) {
    try {
        const EarlyBinding binding = own_binding(facts);
        if (binding.memory_node) prefer_memory_of(*binding.memory_node);
        if (binding.cpus.empty() || !bind_thread(binding.cpus)) return {};
        return binding.variables;
    } catch (const std::exception&) {
        return {};  // what is wrong with the launch is said by all ranks together, once MPI is
                    // there
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

}  // namespace lockstep
