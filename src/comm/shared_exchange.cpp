// SPDX-License-Identifier: Apache-2.0
#include "aligned_floats.hpp"
#include "exchanges.hpp"
#include "shared_window.hpp"
#include "spin.hpp"
#include "wait_clock.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <vector>

namespace lockstep {
namespace {

/// Counts arrivals for ever, so that it needs no reset: after n rounds it is n times the ranks.
struct alignas(64) ArrivalCount {
    std::atomic<std::uint64_t> value;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

/// Where everything lies in the window: counters, values, then each rank's slots.
struct WindowPlan {
    std::size_t counter_bytes, vector_bytes, slots;

    WindowPlan(const FlatLayout& layout, const TreePlan& plan)
        : counter_bytes(whole_pages((layout.bucket_count() + 1) * sizeof(ArrivalCount))),
          vector_bytes(whole_pages(layout.size() * sizeof(float))),
          slots(static_cast<std::size_t>(plan.slots())) {}

    std::size_t slot_at(int rank, int slot) const {
        const std::size_t before =
            static_cast<std::size_t>(rank) * slots + static_cast<std::size_t>(slot);
        return counter_bytes + vector_bytes * (1 + before);
    }
    std::size_t bytes(int ranks) const { return slot_at(ranks, 0); }
};

class SharedExchange : public Exchange {
  public:
    SharedExchange(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan)
        : layout_(layout),
          plan_(plan),
          rank_(ranks.rank()),
          ranks_(static_cast<std::uint64_t>(ranks.size())),
          places_(layout, plan),
          window_(ranks, places_.bytes(ranks.size())),
          arrivals_(layout.bucket_count()) {
        if (ranks.is_root()) make_counters();
        zero_own_slots();
        for (const Partial& partial : plan.partials())
            partials_.push_back(floats_at(places_.slot_at(partial.rank, partial.slot)));
        inputs_.resize(partials_.size());
        ranks.barrier();
    }

    float* slot(int index) override { return floats_at(places_.slot_at(rank_, index)); }
    float* values() override { return floats_at(places_.counter_bytes); }

    void arrive(std::size_t bucket) override {
        ++arrivals_[bucket];
        counter(bucket).fetch_add(1, std::memory_order_release);
    }

    const float* reduce(std::size_t bucket, Wait wait) override {
        const std::uint64_t all = arrivals_[bucket] * ranks_;
        if (!has_reached(bucket, all)) {
            if (wait == Wait::no) return nullptr;
            wait_for(bucket, all);
        }
        return sum_own_stripe(bucket);
    }

    void publish() override {
        const std::size_t bell = layout_.bucket_count();
        ++publications_;
        counter(bell).fetch_add(1, std::memory_order_acq_rel);
        wait_for(bell, publications_ * ranks_);
    }

    std::string_view name() const override { return "shared memory"; }
    double take_wait_s() override { return waiting_.take(); }

  private:
    float* floats_at(std::size_t byte) const {
        return reinterpret_cast<float*>(window_.data() + byte);
    }
    std::atomic<std::uint64_t>& counter(std::size_t index) const {
        return reinterpret_cast<ArrivalCount*>(window_.data())[index].value;
    }
    bool has_reached(std::size_t index, std::uint64_t count) const {
        return counter(index).load(std::memory_order_acquire) >= count;
    }
    void wait_for(std::size_t index, std::uint64_t count) {
        waiting_.count([&] { spin_until([&] { return has_reached(index, count); }); });
    }

    void make_counters() const {
        auto* memory = reinterpret_cast<ArrivalCount*>(window_.data());
        for (std::size_t i = 0; i <= layout_.bucket_count(); ++i) new (memory + i) ArrivalCount{0};
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
        return layout_.stripe(bucket, rank_, static_cast<int>(ranks_));
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
    const std::uint64_t ranks_;
    const WindowPlan places_;
    const SharedWindow window_;
    std::vector<std::uint64_t> arrivals_;  ///< of this rank, by bucket
    std::uint64_t publications_ = 0;
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
