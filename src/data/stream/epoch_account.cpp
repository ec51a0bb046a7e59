// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/numbers.hpp"
#include "lockstep/data/ledger.hpp"

#include "ledger_record.hpp"

#include <algorithm>
#include <bit>
#include <new>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_findings = 12, most_named = 8;

void find(LedgerEpoch& result, std::string sentence) {
    if (result.findings.size() < most_findings) result.findings.push_back(std::move(sentence));
}

std::string named(const std::vector<std::uint64_t>& samples, std::uint64_t count) {
    std::string text;
    for (const std::uint64_t sample : samples) text += (text.empty() ? "" : ", ") + grouped(sample);
    if (count > samples.size())
        text += fmt::format(" and {} more", grouped(count - samples.size()));
    return text;
}

std::size_t words_for(std::uint64_t samples) {
    return std::max<std::size_t>((samples + 63) / 64, 1);
}

std::string epoch_verdict(const LedgerEpoch& epoch, std::uint64_t dropped) {
    if (!epoch.is_exact()) return "NOT exact";
    if (epoch.is_open) return "every sample so far exactly once";
    return dropped > 0 ? "every sample but those dropped exactly once"
                       : "every sample exactly once";
}

}  // namespace

EpochAccount::EpochAccount(std::uint64_t samples, std::uint64_t trained)
    : samples_(samples),
      trained_(trained),
      seen_bits_(
          static_cast<std::uint64_t*>(std::calloc(words_for(samples), sizeof(std::uint64_t))),
          &std::free) {
    if (!seen_bits_) throw std::bad_alloc();
}

void EpochAccount::add(const StepFacts& step, int ranks, std::span<const std::uint64_t> ids) {
    StepRows& rows = steps_[step.position.consumed];
    rows.samples = std::max(rows.samples, step.samples);
    rows.rows += ids.size();
    rows.ranks = std::max(rows.ranks, ranks);
    ++rows.recorded_by;
    masked_ += step.masked;
    for (const std::uint64_t id : ids) {
        if (id >= samples_) {
            ++foreign_;
            continue;
        }
        std::uint64_t& word = seen_bits_[id / 64];
        const std::uint64_t bit = std::uint64_t{1} << id % 64;
        if ((word & bit) == 0) {
            ++seen_;
        } else if (++duplicate_ <= most_named) {
            duplicates_.push_back(id);
        }
        word |= bit;
    }
}

bool EpochAccount::has_whole_step() const {
    return std::ranges::any_of(steps_, [](const auto& step) { return step.second.is_whole(); });
}

EpochAccount::Steps::const_iterator EpochAccount::end_of_account(std::uint64_t due) const {
    auto end = steps_.end();
    const auto may_be_left_out = [&](const Steps::value_type& step) {
        return step.first >= due && !step.second.is_whole();
    };
    while (end != steps_.begin() && may_be_left_out(*std::prev(end))) --end;
    return end;
}

std::uint64_t EpochAccount::check_steps(std::uint64_t due, LedgerEpoch& result) const {
    std::uint64_t reached = 0, lacking = 0;
    const auto reach = [&](std::uint64_t position) {
        if (position <= reached) return;
        lacking += position - reached;
        find(result,
             fmt::format("no step is recorded for positions {} to {}",
                         grouped(reached),
                         grouped(position - 1)));
    };
    const auto end = end_of_account(due);
    for (auto step = steps_.begin(); step != end; ++step) {
        const auto& [at, rows] = *step;
        reach(at);
        if (at < reached)
            find(result, fmt::format("two steps overlap at position {}", grouped(at)));
        if (rows.rows != rows.samples)
            find(result,
                 fmt::format("the step at position {} has {} samples; {} ranks recorded {}",
                             grouped(at),
                             grouped(rows.samples),
                             rows.recorded_by,
                             grouped(rows.rows)));
        if (rows.rows < rows.samples) lacking += rows.samples - rows.rows;
        reached = std::max(reached, at + rows.samples);
        result.steps += rows.rows == rows.samples;
    }
    reach(due);
    result.is_open = std::max(reached, due) < trained_;
    return lacking;
}

void EpochAccount::name_samples(LedgerEpoch& result) const {
    if (duplicate_ > 0) find(result, "seen more than once: " + named(duplicates_, duplicate_));
    if (foreign_ > 0)
        find(result, fmt::format("{} rows are of no sample of this data set", grouped(foreign_)));
    // Which samples an epoch drops is not recorded.
    if (result.missing == 0 || result.is_open || trained_ < samples_) return;
    std::vector<std::uint64_t> missing;
    for (std::size_t w = 0; w < words_for(samples_) && missing.size() < most_named; ++w)
        for (std::uint64_t bits = ~seen_bits_[w]; bits != 0 && missing.size() < most_named;
             bits &= bits - 1) {
            const std::uint64_t id = 64 * w + static_cast<std::uint64_t>(std::countr_zero(bits));
            if (id < samples_) missing.push_back(id);
        }
    find(result, "never seen: " + named(missing, result.missing));
}

LedgerEpoch EpochAccount::close(std::uint64_t epoch, std::uint64_t due) const {
    LedgerEpoch result;
    result.epoch = epoch;
    result.seen = seen_;
    result.duplicate = duplicate_;
    result.superseded = superseded_;
    result.masked = masked_;
    const std::uint64_t lacking = check_steps(due, result);
    result.missing = result.is_open ? lacking : trained_ - std::min(seen_, trained_);
    name_samples(result);
    return result;
}

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
                            epoch_verdict(epoch, report.dropped));
        for (const std::string& finding : epoch.findings) text += "       " + finding + "\n";
    }
    for (const std::string& note : report.notes) text += "note: " + note + "\n";
    for (const std::string& finding : report.findings) text += "damage: " + finding + "\n";
    return text;
}

}  // namespace lockstep
