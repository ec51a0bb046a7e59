// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a rank's log (rank-NNNNN.jsonl) and metrics.jsonl say, event by event: Lockstep writes them
/// and reads them back by these structs. Readers skip fields and events that they do not know.
#pragma once

#include "lockstep/core/link_times.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/run/step_line.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Where the data's time went since the last report, of this rank's threads.
struct DataReport {
    double wait_s = 0;  ///< the training loop's, for a batch
    double read_s = 0, verify_s = 0, decode_s = 0, assemble_s = 0;
    std::uint64_t bytes_read = 0;
    std::uint64_t retries = 0;         ///< of reads
    std::uint64_t masked_samples = 0;  ///< delivered with zero bytes
    int io_threads = 0;                ///< in use now
    std::string bound;                 ///< what the loop waited for, as binding_stage() says
};

/// Since the start began to train.
struct StartSums {
    double train_s = 0, save_s = 0, evaluate_s = 0;
    std::vector<LinkTimes> links{};  ///< messages that other nodes' ranks sent to this one
};

/// The steps since the last report; also a line of metrics.jsonl.
struct StepsEvent {
    static constexpr std::string_view name = "steps";  ///< in a log
    StepReport report;
    double wall_s = 0;                            ///< of these steps
    std::optional<double> gradient_norm{};        ///< of the last step, where it is clipped
    std::optional<std::int64_t> skipped_steps{};  ///< of this start, where steps may be skipped
    std::optional<double> loss_scale{};           ///< with --precision fp16
    std::optional<double> noise_scale{};          ///< samples, where it is estimated
    double comm_busy_s = 0;                       ///< buckets travelled
    double comm_exposed_s = 0;                    ///< steps waited for buckets
    std::optional<double> copy_s{};  ///< batches took to get onto the GPU, hidden or not
    DataReport data{};
    std::optional<StartSums> so_far{};  ///< with these steps; not in metrics.jsonl
};

/// The first step of a start is done.
struct FirstStepEvent {
    static constexpr std::string_view name = "first_step";
    std::int64_t step = 0;  ///< its number
};

/// An epoch is done.
struct EpochEvent {
    static constexpr std::string_view name = "epoch";
    std::int64_t epoch = 0;    ///< epochs done
    std::int64_t samples = 0;  ///< without those of a start's first step
    double seconds = 0;        ///< since the one before, or since the first step
    double samples_per_s = 0;
};

/// The test data were gone through.
struct EvaluationEvent {
    static constexpr std::string_view name = "evaluation";
    std::int64_t step = 0;  ///< after it
    double seconds = 0;
};

/// Resident data are in memory.
struct DataLoadedEvent {
    static constexpr std::string_view name = "data_loaded";
    double seconds = 0;
};

/// How this rank's clock stands, measured when its log is opened: its times less `ahead_s` are
/// those of rank 0, within `error_s`.
struct ClockEvent {
    static constexpr std::string_view name = "clock";
    double ahead_s = 0, error_s = 0;
};

/// The cores that this rank has, measured when its log is opened.
struct PlaceEvent {
    static constexpr std::string_view name = "place";
    int cores = 0;    ///< that it may use
    int sharers = 1;  ///< ranks of its node that may use some of them, itself included
    std::optional<double> quota{};  ///< cores' worth of time that its control group is allowed
};

/// Lines that something wrote to this rank's stderr past the log.
struct StderrEvent {
    static constexpr std::string_view name = "stderr";
    std::string text;
    std::uint64_t end = 0;  ///< of the line, in bytes of rank-NNNNN.stderr
};

/// A line of a launcher's stderr, in launcher-HOST.jsonl: mpirun's or srun's own, or a rank's.
struct LauncherEvent {
    static constexpr std::string_view name = "launcher";
    std::string text;
};

/// A line of metrics.jsonl after an evaluation.
struct EvaluationMetrics {
    std::int64_t step = 0, epoch = 0;
    std::map<std::string, double> figures;  ///< "test_loss", "test_accuracy", ...
};

void describe(Record& record, StepReport& report);          ///< as logs and metrics have it
void describe(Record& record, StepsEvent& event);           ///< as logs and metrics have it
void describe(Record& record, FirstStepEvent& event);       ///< as logs and metrics have it
void describe(Record& record, EpochEvent& event);           ///< as logs and metrics have it
void describe(Record& record, EvaluationEvent& event);      ///< as logs and metrics have it
void describe(Record& record, DataLoadedEvent& event);      ///< as logs and metrics have it
void describe(Record& record, ClockEvent& event);           ///< as logs and metrics have it
void describe(Record& record, PlaceEvent& event);           ///< as logs and metrics have it
void describe(Record& record, StderrEvent& event);          ///< as logs and metrics have it
void describe(Record& record, LauncherEvent& event);        ///< as logs and metrics have it
void describe(Record& record, EvaluationMetrics& metrics);  ///< as logs and metrics have it

/// Writes `event` into this rank's log.
template <Described Event>
void log_event(const Event& event) {
    log_event(Event::name, json_of_record(event));
}

/// The event that `line` of a log holds; nothing if it holds another, or is damaged.
template <Described Event>
std::optional<Event> event_in(const Json& line) {
    const Json* const name = line.find("event");
    if (!name || *name != Event::name) return {};
    try {
        return record_from_json<Event>(line, "log");
    } catch (const Error&) {
        return {};
    }
}

}  // namespace lockstep
