// SPDX-License-Identifier: Apache-2.0
/// @file
/// Handles exit() called by foreign code: a model, or a library that it uses.
#pragma once

#include "lockstep/core/error.hpp"

#include <functional>

namespace lockstep {

/// While a guard lives, only this program may end its process. If other code calls exit(), _exit(),
/// _Exit() or quick_exit(), the innermost guard turns the exit code into an error by its Meaning.
/// Then each guard's Tell is called with that error, the innermost first, and the process exits
/// with the error's code. A forked child may end as it likes. Only one thread may create and
/// destroy guards.
class ForeignEnd {
  public:
    /// Called on the thread that calls exit(); exceptions that it throws are dropped.
    using Tell = std::function<void(const Error&)>;
    /// Returns the error that stands for an end with this exit code.
    using Meaning = Error (*)(int status);

    /// Returns E713, for the code of a model; E660 if it is MPI that calls exit().
    static Error model_ended(int status);

    /// Both functions must be safe to call while the process ends.
    explicit ForeignEnd(Tell tell, Meaning meaning = model_ended);
    ~ForeignEnd();
    ForeignEnd& operator=(ForeignEnd&&) = delete;

  private:
    friend void tell_of_foreign_end(int status);

    Tell tell_;
    Meaning meaning_;
    ForeignEnd* outer_;
};

/// Ends the process like _exit(), by our own decision: no guard is called. Async-signal-safe.
[[noreturn]] void end_process(int exit_code);

}  // namespace lockstep
