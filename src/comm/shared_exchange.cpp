// SPDX-License-Identifier: Apache-2.0
#include "aligned_floats.hpp"
#include "exchanges.hpp"
#include "rank_flags.hpp"
#include "shared_window.hpp"
#include "wait_clock.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

/// Where everything lies in the window: flags, values, then each rank's slots.
struct WindowPlan {
    std::size_t flag_bytes, vector_bytes, slots;

    WindowPlan(const FlatLayout& layout, const TreePlan& plan)
        : flag_bytes(whole_pages(RankFlags::bytes_for(plan.ranks()))),
          vector_bytes(whole_pages(layout.size() * sizeof(float))),
          slots(static_cast<std::size_t>(plan.slots())) {}

    std::size_t slot_at(int rank, int slot) const {
        const std::size_t before =
            static_cast<std::size_t>(rank) * slots + static_cast<std::size_t>(slot);
        return flag_bytes + vector_bytes * (1 + before);
    }
    std::size_t bytes(int ranks) const { return slot_at(ranks, 0); }
};

class SharedExchange : public Exchange {
  public:
    SharedExchange(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan)
        : layout_(layout),
          plan_(plan),
          rank_(ranks.rank()),
          places_(layout, plan),
          window_(ranks, places_.bytes(ranks.size())),
          flags_(window_.data(), ranks.rank(), ranks.size(), patience_of(ranks)),
          arrivals_(layout.bucket_count()) {
        zero_own_slots();
        for (const Partial& partial : plan.partials())
            partials_.push_back(floats_at(places_.slot_at(partial.rank, partial.slot)));
        inputs_.resize(partials_.size());
        ranks.barrier();
    }

    float* slot(int index) override { return floats_at(places_.slot_at(rank_, index)); }
    float* values() override { return floats_at(places_.flag_bytes); }

    void arrive(std::size_t bucket) override { arrivals_[bucket] = flags_.raise(); }

    const float* reduce(std::size_t bucket, Wait wait) override {
        if (!flags_.all_reached(arrivals_[bucket])) {
            if (wait == Wait::no) return nullptr;
            wait_for(arrivals_[bucket]);
        }
        return sum_own_stripe(bucket);
    }

    void publish() override { wait_for(flags_.raise()); }

    std::vector<int> awaited_ranks() const override {
        const std::uint64_t count = awaited_.load(std::memory_order_acquire);
        return flags_.missing(count);
    }

    std::string_view name() const override { return "shared memory"; }
    double take_wait_s() override { return waiting_.take(); }

  private:
    float* floats_at(std::size_t byte) const {
        return reinterpret_cast<float*>(window_.data() + byte);
    }
    void wait_for(std::uint64_t count) {
        awaited_.store(count, std::memory_order_release);
        waiting_.count([&] { flags_.wait(count); });
        awaited_.store(0, std::memory_order_release);
    }

    /// The first touch decides on which memory node a page lies: each rank touches its own.
    void zero_own_slots() {
        for (int i = 0; i < plan_.slots(); ++i) std::fill_n(slot(i), layout_.size(), 0.0f);
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) {
            const FloatRange own = own_stripe(b);
            std::fill_n(values() + own.begin, own.size(), 0.0f);
        }
    }

    FloatRange own_stripe(std::size_t bucket) const {
        return layout_.stripe(bucket, rank_, plan_.ranks());
    }

    /// In place: nobody else reads this rank's own stripe of its own slots.
    const float* sum_own_stripe(std::size_t bucket) {
        const FloatRange own = own_stripe(bucket);
        for (std::size_t k = 0; k < partials_.size(); ++k) inputs_[k] = partials_[k] + own.begin;
        float* sum = slot(0) + own.begin;
        tree_sum(plan_, inputs_, sum, own.size());
        return sum;
    }

    const FlatLayout layout_;
    const TreePlan plan_;
    const int rank_;
    const WindowPlan places_;
    const SharedWindow window_;
    RankFlags flags_;                      ///< raised by each arrival and each publication
    std::vector<std::uint64_t> arrivals_;  ///< what the flag was raised to, by bucket
    std::atomic<std::uint64_t> awaited_ = 0;
    std::vector<const float*> partials_, inputs_;
    WaitClock waiting_;
};

}  // namespace

std::unique_ptr<Exchange> make_shared_exchange(const Communicator& ranks,
                                               const FlatLayout& layout,
                                               const TreePlan& plan) {
    return std::make_unique<SharedExchange>(ranks, layout, plan);
}

}  // namespace lockstep
