// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "aligned_floats.hpp"
#include "exchanges.hpp"
#include "mpi_check.hpp"
#include "wait_clock.hpp"

#include <vector>

#include <mpi.h>

namespace lockstep {
namespace {

int message_size(std::size_t floats) {
    expect(floats < (std::size_t{1} << 31), "a stripe has fewer than 2^31 floats");
    return static_cast<int>(floats);
}

/// Messages of one (sender, bucket) carry the sender's partials in their order; MPI keeps it.
class MpiExchange : public Exchange {
  public:
    MpiExchange(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan)
        : ranks_(ranks.duplicate()),
          layout_(layout),
          plan_(plan),
          values_(make_aligned_floats(layout.size())),
          receives_(layout.bucket_count()),
          arrived_(layout.bucket_count()) {
        for (int i = 0; i < plan.slots(); ++i) slots_.push_back(make_aligned_floats(layout.size()));
        std::size_t own_floats = 0;
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
            own_begin_.push_back(own_floats);
            own_floats += own_stripe(b).size();
        }
        for (const Partial& partial : plan.partials())
            arrived_from_.push_back(is_own(partial) ? AlignedFloats()
                                                    : make_aligned_floats(own_floats));
    }

    float* slot(int index) override { return slots_[static_cast<std::size_t>(index)].get(); }
    float* values() override { return values_.get(); }

    void arrive(std::size_t bucket) override {
        arrived_[bucket] = false;
        receive_partials(bucket);
        send_partials(bucket);
    }

    const float* reduce(std::size_t bucket, Wait wait) override {
        if (!arrived_[bucket]) arrived_[bucket] = has_arrived(bucket, wait);
        return arrived_[bucket] ? sum_own_stripe(bucket) : nullptr;
    }

    void publish() override {
        waiting_.count([&] {
            wait_all(sends_);
            for (std::size_t b = 0; b < layout_.bucket_count(); ++b) gather_values(b);
        });
    }

    std::string_view name() const override { return "mpi"; }
    double take_wait_s() override { return waiting_.take(); }

  private:
    using Requests = std::vector<MPI_Request>;

    bool is_own(const Partial& partial) const { return partial.rank == ranks_.rank(); }
    FloatRange stripe_of(std::size_t bucket, int rank) const {
        return layout_.stripe(bucket, rank, ranks_.size());
    }
    FloatRange own_stripe(std::size_t bucket) const { return stripe_of(bucket, ranks_.rank()); }

    /// Where partial `k` of this rank's own stripe of `bucket` is once it has arrived.
    float* input(std::size_t k, std::size_t bucket) {
        const Partial& partial = plan_.partials()[k];
        return is_own(partial) ? slot(partial.slot) + own_stripe(bucket).begin
                               : arrived_from_[k].get() + own_begin_[bucket];
    }

    void receive_partials(std::size_t bucket) {
        const int count = message_size(own_stripe(bucket).size());
        for (std::size_t k = 0; count > 0 && k < plan_.partials().size(); ++k) {
            const Partial& partial = plan_.partials()[k];
            if (is_own(partial)) continue;
            MPI_Request& request = receives_[bucket].emplace_back(MPI_REQUEST_NULL);
            check_mpi(MPI_Irecv(input(k, bucket),
                                count,
                                MPI_FLOAT,
                                partial.rank,
                                static_cast<int>(bucket),
                                ranks_.handle(),
                                &request),
                      "MPI_Irecv");
        }
    }

    void send_partials(std::size_t bucket) {
        for (int step = 1; step < ranks_.size(); ++step) {
            const int owner = (ranks_.rank() + step) % ranks_.size();
            const FloatRange stripe = stripe_of(bucket, owner);
            if (stripe.size() == 0) continue;
            for (const Partial& partial : plan_.partials_of_rank(ranks_.rank())) {
                MPI_Request& request = sends_.emplace_back(MPI_REQUEST_NULL);
                check_mpi(MPI_Isend(slot(partial.slot) + stripe.begin,
                                    message_size(stripe.size()),
                                    MPI_FLOAT,
                                    owner,
                                    static_cast<int>(bucket),
                                    ranks_.handle(),
                                    &request),
                          "MPI_Isend");
            }
        }
    }

    bool has_arrived(std::size_t bucket, Wait wait) {
        Requests& requests = receives_[bucket];
        if (wait == Wait::yes) {
            waiting_.count([&] { wait_all(requests); });
            return true;
        }
        int done = 0;
        check_mpi(
            MPI_Testall(
                static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
        if (done != 0) requests.clear();
        return done != 0;
    }

    void wait_all(Requests& requests) {
        check_mpi(
            MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE),
            "MPI_Waitall");
        requests.clear();
    }

    /// In place: this rank's own stripe of its own slots is sent to nobody.
    const float* sum_own_stripe(std::size_t bucket) {
        const FloatRange own = own_stripe(bucket);
        std::vector<const float*> inputs;
        for (std::size_t k = 0; k < plan_.partials().size(); ++k)
            inputs.push_back(input(k, bucket));
        float* sum = slot(0) + own.begin;
        tree_sum(plan_, inputs, sum, own.size());
        return sum;
    }

    void gather_values(std::size_t bucket) {
        std::vector<int> counts, offsets;
        for (int rank = 0; rank < ranks_.size(); ++rank) {
            const FloatRange stripe = stripe_of(bucket, rank);
            counts.push_back(message_size(stripe.size()));
            offsets.push_back(message_size(stripe.begin - layout_.bucket(bucket).begin));
        }
        check_mpi(MPI_Allgatherv(MPI_IN_PLACE,
                                 0,
                                 MPI_FLOAT,
                                 values() + layout_.bucket(bucket).begin,
                                 counts.data(),
                                 offsets.data(),
                                 MPI_FLOAT,
                                 ranks_.handle()),
                  "MPI_Allgatherv");
    }

    const Communicator ranks_;
    const FlatLayout layout_;
    const TreePlan plan_;
    AlignedFloats values_;
    std::vector<AlignedFloats> slots_;
    std::vector<AlignedFloats> arrived_from_;  ///< by partial: all own stripes of another rank's
    std::vector<std::size_t> own_begin_;       ///< by bucket: where its stripe is in those
    std::vector<Requests> receives_;           ///< by bucket
    std::vector<bool> arrived_;
    Requests sends_;
    WaitClock waiting_;
};

}  // namespace

std::unique_ptr<Exchange> make_mpi_exchange(const Communicator& ranks,
                                            const FlatLayout& layout,
                                            const TreePlan& plan) {
    return std::make_unique<MpiExchange>(ranks, layout, plan);
}

}  // namespace lockstep
