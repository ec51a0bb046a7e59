// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include "topology/topology_readers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if_arp.h>
#include <netinet/in.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns 16 for "16.0 GT/s PCIe", 400 for "400 Gb/sec (4X NDR)".
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

/// Returns "ACTIVE" for "4: ACTIVE".
std::string word_of(const fs::path& file) {
    const auto text = text_of(file);
    const auto colon = text.find(": ");
    return colon == text.npos ? text : text.substr(colon + 2);
}

/// The place of the device behind `link` (a symbolic link into /sys/devices).
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

/// The kinds of addresses that the port has; the kernel refuses to read unused entries.
std::vector<std::string> gid_types_of(const fs::path& port) {
    std::vector<std::string> types;
    for (const auto& entry : entries_of(port / "gid_attrs/types")) {
        const auto type = text_of(entry);
        if (!type.empty() && std::ranges::find(types, type) == types.end()) types.push_back(type);
    }
    std::ranges::sort(types);
    return types;
}

RdmaPort read_rdma_port(const fs::path& device, const fs::path& port) {
    return {.device = device.filename().string(),
            .port = static_cast<int>(parse_integer(port.filename().string()).value_or(1)),
            .state = word_of(port / "state"),
            .phys_state = word_of(port / "phys_state"),
            .rate_gbps = speed_of(port / "rate"),
            .link_layer = text_of(port / "link_layer"),
            .gid_types = gid_types_of(port),
            .firmware = text_of(device / "fw_ver"),
            .interface = text_of(port / "gid_attrs/ndevs/0"),
            .pci = read_pci_place(device / "device")};
}

/// "mlx5_2" before "mlx5_10": shorter first, as long as only the number differs.
auto device_order(const RdmaPort& port) {
    const auto digits = port.device.find_last_not_of("0123456789") + 1;
    const auto number = parse_integer(port.device.substr(digits)).value_or(-1);
    return std::tuple(port.device.substr(0, digits), number, port.port);
}

/// Docker names its bridges docker0 and br-0123456789ab.
bool is_dockers(const std::string& name) {
    if (name.starts_with("docker")) return true;
    return name.starts_with("br-") && name.size() == 15 &&
           name.find_first_not_of("0123456789abcdef", 3) == name.npos;
}

InterfaceKind kind_of(const fs::path& folder, bool is_virtual) {
    const auto name = folder.filename().string();
    const auto type = integer_in(folder / "type", -1);
    const auto uevent = text_of(folder / "uevent");
    std::error_code missing;
    if (type == ARPHRD_LOOPBACK) return InterfaceKind::loopback;
    if (type == ARPHRD_INFINIBAND) return InterfaceKind::infiniband;
    if (is_dockers(name)) return InterfaceKind::docker;
    if (fs::exists(folder / "bridge", missing)) return InterfaceKind::bridge;
    if (fs::exists(folder / "bonding", missing)) return InterfaceKind::bond;
    if (uevent.find("DEVTYPE=vlan") != uevent.npos) return InterfaceKind::vlan;
    if (fs::exists(folder / "tun_flags", missing) || type == ARPHRD_NONE || type == ARPHRD_TUNNEL ||
        type == ARPHRD_SIT || type == ARPHRD_IPGRE)
        return InterfaceKind::tunnel;
    if (type != ARPHRD_ETHER) return InterfaceKind::other;
    if (!is_virtual) return InterfaceKind::ethernet;
    if (name.starts_with("dummy") || name.starts_with("ifb")) return InterfaceKind::dummy;
    const auto index = integer_in(folder / "ifindex", 0);
    const bool has_twin = integer_in(folder / "iflink", index) != index;
    return has_twin ? InterfaceKind::veth : InterfaceKind::other;
}

NetworkInterface read_interface(const fs::path& folder) {
    NetworkInterface facts;
    std::error_code missing;
    const auto real = fs::canonical(folder, missing).string();
    facts.name = folder.filename().string();
    facts.state = text_of(folder / "operstate");
    facts.has_carrier = integer_in(folder / "carrier", 0) == 1;
    facts.mtu = static_cast<int>(integer_in(folder / "mtu", 0));
    facts.speed_mbps =
        static_cast<double>(std::max<std::int64_t>(integer_in(folder / "speed", 0), 0));
    facts.is_virtual =
        real.find("/devices/virtual/") != real.npos || !fs::exists(folder / "device", missing);
    facts.kind = kind_of(folder, facts.is_virtual);
    if (!facts.is_virtual) facts.pci = read_pci_place(folder / "device");
    return facts;
}

