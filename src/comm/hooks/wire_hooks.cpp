// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/bucket_hook.hpp"
#include "lockstep/core/error.hpp"

#include "base/mpi_check.hpp"
#include "hooks/half_floats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include <mpi.h>

namespace lockstep {
namespace {

/// Both formats: what they count and what one rank does.
class WireHook : public BucketHook {
  public:
    explicit WireHook(const Communicator& ranks) : ranks_(ranks.duplicate()) {}

    void sum(std::size_t, std::span<float> values) override {
        if (ranks_.size() == 1) return;
        volume_.gradient_bytes += values.size_bytes();
        volume_.wire_bytes += values.size() * sizeof(std::uint16_t);
        wire_.resize(values.size());
        sum_on_wire(values);
    }
    WireVolume take_volume() override { return std::exchange(volume_, {}); }

  protected:
    virtual void sum_on_wire(std::span<float> values) = 0;

    const Communicator ranks_;
    std::vector<std::uint16_t> wire_;

  private:
    WireVolume volume_;
};

class BrainFloatHook : public WireHook {
  public:
    BrainFloatHook(const Communicator& ranks, AllReduce& sum) : WireHook(ranks), sum_(sum) {}
    std::string_view name() const override { return name_of(WireFormat::bfloat16); }

  private:
    void sum_on_wire(std::span<float> values) override {
        std::ranges::transform(values, wire_.begin(), to_bfloat16);
        sum_.all_reduce(wire_.data(), wire_.size(), DataType::bfloat16);
        std::ranges::transform(wire_, values.begin(), from_bfloat16);
    }

    AllReduce& sum_;
};

/// Each rank owns a stripe: it gets the others' partials of it, and all get its sum.
class HalfFloatHook : public WireHook {
  public:
    explicit HalfFloatHook(const Communicator& ranks) : WireHook(ranks) {}
    std::string_view name() const override { return name_of(WireFormat::float16); }

  private:
    void sum_on_wire(std::span<float> values) override {
        const double scale = std::ldexp(1.0, scale_exponent(values));
        std::ranges::transform(values, wire_.begin(), [&](float value) {
            return to_float16(static_cast<float>(value * scale));
        });
        cut_stripes(values.size());
        send_partials();
        sum_own_stripe();
        gather_sums();
        std::ranges::transform(wire_, values.begin(), [&](std::uint16_t half) {
            return static_cast<float>(from_float16(half) / scale);
        });
    }

    /// Collective. Scaled by that power of two, neither a partial nor a sum reaches 2^15 on any
    /// rank. Zero if that is in vain because a value is not finite.
    int scale_exponent(std::span<const float> values) const {
        std::uint32_t largest = 0;
        for (const float value : values)
            largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
        std::array<std::int64_t, 1> agreed = {largest};
        ranks_.all_reduce_max(agreed);
        const auto magnitude = std::bit_cast<float>(static_cast<std::uint32_t>(agreed[0]));
        if (magnitude == 0 || !std::isfinite(magnitude)) return 0;
        const int sum_bits = std::bit_width(static_cast<unsigned>(ranks_.size()) - 1);
        return 14 - std::ilogb(magnitude) - sum_bits;
    }

    void cut_stripes(std::size_t count) {
        counts_.clear();
        offsets_.clear();
        expect(count < (std::size_t{1} << 31), "a bucket has fewer than 2^31 floats");
        for (int rank = 0; rank < ranks_.size(); ++rank) {
            const ElementRange stripe = stripe_of(count, DataType::bfloat16, rank, ranks_.size());
            counts_.push_back(static_cast<int>(stripe.size()));
            offsets_.push_back(static_cast<int>(stripe.begin));
        }
    }

    int own_count() const { return counts_[static_cast<std::size_t>(ranks_.rank())]; }

    void send_partials() {
        const auto ranks = static_cast<std::size_t>(ranks_.size());
        const std::vector<int> received(ranks, own_count());
        std::vector<int> places(ranks);
        for (std::size_t rank = 1; rank < ranks; ++rank)
            places[rank] = places[rank - 1] + own_count();
        partials_.resize(ranks * static_cast<std::size_t>(own_count()));
        check_mpi(MPI_Alltoallv(wire_.data(),
                                counts_.data(),
                                offsets_.data(),
                                MPI_UINT16_T,
                                partials_.data(),
                                received.data(),
                                places.data(),
                                MPI_UINT16_T,
                                ranks_.handle()),
                  "MPI_Alltoallv");
    }

    void sum_own_stripe() {
        const auto count = static_cast<std::size_t>(own_count());
        std::uint16_t* own = wire_.data() + offsets_[static_cast<std::size_t>(ranks_.rank())];
        for (std::size_t i = 0; i < count; ++i) {
            float total = 0;
            for (std::size_t at = i; at < partials_.size(); at += count)
                total += from_float16(partials_[at]);
            own[i] = to_float16(total);
        }
    }

    void gather_sums() {
        check_mpi(MPI_Allgatherv(MPI_IN_PLACE,
                                 0,
                                 MPI_UINT16_T,
                                 wire_.data(),
                                 counts_.data(),
                                 offsets_.data(),
                                 MPI_UINT16_T,
                                 ranks_.handle()),
                  "MPI_Allgatherv");
    }

    std::vector<int> counts_, offsets_;    ///< of each rank's stripe
    std::vector<std::uint16_t> partials_;  ///< of the own stripe, rank by rank
};

}  // namespace

std::unique_ptr<BucketHook> make_wire_hook(WireFormat format,
                                           const Communicator& ranks,
                                           AllReduce& sum) {
    if (format == WireFormat::bfloat16) return std::make_unique<BrainFloatHook>(ranks, sum);
    expect(format == WireFormat::float16, "a format that only rounds");
    return std::make_unique<HalfFloatHook>(ranks);
}

}  // namespace lockstep
