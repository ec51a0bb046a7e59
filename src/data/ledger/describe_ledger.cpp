// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/ledger.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string verdict_of(const LedgerEpoch& epoch) {
    if (!epoch.is_exact()) return "NOT exact";
    return epoch.is_open ? "every sample so far exactly once" : "every sample exactly once";
}

}  // namespace

std::string describe_ledger(const LedgerReport& report) {
    std::string text = fmt::format("{} samples, {} incarnations, {} files\n",
                                   grouped(report.samples),
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
                            verdict_of(epoch));
        for (const std::string& finding : epoch.findings) text += "       " + finding + "\n";
    }
    for (const std::string& note : report.notes) text += "note: " + note + "\n";
    for (const std::string& finding : report.findings) text += "damage: " + finding + "\n";
    return text;
}

}  // namespace lockstep
