// SPDX-License-Identifier: Apache-2.0
// Checks that each sample of an epoch was trained on once, in the final model. Each start and rank
// of the run has recorded its steps. Later starts repeated steps of killed starts:
//
//     start 1   [ step 0 ....... 40 | 41 .... 55 ]            killed; the checkpoint was at 40
//     start 2                       [ 41 ......... 90 | ]     41 to 55 of start 1 are superseded
//
// A record counts unless a later start began at or before its position. So heads are read first,
// from the latest start to the earliest, and then all records once, into a bit for each sample of
// an epoch.
//
// What must never happen:
// - A file is believed. Positions and numbers in it decide how much memory is taken, so they are
//   bounded (most_countable, most_epochs), and a file that contradicts its name or its neighbours
//   is a finding.
// - An end that a kill explains is called damage: a last record that is not whole is a note. An
//   epoch whose recording ended midway is judged only up to where it must have been recorded.
//
// Tested: data/stream/ledger_test.cpp.

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/ledger.hpp"

#include "ledger_record.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

// A set of bits for each epoch: 8 GiB of addresses for this many.
constexpr std::uint64_t most_countable = std::uint64_t{1} << 36;
constexpr std::uint64_t most_epochs = 1u << 20;

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

// Takes records of kept steps in any order, then says what they come to.
class EpochAccount {
  public:
    // Of `samples`, the first `trained` in the epoch's order are trained on.
    EpochAccount(std::uint64_t samples, std::uint64_t trained)
        : samples_(samples),
          trained_(trained),
          seen_bits_(
              static_cast<std::uint64_t*>(std::calloc(words_for(samples), sizeof(std::uint64_t))),
              &std::free) {
        if (!seen_bits_) throw std::bad_alloc();
    }

    // The part of one of `ranks` ranks in a step.
    void add(const StepFacts& step, int ranks, std::span<const std::uint64_t> ids) {
        StepRows& rows = steps_[step.position.consumed];
        rows.samples = std::max(rows.samples, step.samples);
        rows.rows += ids.size();
        rows.ranks = std::max(rows.ranks, ranks);
        ++rows.recorded_by;
        found_.masked += step.masked;
        for (const std::uint64_t id : ids) {
            if (id >= samples_) {
                ++foreign_;
                continue;
            }
            std::uint64_t& word = seen_bits_[id / 64];
            const std::uint64_t bit = std::uint64_t{1} << id % 64;
            if ((word & bit) == 0)
                ++found_.seen;
            else if (++found_.duplicate <= most_named)
                duplicates_.push_back(id);
            word |= bit;
        }
    }

    void add_superseded(std::uint64_t rows) { found_.superseded += rows; }

    // Whether there is a step that all ranks recorded.
    bool has_whole_step() const {
        return std::ranges::any_of(steps_, [](const auto& step) { return step.second.is_whole(); });
    }

    // Positions below `due` must have been recorded: all of them in an epoch that others follow,
    // those before the last restart in the last one. After that the run may have ended anywhere,
    // with steps that only some ranks had written.
    LedgerEpoch close(std::uint64_t epoch, std::uint64_t due) const {
        LedgerEpoch result = found_;
        result.epoch = epoch;
        const std::uint64_t lacking = check_steps(due, result);
        result.missing = result.is_open ? lacking : trained_ - std::min(result.seen, trained_);
        name_samples(result);
        return result;
    }

  private:
    struct StepRows {
        std::uint64_t samples = 0, rows = 0;
        int ranks = 0, recorded_by = 0;
        bool is_whole() const { return recorded_by >= ranks; }
    };
    using Steps = std::map<std::uint64_t, StepRows>;  // by position

    // After the last step that is whole or due.
    Steps::const_iterator end_of_account(std::uint64_t due) const {
        auto end = steps_.end();
        const auto may_be_left_out = [&](const Steps::value_type& step) {
            return step.first >= due && !step.second.is_whole();
        };
        while (end != steps_.begin() && may_be_left_out(*std::prev(end))) --end;
        return end;
    }

