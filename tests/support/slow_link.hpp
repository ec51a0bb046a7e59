// SPDX-License-Identifier: Apache-2.0
// An exchange over a link that is slow for all ranks.
#pragma once

#include "lockstep/comm/exchange.hpp"
#include "lockstep/core/clock.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::test {

/// A link of `bytes_per_s` (0: no limit) carries one bucket after another, each from arrive() on:
/// reduce() with Wait::no gives nullptr, and with Wait::yes sleeps, until it is through.
class SlowLink : public Exchange {
  public:
    SlowLink(std::unique_ptr<Exchange> inner, const FlatLayout& layout, double bytes_per_s)
        : inner_(std::move(inner)),
          layout_(layout),
          bytes_per_s_(bytes_per_s),
          through_at_(layout.bucket_count()) {}

    float* slot(int index) override { return inner_->slot(index); }
    float* values() override { return inner_->values(); }
    FloatRange own_stripe(std::size_t bucket) const override { return inner_->own_stripe(bucket); }
    bool is_first_copy() const override { return inner_->is_first_copy(); }
    void arrive(std::size_t bucket) override {
        if (bytes_per_s_ > 0) {
            const auto bytes = static_cast<double>(layout_.bucket(bucket).size() * sizeof(float));
            through_at_[bucket] = free_at_ = std::max(free_at_, now_s()) + bytes / bytes_per_s_;
        }
        inner_->arrive(bucket);
    }
    const float* reduce(std::size_t bucket, Wait wait) override {
        const double left_s = through_at_[bucket] - now_s();
        if (left_s > 0 && wait == Wait::no) return nullptr;
        if (left_s > 0) {
            std::this_thread::sleep_for(std::chrono::duration<double>(left_s));
            waited_s_ += left_s;
        }
        return inner_->reduce(bucket, wait);
    }
    void publish() override { inner_->publish(); }
    std::string_view name() const override { return inner_->name(); }
    std::vector<int> awaited_ranks() const override { return inner_->awaited_ranks(); }
    double take_wait_s() override { return inner_->take_wait_s() + std::exchange(waited_s_, 0.0); }
    std::vector<LinkTimes> take_links() override { return inner_->take_links(); }

  private:
    std::unique_ptr<Exchange> inner_;
    const FlatLayout layout_;
    double bytes_per_s_, free_at_ = 0, waited_s_ = 0;
    std::vector<double> through_at_;  ///< by bucket
};

}  // namespace lockstep::test
