// SPDX-License-Identifier: Apache-2.0
// Only another thread can end a communicator whose owner waits in NCCL. ncclCommAbort is the only
// call that may run beside others, and no call may follow it.
//
//     owner       in_use := 1, looks at abort_begun | calls NCCL | in_use := 0
//     abort()     abort_begun := 1, waits for in_use = 0 (1 s at most) | revoke | ncclCommAbort
//
// Each sets its own flag before it looks at the other's, so that one of them always sees the other.
//
// What must never happen:
// - NCCL is called with a communicator that was aborted: it is freed memory.
// - An abort waits for ever for a thread that hangs inside NCCL: after a second it goes on; a
//   process that aborts is about to end.
// - A state goes back: may_follow() is the table of what may come after what.
//
// Tested: comm/nccl/nccl_communicator_test.cpp with a made-up NCCL that hangs and fails
// on command.

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"

#include "nccl/nccl_inside.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <thread>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double use_limit_s = 1;     // a thread that hangs inside NCCL must not stop the abort
constexpr double revoke_limit_s = 2;  // abort works without; revoke only makes it gentle

constexpr auto transitions = std::to_array<std::pair<NcclState, NcclState>>({
    {NcclState::unset, NcclState::initializing},
    {NcclState::initializing, NcclState::ready},
    {NcclState::initializing, NcclState::failed},
    {NcclState::initializing, NcclState::aborting},
    {NcclState::ready, NcclState::failed},
    {NcclState::ready, NcclState::finalizing},
    {NcclState::ready, NcclState::aborting},
    {NcclState::failed, NcclState::aborting},
    {NcclState::finalizing, NcclState::finalized},
    {NcclState::finalizing, NcclState::failed},
    {NcclState::finalizing, NcclState::aborting},
    {NcclState::finalized, NcclState::destroyed},
    {NcclState::finalized, NcclState::aborting},
    {NcclState::aborting, NcclState::aborted},
});

constexpr std::array<std::string_view, 9> state_names = {"unset",
                                                         "initializing",
                                                         "ready",
                                                         "failed",
                                                         "aborting",
                                                         "aborted",
                                                         "finalizing",
                                                         "finalized",
                                                         "destroyed"};

void nap() {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
}

std::string advice_for(nccl::Result result) {
    switch (result) {
        case nccl::unhandled_cuda_error:
            return "nvidia-smi must show the GPU and a driver at least as new as NCCL's CUDA; "
                   "dmesg ('NVRM: Xid') shows broken ones";
        case nccl::system_error:
            return "often the network: name the interface (NCCL_SOCKET_IFNAME), check 'ulimit -l' "
                   "for InfiniBand and the space in /dev/shm; NCCL_DEBUG=INFO says more";
        case nccl::invalid_argument:
        case nccl::invalid_usage:
            return "one GPU may serve one rank only; NCCL_DEBUG=WARN says more";
        case nccl::remote_error:
            return "another rank ended or lost its network first: its log says why";
        default:
            return "set NCCL_DEBUG=INFO, start again, and report what it prints";
    }
}

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

std::string_view name_of(NcclState state) {
    return state_names[static_cast<std::size_t>(state)];
}

bool may_follow(NcclState from, NcclState to) {
    return std::ranges::find(transitions, std::pair(from, to)) != transitions.end();
}

Error nccl_error(const NcclApi& api,
                 nccl::Comm comm,
                 nccl::Result result,
                 const std::string& call) {
    const char* last = api.get_last_error(comm);
    return Error("E677",
                 fmt::format("{} failed: {}", call, api.get_error_string(result)),
                 last == nullptr || *last == '\0' ? "NCCL gives no reason"
                                                  : fmt::format("NCCL says: {}", last),
                 advice_for(result));
}

NcclHandle::UseScope::UseScope(NcclHandle& handle) : handle_(handle) {
    // In this order: abort() sets its flag first and looks at ours second.
    handle_.in_use_ = true;
    if (!handle_.abort_begun_) return;
    handle_.in_use_ = false;
    handle_.throw_aborted();
}

