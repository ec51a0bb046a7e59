// SPDX-License-Identifier: Apache-2.0
#include "nccl/rank_facts.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"

#include "nccl/nccl_api.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// Settings of places and output: each rank may have its own. All others decide what is sent.
constexpr auto may_differ = std::to_array<std::string_view>({"NCCL_HOSTID",
                                                             "NCCL_DEBUG",
                                                             "NCCL_SOCKET_IFNAME",
                                                             "NCCL_IB_HCA",
                                                             "NCCL_TOPO_",
                                                             "NCCL_GRAPH_",
                                                             "NCCL_RAS_ADDR",
                                                             "NCCL_CONF_FILE",
                                                             "NCCL_COMM_ID"});

bool must_be_equal(const std::string& name) {
    return name.starts_with("NCCL_") &&
           std::ranges::none_of(may_differ, [&](auto prefix) { return name.starts_with(prefix); });
}

/// NAME=value lines; what is there already stays.
void add_file(std::map<std::string, std::string>& settings, const std::string& path) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        const std::size_t equals = line.find('=');
        if (line.starts_with('#') || equals == std::string::npos) continue;
        settings.try_emplace(line.substr(0, equals), line.substr(equals + 1));
    }
}

/// "2.28.9 on ranks 0-2, 2.27.3 on rank 3": who has which value; "" if all have the same.
template <class ValueOf>
std::string differences(const std::vector<NcclRankFacts>& facts, ValueOf&& of) {
    std::map<std::string, std::vector<int>> ranks;
    for (std::size_t rank = 0; rank < facts.size(); ++rank)
        ranks[of(facts[rank])].push_back(static_cast<int>(rank));
    std::vector<std::string> parts;
    for (const auto& [value, who] : ranks)
        parts.push_back(fmt::format("{} on {}", value, ranks_text(who)));
    return parts.size() < 2 ? "" : fmt::format("{}", fmt::join(parts, ", "));
}

void check_versions(const std::vector<NcclRankFacts>& facts) {
    const auto versions = differences(
        facts, [](const NcclRankFacts& rank) { return nccl_version_text(rank.nccl_version); });
    check(versions.empty(),
          "E674",
          fmt::format("ranks have different NCCLs: {}", versions),
          "different versions cannot communicate",
          "name the same file on all nodes with LOCKSTEP_NCCL_LIB");
}

std::string value_of(const NcclRankFacts& rank, const std::string& name) {
    const auto found = rank.settings.find(name);
    return found == rank.settings.end() ? "unset" : fmt::format("'{}'", found->second);
}

void check_settings(const std::vector<NcclRankFacts>& facts) {
    std::set<std::string> names;
    for (const NcclRankFacts& rank : facts)
        for (const auto& setting : rank.settings) names.insert(setting.first);
    std::string differ;
    for (const std::string& name : names) {
        const auto values =
            differences(facts, [&](const NcclRankFacts& rank) { return value_of(rank, name); });
        if (!values.empty())
            differ += fmt::format("{}{} is {}", differ.empty() ? "" : "; ", name, values);
    }
    check(differ.empty(),
          "E675",
          fmt::format("ranks have different NCCL settings: {}", differ),
          "NCCL would choose different algorithms on different ranks and hang",
          "set them in the job script and pass them on (mpirun -x NAME, srun "
          "--export=ALL), or in /etc/nccl.conf of all nodes");
}

}  // namespace

void check_gpus_apart(const std::vector<NcclRankFacts>& facts) {
    std::map<std::pair<std::string, std::string>, int> taken;
    for (std::size_t rank = 0; rank < facts.size(); ++rank) {
        const NcclRankFacts& mine = facts[rank];
        const auto [first, is_new] =
            taken.try_emplace({mine.host_id, mine.gpu_uuid}, static_cast<int>(rank));
        check(is_new,
              "E673",
              fmt::format("ranks {} and {} use the same GPU: {} ({}) of {}",
                          first->second,
                          rank,
                          mine.gpu_uuid,
                          mine.gpu_pci,
                          mine.host),
              "NCCL gives each rank a GPU of its own",
              "start at most as many ranks on a node as it has GPUs (mpirun --map-by "
              "ppr:N:node, or srun --ntasks-per-node=N --gpus-per-node=N), and leave "
              "CUDA_VISIBLE_DEVICES equal on all ranks of a node");
    }
}

std::vector<KnownFault> known_nccl_faults(const std::vector<NcclRankFacts>& facts) {
    const bool is_one_host =
        std::ranges::adjacent_find(facts, std::ranges::not_equal_to(), &NcclRankFacts::host_id) ==
        facts.end();
    const NcclRankFacts& any = facts.front();
    return known_faults({.nccl = any.nccl_version,
                         .has_several_hosts = !is_one_host,
                         .disables_pxn = any.settings.contains("NCCL_PXN_DISABLE")});
}

void describe(Record& record, NcclRankFacts& facts) {
    LOCKSTEP_EACH(record.field, facts.host, facts.host_id, facts.gpu_uuid);
    LOCKSTEP_EACH(record.field, facts.gpu_pci, facts.nccl_version, facts.settings);
}

std::map<std::string, std::string> nccl_variables(const Environment& environment,
                                                  const std::string& root) {
    std::map<std::string, std::string> settings;
    for (const std::string& name : environment.names_with_prefix("NCCL_"))
        settings[name] = environment.text(name).value_or("");
    const std::string home = environment.text("HOME").value_or("");
    add_file(settings, environment.text("NCCL_CONF_FILE").value_or(home + "/.nccl.conf"));
    add_file(settings, root + "/etc/nccl.conf");
    return settings;
}

std::string nccl_variable(const std::map<std::string, std::string>& variables,
                          const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
}

std::map<std::string, std::string> nccl_settings(const Environment& environment,
                                                 const std::string& root) {
    auto settings = nccl_variables(environment, root);
    std::erase_if(settings, [](const auto& setting) { return !must_be_equal(setting.first); });
    return settings;
}

std::string nccl_host_id(const Environment& environment, const std::string& root) {
    if (const auto named = environment.text("NCCL_HOSTID")) return *named;
    return text_of(root + "/proc/sys/kernel/random/boot_id") + "/" + host_name();
}

void check_agreement(const std::vector<NcclRankFacts>& facts) {
    check_gpus_apart(facts);
    check_versions(facts);
    check_settings(facts);
}

}  // namespace lockstep
