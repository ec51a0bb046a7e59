// SPDX-License-Identifier: Apache-2.0
// The optimizer's state of the stripes that this rank owns, and nothing else.
#pragma once

#include "lockstep/comm/exchange.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// One zero-initialised vector per state name, holding this rank's stripe of every bucket but the
/// state bucket, one after another.
class OwnedState {
  public:
    OwnedState(const FlatLayout& layout, const Exchange& exchange, std::vector<std::string> names);

    std::size_t bucket_count() const { return stripes_.size(); }
    FloatRange stripe(std::size_t bucket) const { return stripes_[bucket]; }
    const std::vector<std::string>& names() const { return names_; }

    /// State vectors of `bucket`'s stripe, each stripe(bucket).size() floats.
    std::span<float* const> of(std::size_t bucket) const { return pointers_[bucket]; }

  private:
    std::vector<std::string> names_;
    std::vector<FloatRange> stripes_;
    std::vector<std::vector<float>> storage_;
    std::vector<std::vector<float*>> pointers_;
};

}  // namespace lockstep