void NcclHandle::throw_aborted() const {
    throw Error("E680",
                fmt::format("communicator '{}' was aborted", name_),
                "another thread or rank gave up; its message came first",
                "start the same command again to resume");
}

void NcclHandle::enter(NcclState next) {
    NcclState before = state_;
    do {
        if (may_follow(before, next)) continue;
        if (abort_begun_ && next == NcclState::failed) return;
        if (abort_begun_) throw_aborted();
        expect(false, fmt::format("NCCL state {} after {}", name_of(next), name_of(before)));
    } while (!state_.compare_exchange_weak(before, next));
    if (next == NcclState::ready) was_ready_ = true;
}

void NcclHandle::check_result(nccl::Result result, const char* call) const {
    if (result == nccl::success || result == nccl::in_progress) return;
    throw nccl_error(api_, comm_, result, call);
}

nccl::Result NcclHandle::poll() {
    return use([&](nccl::Comm& comm) {
        nccl::Result state = nccl::success;
        check_result(api_.comm_get_async_error(comm, &state), "ncclCommGetAsyncError");
        check_result(state, "an operation in the background");
        return state;
    });
}

void NcclHandle::revoke() {
    if (!api_.comm_revoke) return;
    if (api_.comm_revoke(comm_, 0) != nccl::in_progress) return;
    const double end = now_s() + revoke_limit_s;
    nccl::Result state = nccl::in_progress;
    while (state == nccl::in_progress && now_s() < end) {
        nap();
        if (api_.comm_get_async_error(comm_, &state) != nccl::success) return;
    }
}

void NcclHandle::abort() {
    if (abort_begun_.exchange(true)) return;
    NcclState before = state_;
    do {
        if (!may_follow(before, NcclState::aborting)) return;
    } while (!state_.compare_exchange_weak(before, NcclState::aborting));
    for (const double end = now_s() + use_limit_s; in_use_ && now_s() < end;) nap();
    if (comm_ != nullptr) {
        if (was_ready_) revoke();
        api_.comm_abort(comm_);
        comm_ = nullptr;
    }
    enter(NcclState::aborted);
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<GpuRuntime> runtime,
                                   Bootstrap& bootstrap,
                                   const NcclOptions& options)
    : inside_(std::make_unique<Inside>(std::move(runtime), bootstrap, options)) {
    inside_->start();
}

NcclCommunicator::NcclCommunicator(NcclCommunicator&&) noexcept = default;
NcclCommunicator& NcclCommunicator::operator=(NcclCommunicator&&) noexcept = default;

NcclCommunicator::~NcclCommunicator() {
    if (!inside_ || inside_->handle().state() != NcclState::ready) return;
    try {
        // The others do not come to finalize with a rank that is on its way out.
        if (std::uncaught_exceptions() > 0)
            inside_->runtime()->abort_all(inside_->options().abort_limit_s);
        else
            close();
    } catch (const std::exception& error) {
        here(Level::warn, "{}", error.what());
    }
}

void NcclCommunicator::close() {
    inside_->finish();
}

int NcclCommunicator::rank() const {
    return inside_->bootstrap().rank();
}
int NcclCommunicator::size() const {
    return inside_->bootstrap().size();
}
NcclState NcclCommunicator::state() const {
    return inside_->handle().state();
}
const std::vector<StartPhase>& NcclCommunicator::start_phases() const {
    return inside_->phases();
}

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

std::shared_ptr<const NcclPending> NcclCommunicator::Inside::end_of(
    std::string what, std::shared_ptr<const void> buffers) {
    while (!pending_.empty() && has_passed(pending_.front()->end)) pending_.pop_front();
    pending_.push_back(std::make_shared<const NcclPending>(
        NcclPending{std::move(what), make_event(runtime_), std::move(buffers)}));
    record(*runtime_, pending_.back()->end, stream());
    return pending_.back();
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
