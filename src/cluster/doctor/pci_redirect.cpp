// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/control_group.hpp"

#include "doctor/read_facts.hpp"

#include <fstream>
#include <iterator>
#include <set>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

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
    std::size_t begin = path.find('/');
    while (begin != std::string::npos) {
        const auto end = path.find('/', begin + 1);
        if (end == std::string::npos) return;
        bridges.insert(path.substr(begin + 1, end - begin - 1));
        begin = end;
    }
}

}  // namespace

std::optional<bool> redirects_pci(const fs::path& root, const std::vector<PciPlace>& devices) {
    std::set<std::string> bridges;
    for (const PciPlace& device : devices) add_bridges(device.path, bridges);
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

}  // namespace lockstep
