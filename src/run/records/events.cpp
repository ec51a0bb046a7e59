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
    record.later("wait_s", data.wait_s);
    record.later("read_s", data.read_s);
    record.later("verify_s", data.verify_s);
    record.later("decode_s", data.decode_s);
    record.later("assemble_s", data.assemble_s);
    record.later("bytes_read", data.bytes_read);
    record.later("retries", data.retries);
    record.later("masked_samples", data.masked_samples);
    record.later("io_threads", data.io_threads);
    record.later("bound", data.bound);
}

void describe(Record& record, StartSums& sums) {
    record.field("train_s", sums.train_s);
    record.field("save_s", sums.save_s);
    record.field("evaluate_s", sums.evaluate_s);
    record.sparse("links", sums.links);
}

void describe(Record& record, StepReport& report) {
    record.field("step", report.step);
    record.later("epoch", report.epoch);
    record.measured("loss", report.loss);
    record.measured("lr", report.lr);
    record.measured("samples_per_s", report.samples_per_s);
    record.later("memory_bytes", report.memory_bytes);
    record.later("phases", report.phases);
}

void describe(Record& record, StepsEvent& event) {
    describe(record, event.report);
    record.later("wall_s", event.wall_s);
    record.sparse("gradient_norm", event.gradient_norm);
    record.sparse("skipped_steps", event.skipped_steps);
    record.sparse("loss_scale", event.loss_scale);
    record.sparse("noise_scale", event.noise_scale);
    record.later("comm_busy_s", event.comm_busy_s);
    record.later("comm_exposed_s", event.comm_exposed_s);
    record.sparse("copy_s", event.copy_s);
    record.later("data", event.data);
    record.sparse("so_far", event.so_far);
}

void describe(Record& record, FirstStepEvent& event) {
    record.field("step", event.step);
}

void describe(Record& record, EpochEvent& event) {
    record.field("epoch", event.epoch);
    record.field("samples", event.samples);
    record.field("seconds", event.seconds);
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
    record.field("ahead_s", event.ahead_s);
    record.field("error_s", event.error_s);
}

void describe(Record& record, PlaceEvent& event) {
    record.field("cores", event.cores);
    record.field("sharers", event.sharers);
    record.sparse("quota", event.quota);
}

void describe(Record& record, StderrEvent& event) {
    record.field("text", event.text);
    record.field("end", event.end);
}

void describe(Record& record, LauncherEvent& event) {
    record.field("text", event.text);
}

void describe(Record& record, EvaluationMetrics& metrics) {
    record.field("step", metrics.step);
    record.field("epoch", metrics.epoch);
    for (auto& [name, value] : metrics.figures) record.measured(name.c_str(), value);
}

}  // namespace lockstep
