// SPDX-License-Identifier: Apache-2.0
// Facts that must be equal on all ranks, or different, before NCCL starts: each violation would be
// a hang or an obscure error inside NCCL.
#pragma once

#include "lockstep/core/environment.hpp"
#include "lockstep/core/known_faults.hpp"
#include "lockstep/core/record.hpp"

#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct NcclRankFacts {
    std::string host;      ///< for people
    std::string host_id;   ///< for NCCL: NCCL_HOSTID, or this boot of this host
    std::string gpu_uuid;  ///< "GPU-..."
    std::string gpu_pci;
    int nccl_version = 0;
    std::map<std::string, std::string>
        settings;  ///< NCCL_* variables that must be equal on all ranks

    bool operator==(const NcclRankFacts&) const = default;
};

void describe(Record& record, NcclRankFacts& facts);  ///< for serialize() and back

/// Returns NCCL_* of the environment, then of ~/.nccl.conf (or NCCL_CONF_FILE) and /etc/nccl.conf,
/// as NCCL reads them.
std::map<std::string, std::string> nccl_variables(const Environment& environment,
                                                  const std::string& root = "");

/// Returns the value of one of them; "" if it is not set.
std::string nccl_variable(const std::map<std::string, std::string>& variables,
                          const std::string& name);

/// Returns nccl_variables() without those that may differ: NCCL_HOSTID, NCCL_DEBUG*, interfaces,
/// file names.
std::map<std::string, std::string> nccl_settings(const Environment& environment,
                                                 const std::string& root = "");

/// Returns this host's identity for NCCL.
std::string nccl_host_id(const Environment& environment, const std::string& root = "");

/// Checks facts by rank. Errors: E673 two ranks on one GPU of one host.
void check_gpus_apart(const std::vector<NcclRankFacts>& facts);

/// Checks facts by rank. Errors: E673 two ranks on one GPU, E674 versions differ, E675 settings
/// differ; each names the ranks and values.
void check_agreement(const std::vector<NcclRankFacts>& facts);

/// Returns what the version of NCCL is known to do wrong among these ranks.
std::vector<KnownFault> known_nccl_faults(const std::vector<NcclRankFacts>& facts);

}  // namespace lockstep