int prefix_length(const sockaddr* mask) {
    if (mask == nullptr) return 0;
    const bool is_v4 = mask->sa_family == AF_INET;
    const auto* bytes = is_v4 ? reinterpret_cast<const unsigned char*>(
                                    &reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
                              : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr;
    int length = 0;
    for (int i = 0; i < (is_v4 ? 4 : 16); ++i) length += std::popcount(bytes[i]);
    return length;
}

/// "10.0.0.7/24"; "" for what is no internet address.
std::string address_text(const ifaddrs& entry) {
    if (entry.ifa_addr == nullptr) return "";
    const auto family = entry.ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) return "";
    const void* address = family == AF_INET
                              ? static_cast<const void*>(
                                    &reinterpret_cast<const sockaddr_in*>(entry.ifa_addr)->sin_addr)
                              : &reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (::inet_ntop(family, address, text.data(), text.size()) == nullptr) return "";
    return fmt::format("{}/{}", text.data(), prefix_length(entry.ifa_netmask));
}

using Bytes = std::vector<unsigned char>;

// PCI Express Base Specification 4.0: extended capabilities begin at 100h (7.6); Access Control
// Services are number 0Dh (7.7.8), whose control word is at 6.
constexpr std::size_t first_extended = 0x100, control_offset = 6;
constexpr unsigned access_control = 0x0d;
constexpr unsigned request_redirect = 0x4, completion_redirect = 0x8;

unsigned word_at(const Bytes& bytes, std::size_t offset) {
    return bytes[offset] | static_cast<unsigned>(bytes[offset + 1]) << 8;
}

/// The control word of a bridge's Access Control Services; 0 if it has none.
unsigned control_of(const Bytes& config) {
    std::size_t at = first_extended;
    for (int hops = 0; hops < 64 && at >= first_extended && at + 8 <= config.size(); ++hops) {
        if (word_at(config, at) == access_control) return word_at(config, at + control_offset);
        at = word_at(config, at + 2) >> 4;
    }
    return 0;
}

/// Bridges between the root complex and a device: all but the first and last of its path.
void add_bridges(const std::string& path, std::set<std::string>& bridges) {
    const auto steps = split(path, '/');
    if (steps.size() > 2) bridges.insert(steps.begin() + 1, steps.end() - 1);
}

}  // namespace

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

std::vector<RdmaPort> read_rdma_ports(const fs::path& root) {
    std::vector<RdmaPort> ports;
    for (const auto& device : entries_of(root / "sys/class/infiniband"))
        for (const auto& port : entries_of(device / "ports"))
            ports.push_back(read_rdma_port(device, port));
    std::ranges::stable_sort(ports, {}, device_order);
    return ports;
}

std::vector<NetworkInterface> read_interfaces(const fs::path& root) {
    std::vector<NetworkInterface> interfaces;
    for (const auto& folder : entries_of(root / "sys/class/net")) {
        std::error_code missing;
        if (fs::is_directory(folder, missing)) interfaces.push_back(read_interface(folder));
    }
    return interfaces;
}

std::optional<bool> redirects_pci(const fs::path& root, const NodeTopology& node) {
    std::set<std::string> bridges;
    for (const GpuFacts& gpu : node.gpus) add_bridges(gpu.pci.path, bridges);
    for (const RdmaPort& port : node.rdma_ports) add_bridges(port.pci.path, bridges);
    std::optional<bool> redirects;
    for (const std::string& bridge : bridges) {
        std::ifstream file(root / "sys/bus/pci/devices" / bridge / "config", std::ios::binary);
        const Bytes config{std::istreambuf_iterator<char>(file), {}};
        if (config.size() <= first_extended) continue;
        const unsigned control = control_of(config);
        redirects =
            redirects.value_or(false) || (control & (request_redirect | completion_redirect)) != 0;
    }
    return redirects;
}

void add_live_addresses(std::vector<NetworkInterface>& interfaces) {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    for (const auto* entry = list; entry != nullptr; entry = entry->ifa_next) {
        const auto found = std::ranges::find(interfaces, entry->ifa_name, &NetworkInterface::name);
        const auto text = address_text(*entry);
        if (found != interfaces.end() && !text.empty()) found->addresses.push_back(text);
    }
}

}  // namespace lockstep
