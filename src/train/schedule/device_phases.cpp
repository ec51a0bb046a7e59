// SPDX-License-Identifier: Apache-2.0
#include "schedule/device_phases.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace lockstep {

void DevicePhases::begin_step() {
    if (device_.is_cpu()) return;
    used_ = 0;
    before_ = clock_.seconds();
    mark(Phase::other);
    listener_.emplace(clock_, [this](const PhaseMark& begun) { mark(begun.phase); });
}

void DevicePhases::mark(Phase phase) {
    if (used_ == marks_.size())
        marks_.push_back({phase, c10::Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT)});
    Mark& next = marks_[used_];
    next.phase = phase;
    try {
        next.event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
        ++used_;
    } catch (const c10::Error&) {
        // The GPU is lost, which whoever computes on it says; scopes end while they do.
    }
}

void DevicePhases::end_step() {
    if (device_.is_cpu()) return;
    mark(Phase::other);
    listener_.reset();
    if (used_ == 0) return;
    marks_[used_ - 1].event.synchronize();
    PhaseSeconds measured{};
    for (std::size_t i = 0; i + 1 < used_; ++i)
        measured[static_cast<std::size_t>(marks_[i].phase)] +=
            marks_[i].event.elapsedTime(marks_[i + 1].event) / 1000;
    clock_.correct(before_, measured, Phase::copy);
}

}  // namespace lockstep
