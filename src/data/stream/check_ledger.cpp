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
//   epoch whose recording ended midway is judged only up to where it must have been recorded
//   (due_in).
//
// Tested: data/stream/ledger_test.cpp.

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/ledger.hpp"

#include "ledger_record.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

// One rank's ledger file, read back.

/// The state of the bytes at a file's end.
struct LedgerEnd {
    FoundRecord::State state = FoundRecord::State::whole;
    std::uint64_t offset = 0;  ///< place of the torn or damaged bytes
    std::uint64_t bytes = 0;   ///< from there to the end of the file
};

// Size of the part of a file that is in memory at a time; a step's record has some bytes for each
// sample.
constexpr std::uint64_t piece_bytes = 32 << 20;

/// The head of the file at `path`; nothing if it has none. Errors: E201, E202, E402.
std::optional<LedgerHead> read_ledger_head(const fs::path& path) {
    const UniqueFd file = open_for_reading(path);
    std::array<std::byte, ledger_head_bytes> bytes{};
    return decode_head(std::span(bytes).first(read_at(file.value(), bytes, 0, path)));
}

/// Calls `visit` with every whole record, up to the first that is not. The file has a head.
/// However large it is, a piece of it is in memory. Errors: E201, E202, E206, E402.
LedgerEnd visit_records(const fs::path& path,
                        const std::function<void(const FoundRecord&)>& visit) {
    using enum FoundRecord::State;
    const UniqueFd file = open_for_reading(path);
    std::vector<std::byte> piece(ledger_head_bytes);
    piece.resize(read_at(file.value(), piece, 0, path));
    std::uint64_t size = file_stamp(path).bytes, offset = piece.size(), chain = hash64(piece);
    std::span<const std::byte> rest;  // rest of the piece, from `offset` in the file
    for (bool is_fresh = false;;) {
        const FoundRecord found = rest.empty() ? FoundRecord{} : read_record(rest, chain);
        if (found.state == whole) {
            visit(found);
            offset += found.bytes;
            rest = rest.subspan(found.bytes);
            is_fresh = false;
            continue;
        }
        const bool is_end = offset + rest.size() >= size;
        if (is_end && rest.empty()) return {whole, offset, 0};
        if (is_end) return {found.state, offset, size - offset};
        // A record that is longer than a piece is none; one with nothing but zeros was not written.
        if (is_fresh) return {found.bytes > 0 ? damaged : found.state, offset, size - offset};
        piece.resize(std::min(piece_bytes, size - offset));
        const std::size_t wanted = piece.size();
        piece.resize(read_at(file.value(), piece, offset, path));
        if (piece.size() < wanted) size = offset + piece.size();
        rest = piece;
        is_fresh = true;
    }
}

// A set of bits for each epoch: 8 GiB of addresses for this many.
constexpr std::uint64_t most_countable = std::uint64_t{1} << 36;
constexpr std::uint64_t most_epochs = 1u << 20;

struct File {
    fs::path path;
    LedgerHead head;
};

std::vector<fs::path> files_of(const fs::path& folder) {
    check(fs::is_directory(folder), [&] {
        return Error("E201",
                     fmt::format("'{}' does not exist", folder.string()),
                     "a run has a ledger if it was trained with --ledger",
                     "give the run's directory");
    });
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".ledger") paths.push_back(entry.path());
    std::ranges::sort(paths);
    return paths;
}

/// Reads a folder of ledgers in two passes: the heads, which say what supersedes what, then all.
class Check {
  public:
    explicit Check(const fs::path& folder) : folder_(folder) {
        for (const fs::path& path : files_of(folder)) read_head(path);
        check(!files_.empty(), [&] {
            return Error(
                "E228",
                fmt::format("no ledger in '{}'", folder.string()),
                report_.findings.empty() ? "it has no files of one" : report_.findings.front(),
                "give the directory of a run that was trained with --ledger");
        });
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
        report_.findings.push_back(fmt::format("'{}' {}", path.filename().string(), what));
    }

    void read_head(const fs::path& path) {
        const auto head = read_ledger_head(path);
        if (!head && fs::file_size(path) < ledger_head_bytes) {
            report_.notes.push_back(
                fmt::format("'{}' was cut off before its first record", path.filename().string()));
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
        const auto where = [&] {
            return fmt::format("{} bytes at offset {}", grouped(end.bytes), grouped(end.offset));
        };
        if (end.state == FoundRecord::State::torn)
            report_.notes.push_back(
                fmt::format("'{}' ends within a record, as a killed rank leaves "
                            "it: {} do not count",
                            file.path.filename().string(),
                            where()));
        if (end.state == FoundRecord::State::damaged)
            find(file.path, fmt::format("is damaged: {} are no records", where()));
    }

    // Returns the number of trained samples of each epoch.
    std::uint64_t trained() const { return report_.samples - report_.dropped; }

    EpochAccount& account_of(std::uint64_t epoch) {
        return epochs_.try_emplace(epoch, report_.samples, trained()).first->second;
    }

    // Up to where an epoch must have been recorded.
    std::uint64_t due_in(std::uint64_t epoch, std::uint64_t last_whole) const {
        const StreamPosition start = incarnations_.rbegin()->second.start;
        if (epoch < std::max(start.epoch, last_whole)) return trained();
        return epoch == start.epoch ? start.consumed : 0;
    }

    void close_epochs() {
        const StreamPosition start = incarnations_.rbegin()->second.start;
        std::uint64_t last_whole = 0;  // epoch with a step that all ranks recorded
        for (const auto& [epoch, account] : epochs_)
            if (account.has_whole_step()) last_whole = epoch;
        const std::uint64_t end = std::max(epochs_.empty() ? 0 : epochs_.rbegin()->first + 1,
                                           start.epoch + (start.consumed > 0 ? 1 : 0));
        for (std::uint64_t epoch = earliest_.epoch; epoch < end; ++epoch) {
            const EpochAccount& account = account_of(epoch);
            report_.epochs.push_back(account.close(epoch, due_in(epoch, last_whole)));
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

bool LedgerReport::is_exact() const {
    return findings.empty() && std::ranges::all_of(epochs, &LedgerEpoch::is_exact);
}

}  // namespace lockstep
