// SPDX-License-Identifier: Apache-2.0
// exit() and quick_exit() call handlers, which are ours here. _exit() calls nothing: this program
// defines it itself, and the loader finds that definition before the C library's, for models and
// libraries too. Calls inside the C library, as in a child of popen(), do not reach it.
#include "lockstep/core/foreign_end.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Handlers can access only globals.
std::atomic<ForeignEnd*> innermost{nullptr};
std::atomic<pid_t> guarded{0};  // this process, and no child that it forks

/// Open MPI 5 calls exit(14) when the connection to another rank ends, in whatever call it is.
bool is_called_by_mpi() {
    std::array<void*, 64> frames{};
    const int count = ::backtrace(frames.data(), frames.size());
    return std::any_of(frames.begin(), frames.begin() + count, [](void* frame) {
        Dl_info place{};
        if (::dladdr(frame, &place) == 0 || place.dli_fname == nullptr) return false;
        const std::string_view file(place.dli_fname);
        return file.find("/libmpi.so") != file.npos || file.find("/libopen-pal.so") != file.npos;
    });
}

}  // namespace

void tell_of_foreign_end(int status) {
    if (innermost.load() == nullptr || guarded.load() != ::getpid()) return;
    const Error error = innermost.load()->meaning_(status);
    for (ForeignEnd* guard = innermost.exchange(nullptr); guard != nullptr; guard = guard->outer_)
        try {
            guard->tell_(error);
        } catch (const std::exception&) {  // the process ends
        }
    end_process(static_cast<int>(error.exit_code()));
}

Error ForeignEnd::model_ended(int status) {
    if (is_called_by_mpi())
        return {
            "E660",
            fmt::format("MPI ended this process with exit code {}: it lost another rank", status),
            "Open MPI's words above name that rank's host",
            "start the same command again: it resumes from the newest checkpoint, if there is one"};
    return {"E713",
            fmt::format("the model ended the process: it called exit({})", status),
            "Lockstep did not call it: the model's code did, or a library that it uses",
            "throw an exception there instead of exit(): its text is shown then"};
}

ForeignEnd::ForeignEnd(Tell tell, Meaning meaning)
    : tell_(std::move(tell)), meaning_(meaning), outer_(innermost.load()) {
    static const bool are_set = [] {
        ::on_exit([](int status, void*) { tell_of_foreign_end(status); }, nullptr);
        std::at_quick_exit([] { tell_of_foreign_end(0); });
        return true;
    }();
    static_cast<void>(are_set);
    guarded = ::getpid();
    innermost = this;
}

ForeignEnd::~ForeignEnd() {
    innermost = outer_;
}

void end_process(int exit_code) {
    while (true) ::syscall(SYS_exit_group, exit_code);
}

}  // namespace lockstep

extern "C" {

void _exit(int status) {
    lockstep::tell_of_foreign_end(status);
    lockstep::end_process(status);
}

void _Exit(int status) noexcept {
    _exit(status);
}
}
