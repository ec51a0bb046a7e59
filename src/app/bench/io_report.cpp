// SPDX-License-Identifier: Apache-2.0
#include "bench/io_report.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/core/version.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr double mega = 1e6;

std::string rate_text(double bytes_per_s, std::uint64_t bytes) {
    return bytes == 0 ? "" : fmt::format("{:.0f}", bytes_per_s / mega);
}

std::string share_text(const std::optional<double>& share) {
    return share ? fmt::format("{:.0f}", 100 * *share) : "";
}

std::string spent_text(double seconds, double of_s) {
    return of_s > 0 ? fmt::format("{:.0f}", 100 * seconds / of_s) : "";
}

std::string row_text(const IoMeasurements& measured, const IoRow& row) {
    const double io_s = row.spent.blocks_read > 0 ? row.best_s * row.threads : 0;
    const double assembler_s = row.way == IoWay::stream ? row.best_s : 0;
    return fmt::format("{:<20} {:<5} {:>7} {:>9} {:>9} {:>6} {:>6} {:>6} {:>6} {:>6} {:>8}\n",
                       way_name(row.way),
                       state_name(row.state),
                       row.threads,
                       rate_text(row.bytes_per_s(), row.bytes),
                       rate_text(row.stored_per_s(), row.stored_bytes),
                       share_text(measured.share_of_copy(row)),
                       share_text(measured.share_of_pread(row)),
                       spent_text(row.spent.read_s, io_s),
                       spent_text(row.spent.verify_s, io_s),
                       spent_text(row.spent.decode_s, io_s),
                       spent_text(row.spent.assemble_s, assembler_s));
}

}  // namespace

std::string io_header_text(const IoPlan& plan, const std::string& cpu_model) {
    return fmt::format(
        "# lockstep {} bench io | {}\n"
        "# best of {} alternating passes of at least {} | threads {} | batches of {}\n"
        "# MB/s (10^6 bytes) of decoded and of stored bytes; their shares of memcpy and of pread\n"
        "# with as many threads, in %; where the threads' time went, in %\n",
        version_text(),
        cpu_model,
        plan.rounds,
        bytes_text(plan.least_bytes),
        fmt::join(plan.threads, ", "),
        plan.batch);
}

std::string io_table_text(const std::string& name, const IoMeasurements& measured) {
    std::string text = fmt::format(
        "#\n# {}: {} samples of {}, codec {}, {} stored as {}\n"
        "#{:<19} {:<5} {:>7} {:>9} {:>9} {:>6} {:>6} {:>6} {:>6} {:>6} {:>8}\n",
        name,
        grouped(measured.samples),
        bytes_text(measured.bytes_per_sample),
        measured.codec,
        bytes_text(measured.decoded_bytes),
        bytes_text(measured.stored_bytes),
        "way",
        "cache",
        "threads",
        "decoded",
        "stored",
        "memcpy",
        "pread",
        "read",
        "verify",
        "decode",
        "assemble");
    for (const IoRow& row : measured.rows) text += row_text(measured, row);
    for (const std::string& note : measured.notes) text += "# " + note + "\n";
    for (const std::string& verdict : io_verdicts(measured))
        text += fmt::format("verdict (codec {}): {}\n", measured.codec, verdict);
    return text;
}

}  // namespace lockstep
