// SPDX-License-Identifier: Apache-2.0
// An exchange behind a link of a given speed, to see on one machine what a slow network does.
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

/// The sums of `inner`, but a bucket is there only when the link has carried it: buckets queue, and
/// each takes its bytes divided by `bytes_per_s`. Waiting for the link costs no processor.
class ThrottledExchange : public Exchange {
  public:
    ThrottledExchange(std::unique_ptr<Exchange> inner, const FlatLayout& layout, double bytes_per_s)
        : inner_(std::move(inner)),
          layout_(layout),
          bytes_per_s_(bytes_per_s),
          carried_at_s_(layout.bucket_count()) {}

    /// Also in the middle of a run, between steps.
    void set_speed(double bytes_per_s) { bytes_per_s_ = bytes_per_s; }

    float* slot(int index) override { return inner_->slot(index); }
    float* values() override { return inner_->values(); }
    FloatRange own_stripe(std::size_t bucket) const override { return inner_->own_stripe(bucket); }
    bool is_first_copy() const override { return inner_->is_first_copy(); }

    void arrive(std::size_t bucket) override {
        const double bytes = static_cast<double>(layout_.bucket(bucket).size() * sizeof(float));
        link_free_at_s_ = std::max(link_free_at_s_, now_s()) + bytes / bytes_per_s_;
        carried_at_s_[bucket] = link_free_at_s_;
        inner_->arrive(bucket);
    }

    const float* reduce(std::size_t bucket, Wait wait) override {
        const double left_s = carried_at_s_[bucket] - now_s();
        if (left_s > 0 && wait == Wait::no) return nullptr;
        if (left_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left_s));
        return inner_->reduce(bucket, wait);
    }

    void publish() override { inner_->publish(); }
    std::string_view name() const override { return "throttled"; }
    double take_wait_s() override { return inner_->take_wait_s(); }

  private:
    const std::unique_ptr<Exchange> inner_;
    const FlatLayout layout_;
    double bytes_per_s_;
    double link_free_at_s_ = 0;
    std::vector<double> carried_at_s_;  ///< by bucket
};

}  // namespace lockstep::test
