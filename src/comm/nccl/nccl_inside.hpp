// SPDX-License-Identifier: Apache-2.0
// The parts of a communicator, and the only functions in which its thread waits and fails.
#pragma once

#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/error.hpp"

#include "nccl/nccl_api.hpp"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Returns true if a communicator may go from one state to the other.
bool may_follow(NcclState from, NcclState to);

/// Once an abort has begun, no further call of the using thread reaches NCCL, because the abort
/// frees the communicator.
class NcclHandle {
  public:
    NcclHandle(const NcclApi& api, std::string name) : api_(api), name_(std::move(name)) {}
    NcclHandle& operator=(NcclHandle&&) = delete;

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

/// Returns the number of unique ids with which a communicator starts. One serves up to 256 ranks.
/// Beyond, if the library supports several (ncclCommInitRankScalable), there is one per 128 ranks,
/// so that no rank is contacted by more than that.
int unique_id_count(int ranks, bool has_scalable_init);

/// Returns the ranks that make an id, in the order of the ids (NCCL's user guide, "Creating a
/// communicator using multiple ncclUniqueIds").
std::vector<int> unique_id_makers(int ranks, int ids);

/// One issued collective.
struct NcclPending {
    std::string what;
    CudaEvent end;                        ///< on the communicator's stream, after the collective
    std::shared_ptr<const void> buffers;  ///< kept until `end`
};

/// The condition of a wait: true when it is met. Its argument is NCCL's state of the communicator.
using Ready = std::function<bool(nccl::Result)>;

class NcclCommunicator::Inside {
  public:
    Inside(std::shared_ptr<GpuRuntime> runtime, Bootstrap& bootstrap, const NcclOptions& options);
    ~Inside();
    Inside& operator=(Inside&&) = delete;

    const NcclApi& nccl() const { return runtime_->nccl(); }
    const CudaApi& cuda() const { return runtime_->cuda(); }
    const std::shared_ptr<GpuRuntime>& runtime() const { return runtime_; }
    NcclHandle& handle() { return *handle_; }
    Bootstrap& bootstrap() { return bootstrap_; }
    const NcclOptions& options() const { return options_; }
    GpuStream stream() const { return stream_.value(); }
    std::vector<StartPhase>& phases() { return phases_; }

    /// Returns hosts by rank, as NCCL distinguishes them, after start().
    const std::vector<std::string>& hosts() const { return hosts_; }

    /// Collective. Makes all steps up to `ready`.
    void start();
    /// Collective. Makes the steps from `finalizing` to `destroyed`.
    void finish();

    /// Waits without a plain synchronize: each round checks NCCL, the abort flag, other ranks and
    /// the clock. `late` makes the error of a deadline.
    void wait(const Ready& ready, double deadline_s, const std::function<Error()>& late);

    /// Waits until NCCL has accepted the issued work: only then is the stream complete.
    void settle(const std::string& what);

    /// Returns the result of `step`. An error of it ends everything: see give_up().
    template <class Step>
    auto guarded(Step&& step) {
        try {
            return step();
        } catch (const Error& error) {
            throw give_up(error);
        }
    }

    /// Tells the other ranks, aborts all communicators, and returns an error that reports it.
    Error give_up(const Error& error);
    Error told_by_cuda(const Error& error);

    bool has_passed(const CudaEvent& event) const;
    void wait_for(const NcclPending& pending);

    /// `look` is called every half second of a long wait, and `over` at its end.
    void on_long_wait(std::function<void()> look, std::function<void()> over);

    /// Returns the end of all present work of the stream, and keeps `buffers` until then.
    std::shared_ptr<const NcclPending> end_of(std::string what,
                                              std::shared_ptr<const void> buffers);

  private:
    void run_phase(const std::string& name, const std::function<void()>& body);
    std::vector<std::string> exchange(const std::function<std::string()>& mine);
    void agree_on_facts();
    void exchange_ids();
    void init_nccl();
    void prove();
    Error late_start();
    double start_seconds_left() const;
    void announce(const std::string& text);
    void throw_if_others_gave_up();
    void outlive_pending();

    std::shared_ptr<GpuRuntime> runtime_;
    Bootstrap& bootstrap_;
    NcclOptions options_;
    std::shared_ptr<NcclHandle> handle_;
    CudaStream stream_;
    std::vector<StartPhase> phases_;
    std::vector<nccl::UniqueId> ids_;
    std::vector<std::string> hosts_;
    std::string phase_ = "set-up";
    double start_end_s_ = 0;

    bool has_announced_ = false;
    std::function<void()> look_, look_over_;
    std::deque<std::shared_ptr<const NcclPending>> pending_;  ///< in the order of the stream
};

}  // namespace lockstep
