// SPDX-License-Identifier: Apache-2.0
#include "support/faulty.hpp"

#include "lockstep/core/clock.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace lockstep::test {
namespace {

void sleep_until(double time_s) {
    const double left_s = time_s - now_s();
    if (left_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left_s));
}

/// Carries one buffer after another at a fixed rate.
class Link {
  public:
    explicit Link(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

    /// When a buffer that is sent now is through.
    double through_at(std::size_t bytes) {
        if (bytes_per_s_ <= 0) return 0;
        free_at_ = std::max(free_at_, now_s()) + static_cast<double>(bytes) / bytes_per_s_;
        return free_at_;
    }

  private:
    double bytes_per_s_, free_at_ = 0;
};

/// Counts calls and does what comes over a process; what concerns data is told to the caller.
class Trigger {
  public:
    explicit Trigger(const Faults& faults) : faults_(faults) {}

    Fault next_call() {
        if (calls_++ != faults_.at_call) return Fault::none;
        if (faults_.fault == Fault::delay) sleep_until(now_s() + faults_.delay_s);
        if (faults_.fault == Fault::stop) ::raise(SIGSTOP);
        if (faults_.fault == Fault::kill) ::raise(SIGKILL);
        if (faults_.fault == Fault::exit) ::_exit(0);
        while (faults_.fault == Fault::hang) ::pause();
        return faults_.fault;
    }

  private:
    const Faults faults_;
    std::uint64_t calls_ = 0;
};

void flip_one_bit(void* data, std::size_t bytes) {
    if (bytes > 0) static_cast<unsigned char*>(data)[bytes / 2] ^= 1;
}

class FaultyExchange : public Exchange {
  public:
    FaultyExchange(std::unique_ptr<Exchange> inner, const FlatLayout& layout, const Faults& faults)
        : inner_(std::move(inner)),
          layout_(layout),
          trigger_(faults),
          link_(faults.bytes_per_s),
          through_at_(layout.bucket_count()) {}

    float* slot(int index) override { return inner_->slot(index); }
    float* values() override { return inner_->values(); }
    FloatRange own_stripe(std::size_t bucket) const override { return inner_->own_stripe(bucket); }
    bool is_first_copy() const override { return inner_->is_first_copy(); }

    void arrive(std::size_t bucket) override {
        const FloatRange range = layout_.bucket(bucket);
        const std::size_t bytes = range.size() * sizeof(float);
        if (trigger_.next_call() == Fault::corrupt)
            flip_one_bit(inner_->slot(0) + range.begin, bytes);
        through_at_[bucket] = link_.through_at(bytes);
        inner_->arrive(bucket);
    }
    const float* reduce(std::size_t bucket, Wait wait) override {
        if (wait == Wait::no && now_s() < through_at_[bucket]) return nullptr;
        const double begin_s = now_s();
        sleep_until(through_at_[bucket]);
        waited_s_ += now_s() - begin_s;
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
    Trigger trigger_;
    Link link_;
    std::vector<double> through_at_;  ///< by bucket
    double waited_s_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> faulty(std::unique_ptr<Exchange> exchange,
                                 const FlatLayout& layout,
                                 const Faults& faults) {
    return std::make_unique<FaultyExchange>(std::move(exchange), layout, faults);
}

}  // namespace lockstep::test
