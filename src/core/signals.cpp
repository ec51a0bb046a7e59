// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/signals.hpp"

#include "lockstep/core/foreign_end.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <ctime>

#include <sys/prctl.h>

namespace lockstep {
namespace {

// Handlers can access only globals; these two are used.
std::atomic<int> request{0};
static_assert(std::atomic<int>::is_always_lock_free);

std::atomic<int> requests{0};
std::atomic<bool> second_ends{false};
std::atomic<std::int64_t> newest_request_ms{0}, first_interrupt_ms{0};

std::atomic<std::atomic<std::uint64_t>*> mirror{nullptr};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::array handled = {SIGUSR1, SIGUSR2, SIGTERM, SIGHUP, SIGINT};
std::array<struct sigaction, handled.size()> before;

void raise_request(StopRequest wanted) {
    int seen = request.load();
    while (seen < static_cast<int>(wanted) &&
           !request.compare_exchange_weak(seen, static_cast<int>(wanted))) {
    }
}

// timeout(1) and shells send a signal to a process and to its group: twice, for one request.
constexpr std::int64_t same_ms = 1000;

std::int64_t now_ms() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void count_request() {
    const std::int64_t now = now_ms();
    const std::int64_t before_ms = newest_request_ms.exchange(now);
    if (requests.load() == 0 || now - before_ms > same_ms) ++requests;
}

void on_signal(int signal) {
    mirror_signal(signal);
    if (signal != SIGINT) {
        count_request();
        constexpr int requeue = 75;
        if (second_ends.load() && requests.load() > 1 && mirror.load() == nullptr)
            end_process(requeue);
        return raise_request(StopRequest::save_and_requeue);
    }
    if (request.load() != static_cast<int>(StopRequest::interrupt)) {
        first_interrupt_ms = now_ms();
        return raise_request(StopRequest::interrupt);
    }
    if (now_ms() - first_interrupt_ms.load() > same_ms) end_process(130);
}

sigset_t stop_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    return signals;
}

// Threads that began while a guard let signals through still do after it, and one that reached them
// would end the process: between guards a signal that is held elsewhere is dropped there.
void drop(int /*signal*/) {}

struct sigaction handled_by(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    return action;
}

// nohup's wish goes before ours: a terminal that closes is no reason to stop.
bool is_wanted(int signal) {
    struct sigaction action {};
    const bool is_known = sigaction(signal, nullptr, &action) == 0;
    return signal != SIGHUP || !is_known || action.sa_handler != SIG_IGN;
}

}  // namespace

void outlive_readers() {
    const struct sigaction dropping = handled_by(drop);
    sigaction(SIGPIPE, &dropping, nullptr);
}

void outlive_file_limits() {
    const struct sigaction dropping = handled_by(drop);
    sigaction(SIGXFSZ, &dropping, nullptr);
}

void hold_stop_signals() {
    sigset_t signals = stop_signals();
    if (!is_wanted(SIGHUP)) sigdelset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void release_stop_signals() {
    const sigset_t signals = stop_signals();
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

SignalGuard::SignalGuard(SecondRequest second) {
    request = 0;
    second_ends = second == SecondRequest::ends;
    requests = 0;
    const struct sigaction action = handled_by(on_signal);
    for (std::size_t i = 0; i < handled.size(); ++i) {
        sigaction(handled[i], nullptr, &before[i]);
        if (is_wanted(handled[i])) sigaction(handled[i], &action, nullptr);
    }
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked_before_);
    release_stop_signals();
}

SignalGuard::~SignalGuard() {
    pthread_sigmask(SIG_SETMASK, &blocked_before_, nullptr);
    const struct sigaction dropping = handled_by(drop);
    for (std::size_t i = 0; i < handled.size(); ++i) {
        const bool is_held = sigismember(&blocked_before_, handled[i]) == 1;
        sigaction(handled[i], is_held ? &dropping : &before[i], nullptr);
    }
}

StopRequest stop_requested() {
    return static_cast<StopRequest>(request.load());
}

int stop_requests() {
    return requests.load();
}

void mirror_signal(int signal) {
    if (auto* word = mirror.load()) word->store(static_cast<std::uint64_t>(signal));
}

bool is_crash(int signal) {
    return std::ranges::count(crash_signals, signal) > 0;
}

void mirror_signals_to(std::atomic<std::uint64_t>* word) {
    mirror = word;
}

void die_with_parent(int expected_parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != expected_parent) _exit(137);
}

}  // namespace lockstep
