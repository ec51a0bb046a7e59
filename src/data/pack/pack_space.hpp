// SPDX-License-Identifier: Apache-2.0
// What packing, resharding and staging share: the folder in which a team works, with its owner and
// the remains of an interrupted pack; pure functions that give each member its part.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/manifest.hpp"
#include "lockstep/data/pack.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Errors: E403 if there are fewer than `needed` bytes free in `folder`; `needs`: "the copy needs".
void check_room(const fs::path& folder,
                std::uint64_t needed,
                std::string_view needs,
                const std::string& why,
                const std::string& fix);

/// A hidden folder beside `target`, held by a lock; it has what an interrupted predecessor left.
/// The destructor removes it unless commit() was reached or keep() was called.
class Workspace {
  public:
    /// Errors: E407 (target exists), E401 (cannot create), E404 (somebody else works here).
    explicit Workspace(const fs::path& target);
    ~Workspace();
    Workspace& operator=(Workspace&&) = delete;

    const fs::path& path() const { return path_; }

    /// Removes what is in it. Errors: E401.
    void clear();

    /// Leaves it there for a successor.
    void keep() { is_kept_ = true; }

    /// Flushes the folder and renames it to the target. Errors: E407, E402.
    void commit();

  private:
    void enter();

    fs::path target_, path_;
    UniqueFd lock_;
    bool is_kept_ = false;
};

/// Rank 0 owns the folder; all see it. In it, `pack.json` says what is being packed; `SHARD.done`
/// holds a finished shard's manifest entry. Each is written whole and sealed by its digest, after
/// what it speaks of is on the disk; one that is damaged counts as missing. If a pack ends before
/// commit(), the folder stays if any shard in it is finished.
class PackSpace {
  public:
    /// Collective. Takes the folder. Errors: E240 (finished shards of a pack with another
    /// `identity`, unless options.leftovers says to discard them), E241 (a member does not see the
    /// folder), and those of Workspace.
    PackSpace(const PackOptions& options, Json identity);
    ~PackSpace();
    PackSpace& operator=(PackSpace&&) = delete;

    const fs::path& folder() const { return folder_; }

    /// Returns the fields with the statistics that an interrupted pack computed.
    const std::optional<std::vector<Field>>& known_fields() const { return known_fields_; }

    /// Collective. Stores them for a later pack.
    void write_plan(const std::vector<Field>& fields);

    /// Collective. Returns the complete shards of `manifest`, by number. Reads them all.
    std::vector<std::optional<Shard>> finished_shards(const Manifest& manifest,
                                                      const PackReport& report) const;

    /// Records a shard of this member; returns the record.
    std::string write_finished(const Shard& shard) const;
    Shard shard_of(const std::string& record) const;

    void write_manifest(const Manifest& manifest) const;

    /// Collective. Removes all records and gives the folder its name.
    void commit();

  private:
    std::string look_at_leftovers(const PackOptions& options);
    std::optional<Shard> finished(const std::string& name) const;

    const Team& team_;
    Json identity_;
    std::optional<Workspace> workspace_;  // set on rank 0
    fs::path folder_;
    std::optional<std::vector<Field>> known_fields_;
    std::vector<Field> fields_;
};

/// Row `i` of the result is this row of the source, for a pack that is shuffled by `seed`.
std::vector<std::uint64_t> shuffled_rows(std::uint64_t samples, std::uint64_t seed);

/// Collective. The source's fields with the mean and deviation of each channel (u8 and real fields
/// of layout CHW) or feature (real fields of one dimension or none; not labels), and the count of
/// each class (labels and other scalar i64 fields, masks, tokens); a field that has statistics
/// already keeps them. The result depends neither on options.team nor on options.threads: whole
/// numbers are summed exactly, real ones in a fixed number of parts whose sums are added in a fixed
/// order. Errors: E210.
std::vector<Field> scan_fields(const RowSource& source,
                               const PackOptions& options,
                               const PackReport& report);

/// Part of a shard.
struct StagePiece {
    std::size_t shard = 0;
    std::uint64_t offset = 0, bytes = 0;
    int owner = 0;  ///< number of the node that reads it
};

/// Returns `shards` (numbers, ascending) in groups, each but the last of at least `bytes`.
std::vector<std::vector<std::size_t>> stage_rounds(const Manifest& manifest,
                                                   const std::vector<std::size_t>& shards,
                                                   std::uint64_t bytes);

/// Returns the pieces of `shards` (numbers, ascending) that go through column `column` of
/// `columns`, in order. Over all columns each byte is in one piece; owners take turns.
std::vector<StagePiece> pieces_of_column(const Manifest& manifest,
                                         const std::vector<std::size_t>& shards,
                                         std::uint64_t piece_bytes,
                                         int column,
                                         int columns,
                                         int nodes);

}  // namespace lockstep
