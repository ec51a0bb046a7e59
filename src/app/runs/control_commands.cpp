// SPDX-License-Identifier: Apache-2.0
// The commands stop and save: they send a request by a file in the run's directory, and wait until
// it has happened.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* stop_text =
    R"(Asks the run to save and end, through a file in its directory: no rights in SLURM are needed, only
those to write there. All ranks end after the same step; the same 'lockstep train' goes on from it
with the same bits. The run's exit code is 130, as after Ctrl-C, so that a batch script does not
requeue it.

Waits until the run has ended. Ctrl-C, or the end of --timeout, ends the waiting, not the request.
With --after-checkpoint it waits as long as it takes, unless --timeout is given.

Examples:
  lockstep stop runs/a                       # save now, then end
  lockstep stop runs/a --after-checkpoint    # end with the next checkpoint that is due anyway
  lockstep stop runs/a --now                 # do not save: go on from the last checkpoint
)";

constexpr const char* save_text =
    R"(Asks the run for a checkpoint, through a file in its directory; the run goes on. Waits until the
checkpoint is written. Ctrl-C, or the end of --timeout, ends the waiting, not the request.

Example:
  lockstep save runs/a
)";

struct ControlOptions {
    bool now = false, after_checkpoint = false;
    double timeout_s = 600;
};

struct Request {
    fs::path run;
    ControlRequest asked;
    double timeout_s = 0;  // 0: no limit
};

bool is_stop(const Request& request) {
    return request.asked.action != ControlAction::save;
}

void check_at_work(const RunStatus& status) {
    check(status.is_alive(),
          "E683",
          fmt::format("nothing runs in '{}'", status.root.string()),
          status.condition == RunCondition::lost
              ? fmt::format("it is marked as running, but {} is gone",
                            status.holder.empty() ? "its process" : status.holder)
              : fmt::format(
                    "the run is {} at step {}", run_condition_name(status.condition), status.step),
          status.condition == RunCondition::complete ? "nothing to do: all its steps are done"
          : status.fails_again() ? fmt::format("nothing to do; 'lockstep logs {} --first-error' "
                                               "says what to fix before it can resume",
                                               shell_text({status.root.string()}))
                                 : "nothing to do; the same 'lockstep train' command resumes it");
}

Error ended_otherwise(const Request& request, const std::string& why) {
    return Error("E684",
                 fmt::format("run '{}' ended before it did that", request.run.string()),
                 why,
                 fmt::format("see 'lockstep status {}'", shell_text({request.run.string()})));
}

// It lies there, or has been taken, and no other has come after it.
bool is_pending(const Request& request) {
    const RunPaths paths{request.run};
    for (const fs::path& path : {paths.asked(), paths.taken()}) try {
            const auto found = read_control_request(path);
            if (found && found->id == request.asked.id) return true;
        } catch (const Error&) {
            // Somebody else's: the run says so.
        }
    return false;
}

bool is_met(const Request& request, const RunStatus& status) {
    if (status.incarnation != request.asked.incarnation)
        throw ended_otherwise(request, "another start of the run has begun since");
    if (status.condition == RunCondition::failed) throw ended_otherwise(request, status.reason);
    if (status.condition == RunCondition::lost)
        throw ended_otherwise(request, "its process is gone without a message");
    if (!status.is_alive()) return !(is_stop(request) && status.is_held);
    return !is_stop(request) && status.answered == request.asked.id;
}

// Checks whether it is pending before the status: a run writes its answer first.
std::optional<RunStatus> met_status(const Request& request) {
    const bool was_pending = is_pending(request);
    RunStatus status = status_of_run(request.run, StatusDepth::now);
    if (is_met(request, status)) return status;
    check(
        was_pending || status.answered == request.asked.id || !status.is_alive(),
        "E686",
        fmt::format("the request to run '{}' is gone", request.run.string()),
        "another request replaced it, or the run could not read it",
        fmt::format("see 'lockstep status {}', and ask again", shell_text({request.run.string()})));
    return {};
}

RunStatus wait_for(const Request& request) {
    constexpr std::chrono::milliseconds pause(100);
    Progress progress("waiting", 0);
    const double began_s = now_s();
    for (;;) {
        if (const auto status = met_status(request)) return *status;
        const double waited_s = now_s() - began_s;
        check(request.timeout_s <= 0 || waited_s < request.timeout_s,
              "E685",
              fmt::format("run '{}' has not answered in {}",
                          request.run.string(),
                          duration_text(request.timeout_s)),
              "a step, an evaluation or setting up takes long, or a rank hangs",
              fmt::format("the request stays and will be carried out; 'lockstep "
                          "diagnose {}' finds a hang",
                          shell_text({request.run.string()})));
        if (progress.is_due())
            progress.update(0,
                            fmt::format("waiting for run '{}' to {} | {}",
                                        printable(request.run.string()),
                                        control_action_name(request.asked.action),
                                        duration_text(waited_s)));
        std::this_thread::sleep_for(pause);
    }
}

std::string outcome_text(const Request& request, const RunStatus& status) {
    const std::string run = printable(request.run.string());
    if (status.condition == RunCondition::complete)
        return fmt::format("{}: the run is complete, step {}\n", run, status.step);
    if (status.is_alive())
        return fmt::format("{}: saved step {}; the run goes on\n", run, status.saved_step);
    return fmt::format("{}: stopped; the same command goes on from step {}\n", run, status.step);
}

int ask(const fs::path& run, ControlAction action, double timeout_s) {
    const RunStatus before = status_of_run(run, StatusDepth::now);
    check_at_work(before);
    const Request request{run, ask_run(run, action, before.incarnation), timeout_s};
    print_once(outcome_text(request, wait_for(request)));
    return 0;
}

int stop(const ControlOptions& options, const Invocation& call) {
    check_fits(!(options.now && options.after_checkpoint),
               "--now and --after-checkpoint do not go together",
               "one ends without a checkpoint, the other with the next one",
               "give one of them, or none: then the run saves and ends");
    const auto timeout = std::ranges::find(call.options, "timeout", &ResolvedOption::name);
    const bool is_default = timeout == call.options.end() || timeout->origin == "default";
    const double timeout_s = options.after_checkpoint && is_default ? 0 : options.timeout_s;
    const auto action = options.now                ? ControlAction::stop_now
                        : options.after_checkpoint ? ControlAction::stop_after_checkpoint
                                                   : ControlAction::stop;
    return ask(call.positionals[0], action, timeout_s);
}

}  // namespace

Command stop_command() {
    auto options = std::make_shared<ControlOptions>();
    return {.name = "stop",
            .summary = "ask a run to save and end",
            .usage = "lockstep stop RUN [--now|--after-checkpoint] [--timeout T]",
            .text = stop_text,
            .table = {{"Options",
                       {flag_option("now", options->now, "end without a checkpoint"),
                        flag_option("after-checkpoint",
                                    options->after_checkpoint,
                                    "end with the next regular checkpoint")}},
                      waiting_group(options->timeout_s)},
            .positionals = 1,
            .run = [options](const Invocation& call) { return stop(*options, call); }};
}

Command save_command() {
    auto options = std::make_shared<ControlOptions>();
    return {.name = "save",
            .summary = "ask a run for a checkpoint",
            .usage = "lockstep save RUN [--timeout T]",
            .text = save_text,
            .table = {waiting_group(options->timeout_s)},
            .positionals = 1,
            .run = [options](const Invocation& call) {
                return ask(call.positionals[0], ControlAction::save, options->timeout_s);
            }};
}

}  // namespace lockstep
