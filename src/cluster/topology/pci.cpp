// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/control_group.hpp"

#include "fact_files.hpp"
#include "topology_readers.hpp"

#include <cstdlib>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns 16 for "16.0 GT/s PCIe".
double speed_of(const fs::path& file) {
    return std::strtod(text_of(file).c_str(), nullptr);
}

/// Returns the part after /sys/devices/ in the real path of `link`.
std::string device_path(const fs::path& link) {
    std::error_code missing;
    const auto real = fs::canonical(link, missing).string();
    constexpr std::string_view base = "/sys/devices/";
    const auto at = real.find(base);
    return at == real.npos ? "" : real.substr(at + base.size());
}

bool has_render_node(const fs::path& device) {
    for (const auto& entry : entries_of(device / "drm"))
        if (entry.filename().string().starts_with("renderD")) return true;
    return false;
}

void add_driver_facts(const fs::path& root, GpuFacts& gpu) {
    const auto file = root / "proc/driver/nvidia/gpus" / gpu.pci.address / "information";
    const auto text = text_of(file);
    if (text.empty()) return;
    gpu.has_driver = true;
    gpu.model = value_of(text, "Model");
    gpu.uuid = value_of(text, "GPU UUID");
    if (!gpu.uuid.starts_with("GPU-") || gpu.uuid.find('?') != gpu.uuid.npos) gpu.uuid.clear();
}

}  // namespace

PciPlace read_pci_place(const fs::path& link) {
    PciPlace place;
    place.path = device_path(link);
    const auto name = fs::path(place.path).filename().string();
    if (name.size() >= 12 && name.find(':') != name.npos) place.address = name;
    place.numa_node = static_cast<int>(integer_in(link / "numa_node", -1));
    place.cpus = cpu_list_in(link / "local_cpulist").value_or(std::vector<int>{});
    place.vendor = text_of(link / "vendor");
    place.device_class = text_of(link / "class");
    place.link = {speed_of(link / "current_link_speed"),
                  speed_of(link / "max_link_speed"),
                  static_cast<int>(integer_in(link / "current_link_width", 0)),
                  static_cast<int>(integer_in(link / "max_link_width", 0))};
    return place;
}

std::vector<GpuFacts> read_pci_gpus(const fs::path& root) {
    std::vector<GpuFacts> gpus;
    for (const auto& device : entries_of(root / "sys/bus/pci/devices")) {
        if (!text_of(device / "class").starts_with("0x03")) continue;
        GpuFacts gpu;
        gpu.pci = read_pci_place(device);
        gpu.pci.address = device.filename().string();
        gpu.has_render_node = has_render_node(device);
        add_driver_facts(root, gpu);
        gpus.push_back(std::move(gpu));
    }
    return gpus;
}

}  // namespace lockstep
