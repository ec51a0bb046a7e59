// SPDX-License-Identifier: Apache-2.0
// What a BatchStream is made of: threads that make batches ahead of their caller, read from files
// or gathered from memory.
#pragma once

#include "lockstep/data/batch_stream.hpp"

#include "memory.hpp"
#include "ordered_work.hpp"
#include "read_plan.hpp"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

/// Batches from somewhere; the contract is BatchStream's. Sources stop() in their destructors.
class BatchSource {
  public:
    virtual ~BatchSource() = default;
    BatchSource& operator=(BatchSource&&) = delete;

    Batch next();
    virtual StreamStats stats() const;
    virtual std::uint64_t memory_bytes() const = 0;
    virtual std::string memory_text() const = 0;

  protected:
    BatchSource(std::shared_ptr<const DatasetIndex> index,
                const StreamOptions& options,
                std::size_t buffers,
                std::uint64_t rows);

    /// An error ends the stream: next() throws it after the batches before it.
    template <class Work>
    void run_guarded(Work work) {
        try {
            work();
        } catch (...) {
            const std::scoped_lock lock(mutex_);
            if (!error_) error_ = std::current_exception();
            changed_.notify_all();
        }
    }

    template <class Work>
    void add_thread(Work work) {
        threads_.emplace_back([this, work = std::move(work)] {
            work_in_background();
            run_guarded(work);
        });
    }

    /// The batch of a step whose rows and sample ids are in the room that `lent` is.
    Batch make_batch(const Step& step, BatchBuffers::Lent lent) const;

    /// Step `number` since the stream began took `seconds` to make.
    void deliver(std::uint64_t number, Batch batch, double seconds);

    /// By the caller, who would wait: whether it made a batch meanwhile.
    virtual bool help() { return false; }

    /// By the caller, after a batch that took it `waited_s`: more threads may be worth trying.
    virtual void adapt(double waited_s) = 0;

    void stop();

    const std::shared_ptr<const DatasetIndex> index_;
    const StreamOptions options_;
    const std::shared_ptr<BatchBuffers> buffers_;
    std::uint64_t steps_given_ = 0;  // the caller's
    std::vector<std::thread> threads_;

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::uint64_t, Batch> ready_;  // by number of the step
    std::exception_ptr error_;
    StreamStats stats_;
};

/// Makes a source that gathers from `rows`, which are sealed. Errors: E106.
std::unique_ptr<BatchSource> make_resident_source(std::shared_ptr<const DatasetIndex> index,
                                                  std::shared_ptr<const ResidentRows> rows,
                                                  const StreamOptions& options,
                                                  StreamPosition start);

}  // namespace lockstep
