// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/flat_layout.hpp"

#include "replica/update_loops.hpp"
#include "replica/widest_vectors.hpp"

#include <array>

namespace lockstep {
namespace {

LOCKSTEP_WIDEST_VECTORS
void sgd_step(float* __restrict values,
              const float* __restrict gradients,
              float* __restrict velocity,
              std::size_t count,
              const UpdateTerms terms) {
    for (std::size_t i = 0; i < count; ++i)
        update::sgd(values[i], gradients[i], velocity[i], terms);
}

LOCKSTEP_WIDEST_VECTORS
void nesterov_step(float* __restrict values,
                   const float* __restrict gradients,
                   float* __restrict velocity,
                   std::size_t count,
                   const UpdateTerms terms) {
    for (std::size_t i = 0; i < count; ++i)
        update::nesterov(values[i], gradients[i], velocity[i], terms);
}

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
void lars_step(float* __restrict values,
               const float* __restrict gradients,
               float* __restrict velocity,
               std::size_t count,
               const UpdateTerms terms) {
    for (std::size_t i = 0; i < count; ++i)
        update::lars(values[i], gradients[i], velocity[i], terms);
}

LOCKSTEP_WIDEST_VECTORS
void lamb_moments(const float* __restrict gradients,
                  float* __restrict m,
                  float* __restrict v,
                  std::size_t count,
                  const UpdateTerms terms) {
    for (std::size_t i = 0; i < count; ++i) update::lamb_moments(gradients[i], m[i], v[i], terms);
}

LOCKSTEP_WIDEST_VECTORS
void lamb_directions(const float* __restrict values,
                     const float* __restrict m,
                     const float* __restrict v,
                     float* __restrict directions,
                     std::size_t count,
                     const UpdateTerms terms) {
    for (std::size_t i = 0; i < count; ++i)
        directions[i] = update::lamb_direction(m[i], v[i], values[i], terms);
}

LOCKSTEP_WIDEST_VECTORS
void lamb_step(float* __restrict values,
               const float* __restrict m,
               const float* __restrict v,
               std::size_t count,
               const UpdateTerms terms) {
    for (std::size_t i = 0; i < count; ++i)
        values[i] -= terms.rate * update::lamb_direction(m[i], v[i], values[i], terms);
}

LOCKSTEP_WIDEST_VECTORS
void average_step(const float* __restrict values,
                  float* __restrict average,
                  std::size_t count,
                  const UpdateTerms terms) {
    for (std::size_t i = 0; i < count; ++i) update::average(values[i], average[i], terms);
}

void run_on_host(const UpdateLaunch& l) {
    const auto count = static_cast<std::size_t>(l.count);
    switch (l.kind) {
        case UpdateKind::sgd:
            return sgd_step(l.values, l.gradients, l.first, count, l.terms);
        case UpdateKind::nesterov:
            return nesterov_step(l.values, l.gradients, l.first, count, l.terms);
        case UpdateKind::adam:
            return adam_step(l.values, l.gradients, l.first, l.second, count, l.terms);
        case UpdateKind::lars:
            return lars_step(l.values, l.gradients, l.first, count, l.terms);
        case UpdateKind::lamb_moments:
            return lamb_moments(l.gradients, l.first, l.second, count, l.terms);
        case UpdateKind::lamb_directions:
            return lamb_directions(l.gradients, l.first, l.second, l.values, count, l.terms);
        case UpdateKind::lamb:
            return lamb_step(l.values, l.first, l.second, count, l.terms);
        case UpdateKind::average:
            return average_step(l.values, l.first, count, l.terms);
        case UpdateKind::quotient:
            for (std::int64_t i = 0; i < l.count; ++i) update::element(l, i);
    }
}

class HostLoops : public UpdateLoops {
  public:
    void run(const UpdateLaunch& launch) override { run_on_host(launch); }
    void add_squares(ExactSum& sum, const float* values, std::size_t count) override {
        sum.add_squares({values, count});
    }
    std::span<float> room() override { return room_; }

  private:
    std::array<float, 1024> room_;  // one block of an exact sum
};

}  // namespace

UpdateLoops& host_loops() {
    thread_local HostLoops loops;
    return loops;
}

}  // namespace lockstep
