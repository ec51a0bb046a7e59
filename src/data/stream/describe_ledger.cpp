// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/ledger.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string verdict_of(const LedgerEpoch& epoch, std::uint64_t dropped) {
    if (!epoch.is_exact()) return "NOT exact";
    if (epoch.is_open) return "every sample so far exactly once";
    return dropped > 0 ? "every sample but those dropped exactly once"
                       : "every sample exactly once";
}

}  // namespace

std::string describe_ledger(const LedgerReport& report) {
    const std::string dropped = report.dropped == 0
                                    ? ""
                                    : fmt::format(", {} of them in no epoch (--drop-last, --split)",
                                                  grouped(report.dropped));
    std::string text = fmt::format("{} samples{}, {} incarnations, {} files\n",
                                   grouped(report.samples),
                                   dropped,
                                   report.incarnations,
                                   report.files);
    text += fmt::format("{:>5}  {:>9}  {:>13}  {:>9}  {:>9}  {:>10}  {:>7}\n",
                        "epoch",
                        "steps",
                        "seen",
                        "missing",
                        "duplicate",
                        "superseded",
                        "masked");
    for (const LedgerEpoch& epoch : report.epochs) {
        text += fmt::format("{:>5}  {:>9}  {:>13}  {:>9}  {:>9}  {:>10}  {:>7}  {}\n",
                            epoch.epoch,
                            grouped(epoch.steps),
                            grouped(epoch.seen),
                            grouped(epoch.missing),
                            grouped(epoch.duplicate),
                            grouped(epoch.superseded),
                            grouped(epoch.masked),
                            verdict_of(epoch, report.dropped));
        for (const std::string& finding : epoch.findings) text += "       " + finding + "\n";
    }
    for (const std::string& note : report.notes) text += "note: " + note + "\n";
    for (const std::string& finding : report.findings) text += "damage: " + finding + "\n";
    return text;
}

}  // namespace lockstep
