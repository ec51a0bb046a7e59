// SPDX-License-Identifier: Apache-2.0
// Logs of earlier versions lack some fields, and a run may be read while another version writes it:
// readers use the existing fields.
#include "lockstep/run/events.hpp"

namespace lockstep {

void describe(Record& record, PhaseSeconds& phases) {
    for (std::size_t i = 0; i < phases.size(); ++i) {
        const std::string name(phase_name(static_cast<Phase>(i)));
        record.later(name.c_str(), phases[i]);
    }
}

void describe(Record& record, DataReport& data) {
    LOCKSTEP_EACH(record.later, data.wait_s, data.read_s, data.verify_s, data.decode_s);
    LOCKSTEP_EACH(record.later, data.assemble_s, data.bytes_read, data.retries);
    LOCKSTEP_EACH(record.later, data.masked_samples, data.io_threads, data.bound);
}

void describe(Record& record, StartSums& sums) {
    LOCKSTEP_EACH(record.field, sums.train_s, sums.save_s, sums.evaluate_s);
    record.sparse("links", sums.links);
}

void describe(Record& record, StepReport& report) {
    record.field("step", report.step);
    record.later("epoch", report.epoch);
    LOCKSTEP_EACH(record.measured, report.loss, report.lr, report.samples_per_s);
    LOCKSTEP_EACH(record.later, report.memory_bytes, report.phases);
}

void describe(Record& record, StepsEvent& event) {
    describe(record, event.report);
    record.later("wall_s", event.wall_s);
    LOCKSTEP_EACH(record.sparse, event.gradient_norm, event.skipped_steps);
    LOCKSTEP_EACH(record.sparse, event.loss_scale, event.noise_scale);
    LOCKSTEP_EACH(record.later, event.comm_busy_s, event.comm_exposed_s);
    record.sparse("copy_s", event.copy_s);
    record.later("data", event.data);
    record.sparse("so_far", event.so_far);
}

void describe(Record& record, FirstStepEvent& event) {
    record.field("step", event.step);
}

void describe(Record& record, EpochEvent& event) {
    LOCKSTEP_EACH(record.field, event.epoch, event.samples, event.seconds);
    record.measured("samples_per_s", event.samples_per_s);
}

void describe(Record& record, EvaluationEvent& event) {
    record.later("step", event.step);
    record.field("seconds", event.seconds);
}

void describe(Record& record, DataLoadedEvent& event) {
    record.field("seconds", event.seconds);
}

void describe(Record& record, ClockEvent& event) {
    LOCKSTEP_EACH(record.field, event.ahead_s, event.error_s);
}

void describe(Record& record, PlaceEvent& event) {
    LOCKSTEP_EACH(record.field, event.cores, event.sharers);
    record.sparse("quota", event.quota);
}

void describe(Record& record, StderrEvent& event) {
    LOCKSTEP_EACH(record.field, event.text, event.end);
}

void describe(Record& record, LauncherEvent& event) {
    record.field("text", event.text);
}

void describe(Record& record, EvaluationMetrics& metrics) {
    LOCKSTEP_EACH(record.field, metrics.step, metrics.epoch);
    for (auto& [name, value] : metrics.figures) record.measured(name.c_str(), value);
}

}  // namespace lockstep
