// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/exact_sum.hpp"
#include "lockstep/comm/flat_layout.hpp"

#include "replica/optimizer.hpp"

#include <array>
#include <bit>
#include <vector>

// Loops over floats are limited by roots and divisions if vectors are as narrow as on the oldest
// processors. The bits are the same for any width: each element is computed by itself, no
// multiply-add is contracted (-ffp-contract=off), and roots and quotients are rounded correctly. A
// function with this attribute is compiled for several instruction sets; the loader takes the
// widest.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LOCKSTEP_WIDEST_VECTORS \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LOCKSTEP_WIDEST_VECTORS
#endif

namespace lockstep {
namespace {

// Four streams of memory are what a step costs; asked for half a KiB ahead they come a tenth sooner
// (2 KiB was better on an older processor, and is worse than nothing on an EPYC with AVX-512).
LOCKSTEP_WIDEST_VECTORS
void adam_step(float* __restrict values,
               const float* __restrict gradients,
               float* __restrict m,
               float* __restrict v,
               std::size_t count,
               const UpdateTerms terms) {
    constexpr std::size_t ahead = 512 / sizeof(float);
    std::size_t at = 0;
    for (; at + line_floats <= count; at += line_floats) {
        for (const float* stream : {values, m, v}) __builtin_prefetch(stream + at + ahead, 1);
        __builtin_prefetch(gradients + at + ahead, 0);
        for (std::size_t i = at; i < at + line_floats; ++i)
            update::adam(values[i], gradients[i], m[i], v[i], terms);
    }
    for (; at < count; ++at) update::adam(values[at], gradients[at], m[at], v[at], terms);
}

LOCKSTEP_WIDEST_VECTORS
void run_loop(UpdateKind kind,
              float* __restrict values,
              const float* __restrict gradients,
              float* __restrict first,
              float* __restrict second,
              std::size_t count,
              const UpdateTerms terms) {
    switch (kind) {
        case UpdateKind::sgd:
            for (std::size_t i = 0; i < count; ++i)
                update::sgd(values[i], gradients[i], first[i], terms);
            return;
        case UpdateKind::nesterov:
            for (std::size_t i = 0; i < count; ++i)
                update::nesterov(values[i], gradients[i], first[i], terms);
            return;
        case UpdateKind::lars:
            for (std::size_t i = 0; i < count; ++i)
                update::lars(values[i], gradients[i], first[i], terms);
            return;
        case UpdateKind::lamb_moments:
            for (std::size_t i = 0; i < count; ++i)
                update::lamb_moments(gradients[i], first[i], second[i], terms);
            return;
        case UpdateKind::lamb_directions:
            for (std::size_t i = 0; i < count; ++i)
                update::lamb_directions(values[i], gradients[i], first[i], second[i], terms);
            return;
        case UpdateKind::lamb:
            for (std::size_t i = 0; i < count; ++i)
                update::lamb(values[i], first[i], second[i], terms);
            return;
        case UpdateKind::average:
            for (std::size_t i = 0; i < count; ++i) update::average(values[i], first[i], terms);
            return;
        case UpdateKind::quotient:
            for (std::size_t i = 0; i < count; ++i)
                update::quotient(values[i], gradients[i], terms);
            return;
        case UpdateKind::adam:
            return adam_step(values, gradients, first, second, count, terms);
    }
}

// Without a branch for each.
bool has_nonfinite(std::span<const float> values) {
    std::uint32_t found = 0;
    for (const float value : values) found |= exact::is_nonfinite(value) ? 1U : 0U;
    return found != 0;
}

class HostLoops : public UpdateLoops {
  public:
    void run(std::span<const UpdateLaunch> launches) override {
        for (const UpdateLaunch& l : launches) {
            if (update::is_withheld(l)) continue;
            const auto count = static_cast<std::size_t>(l.count);
            run_loop(l.kind, l.values, l.gradients, l.first, l.second, count, update::terms_of(l));
        }
    }

    std::int64_t* sums(std::size_t count) override {
        words_.assign(count * exact::words, 0);
        return words_.data();
    }
    void add_squares(std::int64_t* sum, const float* values, std::size_t count) override {
        ExactSum own;
        own.add_squares({values, count});
        for (const std::int64_t word : own.words()) *sum++ += word;
    }
    void add_nonfinite(std::int64_t* sum, const float* values, std::size_t count) override {
        sum[exact::nans] += has_nonfinite({values, count}) ? 1 : 0;
    }
    void sum_over(const Communicator& ranks, std::int64_t* sums, std::size_t count) override {
        ranks.all_reduce_sum({sums, count * exact::words});
    }

    const UpdateDecision* decide(DecisionLaunch launch) override {
        launch.out = &decision_;
        update::decide(launch);
        return &decision_;
    }
    const float* own_rates(OwnRatesLaunch launch) override {
        rates_.resize(static_cast<std::size_t>(launch.tensors));
        launch.out = rates_.data();
        update::own_rates_thread(launch, 0, 0, 1, 1);
        return rates_.data();
    }

    std::span<float> room() override { return room_; }

  private:
    std::vector<std::int64_t> words_;
    UpdateDecision decision_;
    std::vector<float> rates_;
    std::array<float, 1024> room_{};  // one block of an exact sum
};

}  // namespace

UpdateLoops& host_loops() {
    thread_local HostLoops loops;
    return loops;
}

}  // namespace lockstep
