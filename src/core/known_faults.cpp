// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/known_faults.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/process.hpp"

#include <array>
#include <cstdio>

#include <dlfcn.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

using Versions = SoftwareVersions;

struct Row {
    const char* name;
    int Versions::*version;
    int first, last;
    bool (*applies)(const Versions&) = nullptr;  ///< besides the version; null: always
    const char *what, *fix, *source;
};

constexpr std::array rows{
    Row{.name = "NCCL",
        .version = &Versions::nccl,
        .first = 22803,
        .last = 22808,
        .what = "is known to hang or crash",
        .fix = "use 2.28.9 or later",
        .source = "README of NVIDIA/nvidia-resiliency-ext; pytorch/pytorch#166174"},
    Row{.name = "NCCL",
        .version = &Versions::nccl,
        .first = 22902,
        .last = 22902,
        .what = "is known to hang",
        .fix = "use 2.29.3 or later",
        .source = "pytorch/pytorch#174338"},
    Row{.name = "NCCL",
        .version = &Versions::nccl,
        .first = 1,
        .last = 22902,
        .applies = [](const Versions& v) { return v.is_arm; },
        .what = "may hang on processors of Arm",
        .fix = "use 2.29.3 or later",
        .source = "NVIDIA's release notes of 2.29.3; marin-community/marin#8038"},
    Row{.name = "NCCL",
        .version = &Versions::nccl,
        .first = 22907,
        .last = 23006,
        .applies = [](const Versions& v) { return v.has_several_hosts && !v.disables_pxn; },
        .what = "may hang between nodes with InfiniBand",
        .fix = "set NCCL_PXN_DISABLE=1, or use 2.30.7 or later",
        .source = "docs.nvidia.com/cuda/cuest/troubleshooting"},
    Row{.name = "PMIx",
        .version = &Versions::pmix,
        .first = 50008,
        .last = 50009,
        // Slurm 25.11.2 prevents it.
        .applies = [](const Versions& v) { return v.slurm > 0 && v.slurm < 251102; },
        .what = "hangs in MPI_Init under srun of Slurm before 25.11.2",
        .fix = "start the ranks by mpirun (LOCKSTEP_LAUNCHER=mpirun, submit --launcher mpirun), or "
               "use another PMIx or Slurm",
        .source = "openpmix/openpmix#3645; CHANGELOG of Slurm 25.11.2"},
};

}  // namespace

std::vector<KnownFault> known_faults(const SoftwareVersions& versions) {
    std::vector<KnownFault> found;
    for (const Row& row : rows) {
        const int version = versions.*row.version;
        if (version < row.first || version > row.last) continue;
        if (row.applies != nullptr && !row.applies(versions)) continue;
        const std::string number =
            fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
        found.push_back({fmt::format("{} {} {}", row.name, number, row.what), row.fix, row.source});
    }
    return found;
}

int version_number(std::string_view text) {
    const auto begin = text.find_first_of("0123456789");
    if (begin == text.npos) return 0;
    int major = 0, minor = 0, patch = 0;
    const std::string numbers(text.substr(begin, 32));
    if (std::sscanf(numbers.c_str(), "%4d.%2d.%2d", &major, &minor, &patch) < 2) return 0;
    return major * 10000 + minor * 100 + patch;
}

int installed_slurm_version() {
    if (find_program("scontrol").empty()) return 0;
    try {
        return version_number(run_process({"scontrol", "--version"}, {}, 5).output);
    } catch (const Error&) {  // no answer in time: others matter more
        return 0;
    }
}

int loaded_pmix_version() {
    using VersionFunction = const char* (*)();
    void* const library = ::dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return 0;
    const auto version = reinterpret_cast<VersionFunction>(::dlsym(library, "PMIx_Get_version"));
    const int number = version == nullptr ? 0 : version_number(version());
    ::dlclose(library);
    return number;
}

}  // namespace lockstep
