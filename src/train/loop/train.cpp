// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/train.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/foreign_end.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"

#include "loop/loop.hpp"
#include "model/known_errors.hpp"

#include <set>

#include <c10/util/Exception.h>

namespace lockstep {
namespace {

/// LibTorch's warnings go to the log, each text once: an LSTM on a GPU has one in every call.
class WarningLog final : public c10::WarningHandler {
  public:
    void process(const c10::Warning& warning) override {
        if (said_.insert(warning.msg()).second) once(Level::warn, "LibTorch: {}", warning.msg());
    }

  private:
    std::set<std::string> said_;
};

// Where LibTorch throws what has a name of ours.
void fail(const LoopParts& parts, const c10::Error& thrown) {
    try {
        throw_if_known(thrown);
    } catch (const Error& error) {
        note_failure(parts, error);
        throw;
    }
    note_failure(parts, as_error(thrown));
}

// From a run that was taken to its next step.
void prepare(const LoopParts& parts) {
    introduce(parts);
    start_engine(parts);
    load_data(parts);
    set_out(parts);
    rehearse(parts);
    begin_ledger(parts);
}

}  // namespace

TrainResult train_model(const TrainSettings& settings, const Communicator& ranks) {
    // A request during set-up is met after the first step.
    const SignalGuard signals(SignalGuard::SecondRequest::ends);
    WarningLog warnings;
    const c10::WarningUtils::WarningHandlerGuard of_this_thread(&warnings);
    Start start(settings, ranks);
    RunHold run(start);
    Inputs inputs = open_inputs(start);
    settle_statistics(start, inputs);
    Contract contract = settle_contract(start, inputs);
    Engine engine = make_engine(start, inputs, contract);
    take_run(run, start, inputs, contract);
    Course course(start.settings);
    const LoopParts parts{.start = start,
                          .inputs = inputs,
                          .contract = contract,
                          .run = run,
                          .engine = engine,
                          .course = course};
    const ForeignEnd only_ours([&](const Error& error) { note_failure(parts, error); });
    try {
        prepare(parts);
        FlightRecorder& recorder = run.flight->recorder();
        recorder.mark_running();
        if (course.progress.step >= contract.length.total_steps)
            once(Level::info,
                 "the run is complete: {} of {} steps",
                 course.progress.step,
                 contract.length.total_steps);
        TrainResult result;
        result.end = run_loop(parts);
        result.step = course.progress.step;
        result.test = course.progress.evaluated;
        result.parameter_hash = engine.replica->hash();
        result.summary = sum_up(parts);
        recorder.mark_finished();
        return result;
    } catch (const c10::Error& thrown) {
        fail(parts, thrown);
        throw;
    } catch (const Error& error) {
        note_failure(parts, error);
        throw;
    } catch (const std::exception& other) {
        note_failure(parts, as_error(other));
        throw;
    }
}

}  // namespace lockstep
