// SPDX-License-Identifier: Apache-2.0
#include "doctor/families.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Returns the GPU that a word of CUDA_VISIBLE_DEVICES names: its index, or the begin of its UUID.
const GpuFacts* named_gpu(const std::vector<const GpuFacts*>& gpus, const std::string& word) {
    if (const auto index = parse_integer(word)) {
        const bool is_there = *index >= 0 && static_cast<std::size_t>(*index) < gpus.size();
        return is_there ? gpus[static_cast<std::size_t>(*index)] : nullptr;
    }
    const auto found = std::ranges::find_if(gpus, [&](const GpuFacts* gpu) {
        return gpu->uuid.starts_with(word) || std::ranges::count(gpu->mig_uuids, word) > 0;
    });
    return found == gpus.end() ? nullptr : *found;
}

}  // namespace

std::string variable(const DoctorFacts& facts, const std::string& name) {
    const auto found = facts.environment.find(name);
    return found == facts.environment.end() ? "" : found->second;
}

std::string variable_text(const DoctorFacts& facts, const std::string& name) {
    const auto found = facts.environment.find(name);
    return found == facts.environment.end() ? name + " is not set" : name + "=" + found->second;
}

std::optional<std::int64_t> whole_variable(const DoctorFacts& facts, const std::string& name) {
    return parse_integer(variable(facts, name));
}

std::vector<RanksOfNode> nodes_of(JobRanks ranks) {
    std::vector<RanksOfNode> nodes;
    std::unordered_map<std::string, std::size_t> place_of;
    for (const DoctorFacts& rank : ranks) {
        const auto [place, is_new] = place_of.try_emplace(rank.node.host_id(), nodes.size());
        if (is_new) nodes.emplace_back();
        nodes[place->second].push_back(&rank);
    }
    return nodes;
}

std::vector<int> numbers_of(const RanksOfNode& ranks) {
    std::vector<int> numbers;
    for (const DoctorFacts* each : ranks) numbers.push_back(each->rank);
    return numbers;
}

std::string values_text(const RanksByValue& values) {
    std::string text;
    for (const auto& [value, ranks] : values)
        text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", value, ranks_text(ranks));
    return text;
}

std::string lower_case(std::string text) {
    std::ranges::transform(
        text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

std::vector<std::string> comma_separated(const std::string& text) {
    std::vector<std::string> pieces = split(text, ',');
    std::erase(pieces, "");
    return pieces;
}

std::vector<const GpuFacts*> visible_gpus(const DoctorFacts& facts) {
    std::vector<const GpuFacts*> gpus;
    for (const GpuFacts& gpu : facts.node.gpus)
        if (gpu.has_driver) gpus.push_back(&gpu);
    if (!facts.environment.contains("CUDA_VISIBLE_DEVICES")) return gpus;
    std::vector<const GpuFacts*> visible;
    for (const std::string& word : comma_separated(variable(facts, "CUDA_VISIBLE_DEVICES"))) {
        const GpuFacts* gpu = named_gpu(gpus, word);
        if (gpu == nullptr) break;  // CUDA stops at the first that it does not know
        visible.push_back(gpu);
    }
    return visible;
}

const GpuFacts* gpu_of(const DoctorFacts& facts) {
    for (const GpuFacts& gpu : facts.node.gpus)
        if (!facts.gpu.empty() && gpu.pci.address == facts.gpu) return &gpu;
    const auto visible = visible_gpus(facts);
    if (visible.empty()) return nullptr;
    return visible[static_cast<std::size_t>(facts.local_rank) % visible.size()];
}

}  // namespace lockstep
