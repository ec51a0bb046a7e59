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
// Tested: comm/nccl/nccl_state_test.cpp, nccl_communicator_test.cpp with a made-up NCCL that hangs
// and fails on command.
#include "nccl/nccl_handle.hpp"

#include "lockstep/core/clock.hpp"
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

void NcclHandle::wait_until_unused() const {
    const double end = now_s() + use_limit_s;
    while (in_use_ && now_s() < end) nap();
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
    wait_until_unused();
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

}  // namespace lockstep
