// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/metrics_export.hpp"

#include "command.hpp"
#include "output_place.hpp"

#include <memory>

namespace lockstep {
namespace {

constexpr const char* metrics_help =
    R"(Prints the metrics of a run over all its starts, each step once: loss, rates, phases and evaluations.
csv has a row for each report and each evaluation, and a column for each metric. jsonl has the same as
lines of JSON. prometheus has the newest metrics for node_exporter's textfile collector.

It reads the run directory alone, during the run and afterwards. --out replaces the file atomically,
readable by its owner alone; a file made by the shell's > follows your umask.

Examples:
  lockstep metrics runs/a --out a.csv
  lockstep metrics runs/a --format jsonl | jq .loss
  lockstep metrics runs/a --format prometheus > /var/lib/node_exporter/a.tmp \
      && mv /var/lib/node_exporter/a.tmp /var/lib/node_exporter/a.prom
)";

enum class MetricsFormat { csv, jsonl, prometheus };

struct MetricsOptions {
    MetricsFormat format = MetricsFormat::csv;
    fs::path out;
};

std::string text_in(MetricsFormat format, const RunFigures& run) {
    if (format == MetricsFormat::csv) return metrics_csv(run);
    return format == MetricsFormat::jsonl ? metrics_jsonl(run) : metrics_prometheus(run);
}

int export_metrics(const MetricsOptions& options, const fs::path& run) {
    if (!options.out.empty()) check_output_place(options.out);
    const std::string text = text_in(options.format, read_run_figures(run));
    if (options.out.empty())
        print_once(text);
    else
        write_file_atomically(options.out, text);
    return 0;
}

}  // namespace

Command metrics_command() {
    auto options = std::make_shared<MetricsOptions>();
    return {.name = "metrics",
            .summary = "print a run's metrics as CSV, JSON lines or for Prometheus",
            .usage = "lockstep metrics RUN [--format csv|jsonl|prometheus] [--out FILE]",
            .text = metrics_help,
            .table = {{"Options",
                       {choice_option<MetricsFormat>("format",
                                                     options->format,
                                                     {{"csv", MetricsFormat::csv},
                                                      {"jsonl", MetricsFormat::jsonl},
                                                      {"prometheus", MetricsFormat::prometheus}},
                                                     "format of the output"),
                        path_option("out", "FILE", options->out, "file to write; unset: stdout")}}},
            .positionals = 1,
            .run = [options](const Invocation& call) {
                return export_metrics(*options, call.positionals[0]);
            }};
}

}  // namespace lockstep
