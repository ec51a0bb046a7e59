// SPDX-License-Identifier: Apache-2.0
#include "lockstep/observe/histogram.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

std::vector<double> make_limits() {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    positive.push_back(std::numeric_limits<double>::max());
    std::vector<double> all;
    for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all.push_back(-*limit);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
}

const std::vector<double>& limits() {
    static const std::vector<double> all = make_limits();
    return all;
}

}  // namespace

void Histogram::add(double value) {
    if (!std::isfinite(value)) return;
    const std::vector<double>& all = limits();
    counts_.resize(all.size());
    const auto limit = std::upper_bound(all.begin(), all.end() - 1, value);
    ++counts_[static_cast<std::size_t>(limit - all.begin())];
    min_ = count_ == 0 ? value : std::min(min_, value);
    max_ = count_ == 0 ? value : std::max(max_, value);
    ++count_;
    sum_ += value;
    sum_squares_ += value * value;
}

std::vector<Histogram::Bucket> Histogram::buckets() const {
    std::vector<Bucket> found;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        const bool goes_on = counts_[i] == 0 && !found.empty() && found.back().count == 0;
        if (!goes_on) found.push_back({});
        found.back() = {limits()[i], static_cast<double>(counts_[i])};
    }
    return found;
}

}  // namespace lockstep
