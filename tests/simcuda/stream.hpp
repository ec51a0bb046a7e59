// SPDX-License-Identifier: Apache-2.0
// A CUDA stream as a thread, and events.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace simcuda {

class Recording;

/// A place in a stream's work.
class Mark {
  public:
    void pass();
    bool has_passed();
    void wait();
    /// After it has passed.
    std::chrono::steady_clock::time_point time();

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool has_passed_ = false;
    std::chrono::steady_clock::time_point time_;
};

/// Does its work in order, one piece after the other, on a thread of its own and as late as the
/// settings ask. Never destroyed: another thread may always be waiting for it.
class Stream {
  public:
    using Task = std::function<void()>;

    explicit Stream(int device);
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    int device() const { return device_; }
    void enqueue(Task task);
    bool is_idle();

    /// Until all is done that was enqueued before.
    void drain();

    /// Its thread ends when its work is done.
    void end();

    std::atomic<Recording*> recording = nullptr;  ///< of what is asked of it; null: it is done

  private:
    void run();

    const int device_;
    std::uint64_t number_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Task> tasks_;
    std::uint64_t enqueued_ = 0, done_ = 0;
    bool ends_ = false;
};

/// As cudaEvent_t: where its last record was, if it was recorded at all.
class Event {
  public:
    void record(Stream& stream);
    bool has_passed() { return !mark_ || mark_->has_passed(); }
    void synchronize() {
        if (mark_) mark_->wait();
    }
    /// Both have passed.
    double milliseconds_to(const Event& later) const;
    /// `stream` waits for what is recorded now; a later record is none of its business.
    void hold(Stream& stream);

    bool is_of_recording = false;  ///< the stream recorded a graph

  private:
    std::shared_ptr<Mark> mark_;
};

}  // namespace simcuda
