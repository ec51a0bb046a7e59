// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "gpu_choice.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

Error no_such_gpu(const std::string& list, const std::string& why) {
    return Error("E648",
                 fmt::format("CUDA_VISIBLE_DEVICES is '{}'", list),
                 why,
                 "unset it, or name GPUs as `nvidia-smi -L` shows their UUIDs");
}

std::string name_of(const GpuFacts& gpu) {
    return gpu.uuid.empty() ? gpu.pci.address : gpu.uuid;
}

/// CUDA numbers GPUs fastest first unless told otherwise: then only equal ones are in PCI's order.
bool knows_order(std::span<const GpuFacts* const> gpus, const Environment& environment) {
    if (environment.text("CUDA_DEVICE_ORDER") == "PCI_BUS_ID") return true;
    return std::ranges::all_of(
        gpus, [&](const GpuFacts* gpu) { return gpu->model == gpus.front()->model; });
}

/// The unit that `word` is the beginning of the UUID of.
std::string unit_named(const NodeTopology& node, const std::string& word, const std::string& list) {
    std::vector<std::string> found;
    for (const auto& unit : gpu_units(node))
        if (unit.uuid.starts_with(word)) found.push_back(unit.uuid);
    for (const auto* gpu : usable_gpus(node))
        if (gpu->has_mig && gpu->uuid.starts_with(word)) found.push_back(gpu->uuid);
    check(found.size() == 1, [&] {
        return no_such_gpu(list,
                           fmt::format("'{}' begins {} UUIDs of this node", word, found.size()));
    });
    return found.front();
}

}  // namespace

std::optional<std::vector<std::string>> visible_gpus(const NodeTopology& node,
                                                     const Environment& environment) {
    const auto list = environment.text("CUDA_VISIBLE_DEVICES");
    if (!list) return {};
    const auto gpus = usable_gpus(node);
    std::vector<std::string> visible;
    if (gpus.empty()) return visible;
    bool has_mig = false;
    std::istringstream words(*list);
    for (std::string word; std::getline(words, word, ',');) {
        if (word == "-1" || word == "NoDevFiles") break;  // CUDA looks no further
        const auto index = parse_integer(word);
        if (!index) {
            visible.push_back(unit_named(node, word, *list));
            has_mig = has_mig || word.starts_with("MIG");
            continue;
        }
        check(*index >= 0 && *index < static_cast<std::int64_t>(gpus.size()), [&] {
            return no_such_gpu(
                *list, fmt::format("index {} is not among the {} GPUs", *index, gpus.size()));
        });
        check(knows_order(gpus, environment), [&] {
            return no_such_gpu(*list,
                               "the GPUs differ, and without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA "
                               "numbers them by speed");
        });
        visible.push_back(name_of(*gpus[static_cast<std::size_t>(*index)]));
    }
    check(!has_mig || std::ranges::all_of(visible,
                                          [](const auto& name) { return name.starts_with("MIG"); }),
          [&] { return no_such_gpu(*list, "CUDA takes either GPUs or MIG instances, not both"); });
    return visible;
}

NodeTopology merge_views(std::span<const NodeTopology> views) {
    NodeTopology node = views.front();
    for (const auto& view : views.subspan(1)) {
        for (const auto* gpu : usable_gpus(view)) {
            const auto known =
                std::ranges::find(node.gpus, gpu->pci.address, [](const GpuFacts& facts) {
                    return facts.pci.address;
                });
            if (known == node.gpus.end())
                node.gpus.push_back(*gpu);
            else if (!known->has_driver)
                *known = *gpu;
        }
    }
    std::ranges::sort(node.gpus, {}, [](const GpuFacts& facts) { return facts.pci.address; });
    return node;
}

}  // namespace lockstep