    // Returns the rows that are lacking, and whether the epoch's end was reached, in `result`.
    std::uint64_t check_steps(std::uint64_t due, LedgerEpoch& result) const {
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

    void name_samples(LedgerEpoch& result) const {
        if (result.duplicate > 0)
            find(result, "seen more than once: " + named(duplicates_, result.duplicate));
        if (foreign_ > 0)
            find(result,
                 fmt::format("{} rows are of no sample of this data set", grouped(foreign_)));
        // Which samples an epoch drops is not recorded.
        if (result.missing == 0 || result.is_open || trained_ < samples_) return;
        std::vector<std::uint64_t> missing;
        for (std::size_t w = 0; w < words_for(samples_) && missing.size() < most_named; ++w)
            for (std::uint64_t bits = ~seen_bits_[w]; bits != 0 && missing.size() < most_named;
                 bits &= bits - 1) {
                const std::uint64_t id =
                    64 * w + static_cast<std::uint64_t>(std::countr_zero(bits));
                if (id < samples_) missing.push_back(id);
            }
        find(result, "never seen: " + named(missing, result.missing));
    }

    std::uint64_t samples_, trained_;
    // The kernel gives its pages as they are written: a head that claims many samples costs
    // nothing.
    std::unique_ptr<std::uint64_t[], decltype(&std::free)> seen_bits_;
    std::vector<std::uint64_t> duplicates_;  // the first few
    Steps steps_;
    LedgerEpoch found_;          // what adds up
    std::uint64_t foreign_ = 0;  // rows
};

struct File {
    fs::path path;
    LedgerHead head;
};

std::vector<fs::path> files_of(const fs::path& folder) {
    check(fs::is_directory(folder),
          "E201",
          fmt::format("'{}' does not exist", folder.string()),
          "",
          "give the directory of a run that was trained with --ledger");
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".ledger") paths.push_back(entry.path());
    std::ranges::sort(paths);
    return paths;
}

std::string said_of(const fs::path& path, const std::string& what) {
    return fmt::format("'{}' {}", path.filename().string(), what);
}

/// Reads a folder of ledgers in two passes: the heads, which say what supersedes what, then all.
class Check {
  public:
    explicit Check(const fs::path& folder) : folder_(folder) {
        for (const fs::path& path : files_of(folder)) read_head(path);
        check(!files_.empty(),
              "E228",
              fmt::format("no ledger in '{}'", folder.string()),
              report_.findings.empty() ? "it has no files of one" : report_.findings.front(),
              "give the directory of a run that was trained with --ledger");
        settle_incarnations();
    }

    LedgerReport run() {
        for (const File& file : files_) read(file);
        miss_files();
        close_epochs();
        report_.files = files_.size();
        report_.incarnations = incarnations_.size();
        return std::move(report_);
    }

  private:
    struct Incarnation {
        StreamPosition start;
        int ranks = 1;
        std::set<int> files;
        std::optional<StreamPosition> superseded_from;
        bool has_kept = false;  // steps that count
    };

    void find(const fs::path& path, const std::string& what) {
        report_.findings.push_back(said_of(path, what));
    }

    void read_head(const fs::path& path) {
        const auto head = read_ledger_head(path);
        if (!head && fs::file_size(path) < ledger_head_bytes) {
            report_.notes.push_back(said_of(path, "was cut off before its first record"));
        } else if (!head || head->samples > most_countable) {
            find(path, "is damaged: it does not begin as a ledger does");
        } else if (ledger_path(folder_, *head) != path) {
            find(path,
                 fmt::format(
                     "is the ledger of rank {} of incarnation {}", head->rank, head->incarnation));
        } else if (!files_.empty() && (head->samples != files_[0].head.samples ||
                                       head->data_digest != files_[0].head.data_digest ||
                                       head->dropped != files_[0].head.dropped)) {
            find(path, "is about another data set");
        } else {
            files_.push_back({path, *head});
        }
    }

    void settle_incarnations() {
        report_.samples = files_[0].head.samples;
        report_.dropped = files_[0].head.dropped;
        for (const File& file : files_) {
            const auto [at, is_new] = incarnations_.try_emplace(
                file.head.incarnation, Incarnation{file.head.start, file.head.ranks, {}, {}});
            at->second.files.insert(file.head.rank);
            if (at->second.start != file.head.start || at->second.ranks != file.head.ranks)
                find(file.path, "disagrees with the other ranks about where they began");
        }
        std::optional<StreamPosition> earliest;  // earliest of this and later incarnations
        for (auto at = incarnations_.rbegin(); at != incarnations_.rend(); ++at) {
            Incarnation& incarnation = at->second;
            incarnation.superseded_from = earliest;
            earliest = std::min(earliest.value_or(incarnation.start), incarnation.start);
        }
        earliest_ = *earliest;
    }

    void read(const File& file) {
        Incarnation& incarnation = incarnations_.at(file.head.incarnation);
        const LedgerEnd end = visit_records(file.path, [&](const FoundRecord& found) {
            const StreamPosition at = found.step.position;
            if (at < file.head.start || at.consumed >= trained() ||
                at.epoch - file.head.start.epoch > most_epochs) {
                find(file.path,
                     fmt::format("has a step at position {} of epoch {}, where its run never was",
                                 grouped(at.consumed),
                                 at.epoch));
                return;
            }
            EpochAccount& epoch = account_of(at.epoch);
            const auto& from = incarnation.superseded_from;
            if (from && at >= *from) {
                epoch.add_superseded(found.ids.size());
            } else {
                incarnation.has_kept = true;
                epoch.add(found.step, static_cast<int>(incarnation.files.size()), found.ids);
            }
        });
        describe_end(file, end);
    }

