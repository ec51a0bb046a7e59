// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error_kind.hpp"

#include "nccl/nccl_inside.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double look_every_s = 0.5;

/// A wait becomes longer by a five-hundredth at most: a GPU stands still meanwhile.
class Pause {
  public:
    void take() {
        constexpr Seconds shortest(20e-6), longest(1e-3);
        std::this_thread::sleep_for(
            std::clamp(Seconds(now_s() - begin_s_) / 500, shortest, longest));
    }

  private:
    using Seconds = std::chrono::duration<double>;

    double begin_s_ = now_s();
};

}  // namespace

void NcclCommunicator::Inside::throw_if_others_gave_up() {
    const auto notice = bootstrap_.notice();
    check(!notice, [&] {
        return Error(
            "E682",
            fmt::format("rank {} gave up: {}", notice->rank, notice->text),
            fmt::format("this rank was in '{}' of communicator '{}'", phase_, options_.name),
            "the log of that rank has its error in full");
    });
}

void NcclCommunicator::Inside::wait(const Ready& ready,
                                    double deadline_s,
                                    const std::function<Error()>& late) {
    const double begin = now_s();
    int looks = 0;
    for (Pause pause;; pause.take()) {
        // Before the look: a thread that was held up looks once more.
        const double waited_s = now_s() - begin;
        // NCCL first: after an error of its own, events may pass although nothing was summed.
        if (ready(handle_->poll())) break;
        throw_if_others_gave_up();
        check(waited_s < deadline_s, late);
        if (look_ && waited_s > look_every_s * (looks + 1)) {
            ++looks;
            look_();
        }
    }
    if (looks > 0 && look_over_) look_over_();
}

void NcclCommunicator::Inside::on_long_wait(std::function<void()> look,
                                            std::function<void()> over) {
    look_ = std::move(look);
    look_over_ = std::move(over);
}

void NcclCommunicator::Inside::settle(const std::string& what) {
    const double limit = options_.collective_deadline_s;
    wait([](nccl::Result state) { return state == nccl::success; },
         limit,
         [&] {
             return Error(
                 "E678",
                 fmt::format("NCCL did not take '{}' within {}", what, duration_text(limit)),
                 fmt::format("communicator '{}' is still connecting to other ranks", options_.name),
                 "another rank hangs or cannot be reached: its log says what it was doing");
         });
}

bool NcclCommunicator::Inside::has_passed(const CudaEvent& event) const {
    const CudaApi::Status status = cuda().query_event(event.value());
    if (status == CudaApi::not_ready) return false;
    check_cuda(cuda(), status, "cudaEventQuery");
    return true;
}

void NcclCommunicator::Inside::wait_for(const NcclPending& pending) {
    const double limit = options_.collective_deadline_s;
    wait([&](nccl::Result) { return has_passed(pending.end); },
         limit,
         [&] {
             return Error(
                 "E678",
                 fmt::format("'{}' of communicator '{}' did not end within {}",
                             pending.what,
                             options_.name,
                             duration_text(limit)),
                 "another rank did not issue the same collective, hangs, or cannot be reached",
                 "the logs of the other ranks say where each of them is; start the same "
                 "command again to resume");
         });
}

void NcclCommunicator::Inside::keep(std::shared_ptr<const NcclPending> pending) {
    while (!pending_.empty() && has_passed(pending_.front()->end)) pending_.pop_front();
    pending_.push_back(std::move(pending));
}

NcclCommunicator::Inside::~Inside() {
    try {
        outlive_pending();
    } catch (const Error&) {
        runtime_->leave_resources();
    }
}

/// After an abort NCCL's own work is over, but not what others put behind it on the stream.
void NcclCommunicator::Inside::outlive_pending() {
    if (pending_.empty() || runtime_->is_wedged()) return;
    const double end = now_s() + options_.abort_limit_s;
    for (Pause pause; !has_passed(pending_.back()->end); pause.take()) {
        if (now_s() < end) continue;
        runtime_->leave_resources();
        return;
    }
}

void NcclCommunicator::Inside::announce(const std::string& text) {
    if (has_announced_) return;
    has_announced_ = true;
    bootstrap_.announce(text);
}

/// A GPU that is lost fails every call: it is the same error, whether NCCL or we come upon it
/// first.
Error NcclCommunicator::Inside::told_by_cuda(const Error& error) {
    if (kind_of(error) != ErrorKind::nccl_failed) return error;
    try {
        record(*runtime_, make_event(runtime_), stream());
        return error;
    } catch (const Error& cuda) {
        return Error(cuda.code(), cuda.what(), cuda.why() + "\n" + error.what(), cuda.fix());
    }
}

Error NcclCommunicator::Inside::give_up(const Error& first) {
    const Error error = told_by_cuda(first);
    // A rank that heard of it from others need not tell them, but while starting all report their
    // progress.
    const ErrorKind kind = kind_of(error);
    const bool is_first = kind != ErrorKind::peer_gave_up && kind != ErrorKind::aborted;
    if (is_first || handle_->state() == NcclState::initializing)
        announce(fmt::format("{} (in '{}')", error.what(), phase_));
    handle_->enter(NcclState::failed);
    const AbortOutcome outcome = runtime_->abort_all(options_.abort_limit_s);
    std::string why = error.why() + "\n" + outcome.text();
    if (is_first && !options_.report.empty()) why += "\nNCCL's own report: " + options_.report;
    return Error(error.code(), error.what(), why, error.fix());
}

}  // namespace lockstep
