// SPDX-License-Identifier: Apache-2.0
// One ncclComm_t: used by one thread, aborted by any.
#pragma once

#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/error.hpp"

#include "nccl/nccl_api.hpp"

#include <atomic>
#include <string>
#include <utility>

namespace lockstep {

/// Returns true if a communicator may go from one state to the other.
bool may_follow(NcclState from, NcclState to);

/// Once an abort has begun, no further call of the using thread reaches NCCL, because the abort
/// frees the communicator.
class NcclHandle {
  public:
    NcclHandle(const NcclApi& api, std::string name) : api_(api), name_(std::move(name)) {}
    NcclHandle(const NcclHandle&) = delete;
    NcclHandle& operator=(const NcclHandle&) = delete;

    const std::string& name() const { return name_; }
    NcclState state() const { return state_; }

    /// Enters `next`; expects may_follow(state(), next). After another thread's abort it throws
    /// E680, or does nothing if `next` is failed.
    void enter(NcclState next);

    /// Returns the result of `function` with the communicator. Errors: E680 if an abort has begun.
    template <class Function>
    auto use(Function&& function) {
        const UseScope scope(*this);
        return function(comm_);
    }

    /// Does the same as use(), for NCCL's results. Errors: E677 with NCCL's last error unless
    /// success or in progress.
    template <class Function>
    nccl::Result call(const char* name, Function&& function) {
        return use([&](nccl::Comm& comm) {
            const nccl::Result result = function(comm);
            check_result(result, name);
            return result;
        });
    }

    /// Returns the result of ncclCommGetAsyncError. Errors: E677 for anything but success and in
    /// progress.
    nccl::Result poll();

    /// Stops operations in flight and frees the communicator; may hang. Any thread, once.
    void abort();

  private:
    /// Marks the time in which the using thread is inside NCCL.
    class UseScope {
      public:
        explicit UseScope(NcclHandle& handle);
        ~UseScope() { handle_.in_use_ = false; }

      private:
        NcclHandle& handle_;
    };

    void check_result(nccl::Result result, const char* call) const;
    void wait_until_unused() const;
    void revoke();
    void throw_aborted() const;

    const NcclApi& api_;
    std::string name_;
    nccl::Comm comm_ = nullptr;
    std::atomic<NcclState> state_ = NcclState::unset;
    std::atomic<bool> in_use_ = false, abort_begun_ = false, was_ready_ = false;
};

/// Returns E677 with NCCL's text for `result` and the remedy.
Error nccl_error(const NcclApi& api, nccl::Comm comm, nccl::Result result, const std::string& call);

}  // namespace lockstep
