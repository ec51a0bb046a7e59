// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/gpu_needs.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double ldd_limit_s = 20;
constexpr const char* torch_cuda_name = "libtorch_cuda.so";

/// Returns the libraries that the loader would load for `file`, without running any of it. Nothing
/// if it cannot tell.
std::vector<ListedLibrary> listed_libraries(const fs::path& file) try {
    return parse_ldd(run_process({"ldd", file.string()}, {}, ldd_limit_s).output);
} catch (const Error&) {
    return {};
}

std::string path_of(const std::vector<ListedLibrary>& libraries, const std::string& name) {
    const auto found = std::ranges::find(libraries, name, &ListedLibrary::name);
    return found == libraries.end() ? "" : found->path;
}

/// Beside the libtorch_cpu.so of the program that trains; "" where that is not known.
std::string torch_cuda_path(const fs::path& ranks, const Environment& environment) {
    if (const auto named = environment.text("LOCKSTEP_TORCH_CUDA_LIB")) return *named;
    const std::string cpu = path_of(listed_libraries(ranks), "libtorch_cpu.so");
    return cpu.empty() ? "" : fs::path(cpu).parent_path() / torch_cuda_name;
}

std::string driver_fault(const GpuNeedFacts& facts) {
    if (facts.driver_fault.empty() || facts.driver.empty()) return facts.driver_fault;
    return fmt::format("{} (the kernel's part is {})", facts.driver_fault, facts.driver);
}

GpuNeed torch_need(const GpuNeedFacts& facts) {
    GpuNeed need{GpuNeedKind::torch_library, torch_cuda_name, facts.torch, "", ""};
    if (!facts.has_torch) {
        need.fault =
            facts.torch.empty() ? "no LibTorch is known of" : facts.torch + " is not there";
        need.fix =
            "scripts/setup gpu gets a LibTorch that has it; LOCKSTEP_TORCH=/path names the site's";
    } else if (!facts.lacked.empty()) {
        need.what = fmt::format("what {} needs", torch_cuda_name);
        need.fault =
            fmt::format("{} not found, for {}", fmt::join(facts.lacked, ", "), facts.torch);
        need.fix =
            "scripts/setup gpu gets them; the libraries of a site's module count, too "
            "(LD_LIBRARY_PATH)";
    }
    return need;
}

}  // namespace

std::vector<ListedLibrary> parse_ldd(std::string_view text) {
    std::vector<ListedLibrary> libraries;
    for (const std::string& line : split(text, '\n')) {
        std::istringstream words(line);
        std::string name, arrow, path;
        if (!(words >> name >> arrow >> path) || arrow != "=>") continue;
        libraries.push_back({name, path.starts_with('/') ? path : ""});
    }
    return libraries;
}

GpuNeedFacts read_gpu_needs(const NodeTopology& node,
                            const fs::path& ranks,
                            bool is_wanted,
                            const Environment& environment) {
    GpuNeedFacts facts;
    facts.driver = node.kernel.nvidia_driver;
    facts.driver_fault = gpu_driver_fault();
    facts.has_gpu = facts.driver_fault.empty() ||
                    std::ranges::any_of(
                        node.gpus, [](const GpuFacts& gpu) { return gpu.pci.vendor == "0x10de"; });
    if (!facts.has_gpu && !is_wanted) return facts;
    facts.torch = torch_cuda_path(ranks, environment);
    std::error_code unreadable;
    facts.has_torch = fs::exists(facts.torch, unreadable);
    std::vector<ListedLibrary> needed;
    if (facts.has_torch) needed = listed_libraries(facts.torch);
    for (const ListedLibrary& each : needed)
        if (each.path.empty()) facts.lacked.push_back(each.name);
    if (!environment.text("LOCKSTEP_NCCL_LIB")) facts.torch_nccl = path_of(needed, "libnccl.so.2");
    static_cast<GpuLibraries&>(facts) = load_gpu_libraries(facts.torch_nccl);
    return facts;
}

std::vector<GpuNeed> judge_gpu_needs(const GpuNeedFacts& facts) {
    return {{GpuNeedKind::driver,
             "driver",
             "driver " + (facts.driver.empty() ? "libcuda.so.1" : facts.driver),
             driver_fault(facts),
             "NVIDIA's driver is the site's to install; in a container pass it through "
             "(apptainer --nv, docker --gpus all)"},
            {GpuNeedKind::own_library,
             "liblockstep_cuda.so",
             facts.own,
             facts.own_fault,
             "build Lockstep where nvcc and nccl.h are (cmake --workflow --preset release), or "
             "name the file with LOCKSTEP_CUDA_LIB"},
            torch_need(facts),
            {GpuNeedKind::nccl,
             "NCCL",
             facts.nccl,
             facts.nccl_fault,
             "scripts/setup gpu gets it; LOCKSTEP_NCCL_LIB names the site's libnccl.so.2"}};
}

std::string gpu_needs_text(const GpuNeedFacts& facts) {
    if (!facts.has_gpu) return "";
    std::vector<std::string> found;
    std::string lines;
    for (const GpuNeed& need : judge_gpu_needs(facts)) {
        if (need.fault.empty())
            found.push_back(need.found);
        else
            lines += fmt::format(
                "to train on GPUs {} is missing: {}; fix: {}\n", need.what, need.fault, need.fix);
    }
    if (!lines.empty()) return lines;
    return fmt::format("to train on GPUs all is here: {}\n", fmt::join(found, ", "));
}

}  // namespace lockstep
