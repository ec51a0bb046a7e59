// SPDX-License-Identifier: Apache-2.0
#include "replica/owned_state.hpp"

namespace lockstep {

OwnedState::OwnedState(const FlatLayout& layout,
                       const Exchange& exchange,
                       std::vector<std::string> names)
    : names_(std::move(names)) {
    std::size_t total = 0;
    for (std::size_t bucket = 0; bucket < layout.state_bucket(); ++bucket) {
        stripes_.push_back(exchange.own_stripe(bucket));
        total += stripes_.back().size();
    }
    storage_.assign(names_.size(), std::vector<float>(total, 0.0F));
    std::size_t at = 0;
    for (const FloatRange& stripe : stripes_) {
        auto& pointers = pointers_.emplace_back();
        for (auto& vector : storage_) pointers.push_back(vector.data() + at);
        at += stripe.size();
    }
}

}  // namespace lockstep
