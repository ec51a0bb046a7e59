// SPDX-License-Identifier: Apache-2.0
#include "simcuda/stream.hpp"

#include "simcuda/settings.hpp"

#include <atomic>
#include <csignal>
#include <thread>
#include <utility>

namespace simcuda {
namespace {

std::uint64_t next_number() {
    static std::atomic<std::uint64_t> streams = 0;
    return ++streams;
}

/// Signals are for the program's own threads.
void block_signals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

void Mark::pass() {
    const std::lock_guard lock(mutex_);
    has_passed_ = true;
    time_ = std::chrono::steady_clock::now();
    changed_.notify_all();
}

bool Mark::has_passed() {
    const std::lock_guard lock(mutex_);
    return has_passed_;
}

void Mark::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return has_passed_; });
}

std::chrono::steady_clock::time_point Mark::time() {
    const std::lock_guard lock(mutex_);
    return time_;
}

Stream::Stream(int device) : device_(device), number_(next_number()) {
    std::thread([this] {
        block_signals();
        run();
    }).detach();
}

void Stream::run() {
    std::unique_lock lock(mutex_);
    for (std::uint64_t number = 0; !ends_; ++number) {
        changed_.wait(lock, [&] { return !tasks_.empty(); });
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        be_late(number_, number);
        task();
        task = nullptr;
        lock.lock();
        ++done_;
        changed_.notify_all();
    }
}

void Stream::enqueue(Task task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    ++enqueued_;
    changed_.notify_all();
}

bool Stream::is_idle() {
    const std::lock_guard lock(mutex_);
    return done_ == enqueued_;
}

void Stream::drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&, upto = enqueued_] { return done_ >= upto; });
}

void Stream::end() {
    enqueue([this] { ends_ = true; });
}

void Event::record(Stream& stream) {
    mark_ = std::make_shared<Mark>();
    stream.enqueue([mark = mark_] { mark->pass(); });
}

double Event::milliseconds_to(const Event& later) const {
    return std::chrono::duration<double, std::milli>(later.mark_->time() - mark_->time()).count();
}

void Event::hold(Stream& stream) {
    if (mark_) stream.enqueue([mark = mark_] { mark->wait(); });
}

}  // namespace simcuda
