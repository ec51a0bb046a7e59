// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/gpu_selection.hpp"

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"

#include "nccl/cuda_api.hpp"
#include "nccl/nccl_api.hpp"
#include "nccl/rank_facts.hpp"

#include <cstdlib>

#include <fmt/format.h>

namespace lockstep {
namespace {

bool is_instance(const PlannedGpu& planned) {
    return planned.uuid.starts_with("MIG-");
}

/// "1b2c..." of "GPU-1b2c..." and of "MIG-1b2c...".
std::string digits_of(const std::string& uuid) {
    return uuid.substr(uuid.find('-') + 1);
}

std::string text_of(const PlannedGpu& planned) {
    return planned.uuid.empty() ? planned.pci : fmt::format("{} ({})", planned.pci, planned.uuid);
}

std::string visible_text(const CudaApi& cuda) {
    int count = 0;
    if (cuda.device_count(&count) != CudaApi::success || count == 0) return "no GPU at all";
    std::string text;
    for (int device = 0; device < count; ++device) {
        CudaDeviceFacts facts;
        if (cuda.device_facts(device, &facts) != CudaApi::success) continue;
        text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", facts.pci, facts.uuid);
    }
    return fmt::format("{} GPU(s): {}", count, text);
}

Error not_shown(const CudaApi& cuda, const PlannedGpu& planned, CudaApi::Status status) {
    const auto list = Environment().text("CUDA_VISIBLE_DEVICES");
    return Error(
        "E689",
        fmt::format(
            "CUDA does not show GPU {} to this rank, but {}", text_of(planned), visible_text(cuda)),
        fmt::format("{}; CUDA_VISIBLE_DEVICES is {}",
                    cuda.error_text(status),
                    list ? fmt::format("'{}'", *list) : "not set"),
        "let every rank see all GPUs of its node: srun --gpus-per-node=N, not --gpus-per-task; "
        "mpirun without -x CUDA_VISIBLE_DEVICES; unset CUDA_VISIBLE_DEVICES");
}

int device_of(const CudaApi& cuda, const PlannedGpu& planned) {
    if (is_instance(planned)) {
        ::setenv("CUDA_VISIBLE_DEVICES", planned.uuid.c_str(), 1);
        return 0;
    }
    int device = -1;
    const auto status = cuda.device_by_pci(planned.pci.c_str(), &device);
    if (status != CudaApi::success) throw not_shown(cuda, planned, status);
    return device;
}

/// An instance is told apart by being the only device: its UUID may be its GPU's for older CUDA.
bool is_planned(const CudaApi& cuda, const PlannedGpu& planned, const CudaDeviceFacts& found) {
    if (found.pci != planned.pci) return false;
    if (planned.uuid.empty() || digits_of(found.uuid) == digits_of(planned.uuid)) return true;
    int count = 0;
    return is_instance(planned) && cuda.device_count(&count) == CudaApi::success && count == 1;
}

NcclRankFacts claim_of(const SelectedGpu& gpu) {
    return {.host = host_name(),
            .host_id = nccl_host_id(Environment()),
            .gpu_uuid = gpu.uuid,
            .gpu_pci = gpu.pci};
}

}  // namespace

SelectedGpu select_gpu(const CudaApi& cuda, const PlannedGpu& planned) {
    const int wanted = device_of(cuda, planned);
    const auto status = cuda.set_device(wanted);
    if (status != CudaApi::success) throw not_shown(cuda, planned, status);
    int device = -1;
    check_cuda(cuda, cuda.get_device(&device), "cudaGetDevice");
    CudaDeviceFacts found;
    check_cuda(cuda, cuda.device_facts(device, &found), "cudaGetDeviceProperties");
    check(device == wanted && is_planned(cuda, planned, found), [&] {
        return Error(
            "E690",
            fmt::format(
                "CUDA selected GPU {} ({}) instead of {}", found.pci, found.uuid, text_of(planned)),
            "a library selected a device before, or the plan is of another node or boot",
            "make a new plan on these nodes: lockstep map --save-topology FILE");
    });
    return {device,
            found.pci,
            is_instance(planned) ? planned.uuid : found.uuid,
            found.name,
            found.capability};
}

SelectedGpu claim_gpu(const CudaApi& cuda,
                      const PlannedGpu& planned,
                      Bootstrap& bootstrap,
                      double deadline_s) {
    SelectedGpu mine;
    const auto texts = gather_or_fail(
        bootstrap,
        [&] {
            mine = select_gpu(cuda, planned);
            return serialize(claim_of(mine));
        },
        deadline_s,
        "the selection of GPUs");
    std::vector<NcclRankFacts> claims;
    for (const std::string& text : texts)
        claims.push_back(deserialize<NcclRankFacts>(text, "another rank's facts"));
    check_gpus_apart(claims);
    return mine;
}

std::map<std::string, std::string> nccl_variables_of_sharing(int rank, SharingReach reach) {
    std::map<std::string, std::string> variables = {
        {"NCCL_HOSTID", fmt::format("{}-rank{}", host_name(), rank)},
        {"NCCL_IB_DISABLE", "1"},
        {"NCCL_P2P_DISABLE", "1"},
        {"NCCL_SHM_DISABLE", "1"},
        // A GPU's ranks take turns: a kernel that waits for another's must leave it room.
        {"NCCL_MAX_CTAS", "2"}};
    if (reach == SharingReach::one_node) variables["NCCL_SOCKET_IFNAME"] = "lo";
    return variables;
}

SelectedGpu try_gpu(const PlannedGpu& planned, Bootstrap& bootstrap, double deadline_s) {
    CudaLibrary cuda;
    gather_or_fail(
        bootstrap,
        [&] {
            cuda = load_cuda();
            return std::string();
        },
        deadline_s,
        "the loading of CUDA");
    return claim_gpu(cuda.api, planned, bootstrap, deadline_s);
}

GpuLibraries load_gpu_libraries(const std::string& nccl_path) {
    GpuLibraries found;
    found.own = cuda_library_path();
    SharedLibrary::open(found.own, found.own_fault);
    try {
        found.nccl = load_nccl(nccl_path).text();
    } catch (const Error& error) {
        found.nccl_fault = fmt::format("{} ({})", error.what(), error.why());
    }
    return found;
}

std::string describe_gpus(const std::string& nccl_path) {
    if (!gpu_driver_fault().empty()) return "none (no driver)";
    try {
        const CudaLibrary cuda = load_cuda();
        int count = 0;
        check_cuda(cuda.api, cuda.api.device_count(&count), "cudaGetDeviceCount");
        CudaDeviceFacts first;
        check_cuda(cuda.api, cuda.api.device_facts(0, &first), "cudaGetDeviceProperties");
        return fmt::format("{} x {}, {}", count, first.name, load_nccl(nccl_path).text());
    } catch (const Error& error) {
        return fmt::format("cannot be used: {}: {}", error.code(), error.what());
    }
}

}  // namespace lockstep
