// SPDX-License-Identifier: Apache-2.0
// Rules about learning and data.
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"

#include "report/evidence.hpp"
#include "report/report_words.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double much_worse = 1.1;

}  // namespace

Found find_bad_loss(const Evidence& seen) {
    std::int64_t reports = 0, first = 0;
    for (const StepsEvent& event : seen.run.reports)
        if (!std::isfinite(event.report.loss) && reports++ == 0) first = event.report.step;
    if (reports == 0) return {};
    const auto rate = parse_real(setting_of(seen.run.record, "lr"));
    return ReportFinding{
        FindingKind::loss_not_finite,
        FindingWeight::problem,
        fmt::format("the loss is not finite in {} of {} reports, first at step {}",
                    reports,
                    seen.run.reports.size(),
                    first),
        "a lower --lr, a longer --warmup-steps, --clip-norm 1, or --precision bf16 in "
        "place of fp16",
        rate ? seen.train_anew({{"lr", fmt::format("{:.3g}", *rate / 3)}}) : ""};
}

Found find_skipped_steps(const Evidence& seen) {
    std::int64_t most = 0;
    for (const StepsEvent& event : seen.run.reports)
        most = std::max(most, event.skipped_steps.value_or(0));
    if (most == 0) return {};
    const bool is_usual = setting_of(seen.run.record, "precision") == "fp16";
    return ReportFinding{
        FindingKind::skipped_steps,
        is_usual ? FindingWeight::note : FindingWeight::warning,
        fmt::format("{} step(s) were skipped: loss or gradient was not finite", most),
        is_usual ? "with fp16 a few are usual, until the loss scale fits"
                 : "the model did not learn from them: a lower --lr or --clip-norm 1",
        fmt::format("lockstep logs {} --level warn", seen.folder())};
}

Found find_overfitting(const Evidence& seen) {
    for (const ReportChart& chart : seen.report.charts)
        for (const ReportCurve& curve : chart.curves) {
            if (chart.kind != ChartKind::loss || curve.source != CurveSource::evaluations) continue;
            if (curve.points.size() < 3) continue;
            if (curve.best_low <= 0 || curve.last < much_worse * curve.best_low) continue;
            return ReportFinding{
                FindingKind::overfitting,
                FindingWeight::warning,
                fmt::format("the test loss was {} at step {} and is {} now: {} more",
                            figure_text(curve.best_low),
                            curve.low_step,
                            figure_text(curve.last),
                            share_text(curve.last / curve.best_low - 1)),
                "the model overfits: keep the best checkpoint, and stop sooner",
                seen.train_anew({{"keep-best", "loss"}, {"early-stop", "5"}})};
        }
    return {};
}

Found find_masked_samples(const Evidence& seen) {
    std::uint64_t masked = 0;
    for (const StepsEvent& event : seen.run.reports) masked += event.data.masked_samples;
    if (masked == 0) return {};
    return ReportFinding{
        FindingKind::masked_samples,
        FindingWeight::warning,
        fmt::format("{} damaged sample(s) counted as nothing on rank 0", grouped(masked)),
        "the data are damaged: copy them again",
        "lockstep data verify " + shell_word(setting_of(seen.run.record, "data"))};
}

Found find_read_retries(const Evidence& seen) {
    std::uint64_t retries = 0;
    for (const StepsEvent& event : seen.run.reports) retries += event.data.retries;
    if (retries == 0) return {};
    return ReportFinding{
        FindingKind::read_retries,
        FindingWeight::note,
        fmt::format("{} read(s) of rank 0 failed and were done again", grouped(retries)),
        "the file server is busy or its network loses packets",
        "lockstep bench io --data " + shell_word(setting_of(seen.run.record, "data"))};
}

}  // namespace lockstep
