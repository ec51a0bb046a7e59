// SPDX-License-Identifier: Apache-2.0
#include "thread_growth.hpp"

namespace lockstep {
namespace {

constexpr double unnoticed_share = 0.01, busy_share = 0.5;

}  // namespace

ThreadGrowth::Advice ThreadGrowth::look(double now, const StreamStats& total) {
    const double elapsed = now - last_look_s_;
    const StreamStats spent = total - last_;
    const bool is_first = !has_begun_;
    has_begun_ = true;
    last_look_s_ = now;
    next_look_s_ = now + interval_s;
    last_ = total;
    if (is_first || elapsed <= 0) return Advice::none;
    waited_share_ = spent.wait_s / elapsed;
    const double io_s = spent.read_s + spent.verify_s + spent.decode_s;
    const bool is_busy = io_s > busy_share * elapsed * total.io_threads;
    return waited_share_ > unnoticed_share && is_busy && total.io_threads < most_ ? Advice::add
                                                                                  : Advice::keep;
}

}  // namespace lockstep
