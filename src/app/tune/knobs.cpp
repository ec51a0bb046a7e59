// SPDX-License-Identifier: Apache-2.0
#include "tune/knobs.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/train/settings.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Beside the default, which comes first. Where buckets are cut is no setting: a rehearsal decides.
std::vector<std::string> other_values(const std::string& name) {
    if (name == "io-threads") return {"1", "2", "4"};
    if (name == "transport") return {"shared-memory", "mpi"};
    if (name == "comm-thread") return {"on", "off"};
    if (name == "leaves") return {"one-by-one"};
    return {"stream", "resident"};  // data-mode
}

// The table of settings knows, so that a setting which begins to decide bits is seen here.
KnobEffect effect_of(const std::string& name) {
    if (name == "np") return KnobEffect::speed_only;  // that is Lockstep's promise
    TrainSettings settings;
    return find_option(setting_table(settings), name).scope == OptionScope::decides
               ? KnobEffect::decides_bits
               : KnobEffect::speed_only;
}

std::string default_of(const std::string& name) {
    TrainSettings settings;
    return find_option(setting_table(settings), name).default_value;
}

Variant with(Variant variant, const std::string& name, const std::string& value) {
    variant[name] = value;
    return variant;
}

/// 1, 2, 4, ... and `most` itself.
std::vector<int> doubled_to(int most) {
    std::vector<int> numbers;
    for (int number = 1; number < most; number *= 2) numbers.push_back(number);
    numbers.push_back(std::max(most, 1));
    return numbers;
}

int ranks_in(const Variant& current, const KnobFacts& facts) {
    const auto found = current.find("np");
    return found == current.end() ? facts.np
                                  : static_cast<int>(parse_integer(found->second).value_or(1));
}

std::vector<Variant> numbers_of_ranks(const KnobFacts& facts, const Variant& current) {
    std::vector<Variant> variants = {with(current, "np", std::to_string(facts.np))};
    const int most = std::min(facts.cores / std::max(facts.threads, 1), facts.virtual_ranks);
    for (const int np : doubled_to(most))
        if (np != facts.np) variants.push_back(with(current, "np", std::to_string(np)));
    return variants;
}

// As many ranks as leave each of them so many threads: the book's chapter 9.
std::vector<Variant> numbers_of_threads(const KnobFacts& facts, const Variant& current) {
    const std::string now = std::to_string(ranks_in(current, facts));
    std::vector<Variant> variants = {
        with(with(current, "np", now), "threads", std::to_string(facts.threads))};
    for (const int threads : doubled_to(facts.cores)) {
        if (threads == facts.threads) continue;
        const int fitting = std::clamp(facts.cores / threads, 1, facts.virtual_ranks);
        const std::string np = facts.given.contains("np") ? now : std::to_string(fitting);
        variants.push_back(with(with(current, "np", np), "threads", std::to_string(threads)));
    }
    return variants;
}

std::vector<Variant> values_of(const std::string& name,
                               const KnobFacts& facts,
                               const Variant& current) {
    const bool is_between_ranks = name == "transport" || name == "comm-thread";
    if (is_between_ranks && ranks_in(current, facts) == 1) return {};
    std::vector<Variant> variants = {with(current, name, default_of(name))};
    for (const std::string& value : other_values(name)) {
        const auto number = parse_integer(value);
        if (!number || *number <= facts.cores) variants.push_back(with(current, name, value));
    }
    return variants;
}

}  // namespace

std::vector<std::string> knob_names() {
    return {"np", "transport", "comm-thread", "io-threads", "leaves", "data-mode", "threads"};
}

Knob knob_of(const std::string& name, const KnobFacts& facts, const Variant& current) {
    Knob knob{.name = name, .effect = effect_of(name)};
    if (facts.given.contains(name)) return knob;
    if (name == "np")
        knob.variants = numbers_of_ranks(facts, current);
    else if (name == "threads")
        knob.variants = numbers_of_threads(facts, current);
    else
        knob.variants = values_of(name, facts, current);
    return knob;
}

std::string settings_text(const Variant& variant) {
    std::string text;
    for (const auto& [name, value] : variant)
        text += fmt::format("{}--{} {}", text.empty() ? "" : " ", name, value);
    return text;
}

std::string variant_text(const Knob& knob, const Variant& variant) {
    if (knob.name == "threads")
        return fmt::format("{} in each of {} rank(s)", variant.at("threads"), variant.at("np"));
    const auto own = variant.find(knob.name);
    return own == variant.end() ? settings_text(variant) : own->second;
}

}  // namespace lockstep