    // A start that came to nothing may have left fewer files than ranks.
    void miss_files() {
        for (const auto& [number, incarnation] : incarnations_) {
            if (incarnation.files.size() >= static_cast<std::size_t>(incarnation.ranks)) continue;
            auto& lines = incarnation.has_kept ? report_.findings : report_.notes;
            lines.push_back(fmt::format("incarnation {} had {} ranks; {} left a ledger",
                                        number,
                                        incarnation.ranks,
                                        incarnation.files.size()));
        }
    }

    void describe_end(const File& file, const LedgerEnd& end) {
        const std::string where =
            fmt::format("{} bytes at offset {}", grouped(end.bytes), grouped(end.offset));
        if (end.state == FoundRecord::State::torn)
            report_.notes.push_back(said_of(
                file.path,
                "ends within a record, as a killed rank leaves it: " + where + " do not count"));
        if (end.state == FoundRecord::State::damaged)
            find(file.path, "is damaged: " + where + " are no records");
    }

    // Returns the number of trained samples of each epoch.
    std::uint64_t trained() const { return report_.samples - report_.dropped; }

    EpochAccount& account_of(std::uint64_t epoch) {
        return epochs_.try_emplace(epoch, report_.samples, trained()).first->second;
    }

    void close_epochs() {
        const StreamPosition start = incarnations_.rbegin()->second.start;
        std::uint64_t last_whole = 0;  // epoch with a step that all ranks recorded
        for (const auto& [epoch, account] : epochs_)
            if (account.has_whole_step()) last_whole = epoch;
        const std::uint64_t end = std::max(epochs_.empty() ? 0 : epochs_.rbegin()->first + 1,
                                           start.epoch + (start.consumed > 0 ? 1 : 0));
        for (std::uint64_t epoch = earliest_.epoch; epoch < end; ++epoch) {
            // Up to where it must have been recorded.
            const std::uint64_t due = epoch < std::max(start.epoch, last_whole) ? trained()
                                      : epoch == start.epoch                    ? start.consumed
                                                                                : 0;
            report_.epochs.push_back(account_of(epoch).close(epoch, due));
        }
        if (earliest_ != StreamPosition{})
            report_.notes.push_back(fmt::format("the ledger begins at position {} of epoch {}",
                                                grouped(earliest_.consumed),
                                                earliest_.epoch));
    }

    fs::path folder_;
    std::vector<File> files_;
    std::map<std::uint64_t, Incarnation> incarnations_;
    std::map<std::uint64_t, EpochAccount> epochs_;
    StreamPosition earliest_;  // earliest begin of any incarnation
    LedgerReport report_;
};

}  // namespace

LedgerReport check_ledger(const fs::path& folder) {
    return Check(folder).run();
}

std::string describe_ledger(const LedgerReport& report) {
    const std::string dropped = report.dropped == 0
                                    ? ""
                                    : fmt::format(", {} of them in no epoch (--drop-last, --split)",
                                                  grouped(report.dropped));
    std::string text = fmt::format("{} samples{}, {} incarnation{}, {} file{}\n",
                                   grouped(report.samples),
                                   dropped,
                                   report.incarnations,
                                   report.incarnations == 1 ? "" : "s",
                                   report.files,
                                   report.files == 1 ? "" : "s");
    const auto row = [](const auto&... cells) {
        return fmt::format("{:>5}  {:>9}  {:>13}  {:>9}  {:>9}  {:>10}  {:>7}", cells...);
    };
    text += row("epoch", "steps", "seen", "missing", "duplicate", "superseded", "masked") + "\n";
    for (const LedgerEpoch& epoch : report.epochs) {
        text += row(epoch.epoch,
                    grouped(epoch.steps),
                    grouped(epoch.seen),
                    grouped(epoch.missing),
                    grouped(epoch.duplicate),
                    grouped(epoch.superseded),
                    grouped(epoch.masked));
        text += "  " + epoch_verdict(epoch, report.dropped) + "\n";
        for (const std::string& finding : epoch.findings) text += "       " + finding + "\n";
    }
    for (const std::string& note : report.notes) text += "note: " + note + "\n";
    for (const std::string& finding : report.findings) text += "damage: " + finding + "\n";
    return text;
}

bool LedgerReport::is_exact() const {
    return findings.empty() && std::ranges::all_of(epochs, &LedgerEpoch::is_exact);
}

}  // namespace lockstep
