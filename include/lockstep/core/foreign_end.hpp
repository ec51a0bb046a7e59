// SPDX-License-Identifier: Apache-2.0
/// @file
/// The end of a process by exit() of foreign code: a model, or a library that it uses.
#pragma once

#include "lockstep/core/error.hpp"

#include <functional>

namespace lockstep {

/// While one lives, only this program ends its process. If other code calls exit(), _exit(),
/// _Exit() or quick_exit(), with any code, each guard's function is called with its meaning by the
/// innermost guard, that one's first, and the process exits with that error's code. A child that
/// was forked may end as it likes. One thread makes and destroys them.
class ForeignEnd {
  public:
    /// Called on the thread that calls exit(); what it throws is dropped.
    using Tell = std::function<void(const Error&)>;
    /// What an end with this exit code means.
    using Meaning = Error (*)(int status);

    /// E713, for a model's code.
    static Error model_ended(int status);

    /// Both must be safe to call while the process ends.
    explicit ForeignEnd(Tell tell, Meaning meaning = model_ended);
    ~ForeignEnd();
    ForeignEnd(const ForeignEnd&) = delete;
    ForeignEnd& operator=(const ForeignEnd&) = delete;

  private:
    friend void tell_of_foreign_end(int status);

    Tell tell_;
    Meaning meaning_;
    ForeignEnd* outer_;
};

/// As _exit(), by our own decision: no guard is called. Async-signal-safe.
[[noreturn]] void end_process(int exit_code);

}  // namespace lockstep
