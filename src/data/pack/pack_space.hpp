// SPDX-License-Identifier: Apache-2.0
// The folder in which a team packs: who holds it, what an interrupted pack left in it.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/manifest.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/row_source.hpp"

#include <cstddef>
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
    explicit Workspace(const std::filesystem::path& target);
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    const std::filesystem::path& path() const { return path_; }

    /// Removes what is in it. Errors: E401.
    void clear();

    /// Leaves it there for a successor.
    void keep() { is_kept_ = true; }

    /// Flushes the folder and renames it to the target. Errors: E407, E402.
    void commit();

  private:
    void enter();

    std::filesystem::path target_, path_;
    UniqueFd lock_;
    bool is_kept_ = false;
};

/// The record in a workspace: `pack.json` says what is being packed; `SHARD.done` holds a finished
/// shard's manifest entry. Each is written whole and sealed by its digest, after what it speaks of
/// is on the disk; one that is damaged counts as missing.
class Journal {
  public:
    explicit Journal(std::filesystem::path folder) : folder_(std::move(folder)) {}

    const std::filesystem::path& folder() const { return folder_; }

    /// What is being packed (a JSON object of all that decides the result's bytes) and the fields
    /// with their statistics; nothing if there is no sound record.
    struct Plan {
        Json identity;
        std::vector<Field> fields;
    };
    std::optional<Plan> plan() const;
    void write_plan(const Plan& plan) const;

    /// The entry of the shard called `name`, if its record is sound and the file has its size.
    std::optional<Shard> finished(const std::string& name, const std::vector<Field>& fields) const;
    void write_finished(const Shard& shard, const std::vector<Field>& fields) const;

    /// Removes the shard called `name` and its record, as far as they are there.
    void forget(const std::string& name) const;

    /// How many shards have a record.
    std::size_t finished_count() const;

    /// Removes all records.
    void remove_records() const;

    /// Removes every file that is neither a record nor has one.
    void remove_unfinished() const;

  private:
    std::filesystem::path folder_;
};

/// "codec lz4, now zstd; input ..., now ...": how `now` differs from `before`; "" if it does not.
std::string differences(const Json& before, const Json& now);

/// Rank 0 holds the folder; all see it. If a pack ends before commit(), the folder stays if any
/// shard in it is finished.
class PackSpace {
  public:
    /// Collective. Errors: E240 (finished shards of a pack with another `identity`, unless
    /// options.leftovers says to discard them), E241 (a member does not see the folder), and those
    /// of Workspace.
    PackSpace(const PackOptions& options, Json identity);
    ~PackSpace();
    PackSpace(const PackSpace&) = delete;
    PackSpace& operator=(const PackSpace&) = delete;

    const fs::path& folder() const { return journal_.folder(); }

    /// The fields with the statistics that an interrupted pack computed.
    const std::optional<std::vector<Field>>& known_fields() const { return known_fields_; }

    /// Collective. Remembers them for a successor.
    void write_plan(const std::vector<Field>& fields);

    /// Collective. By number: the shards of `manifest` that are there, whole. Reads them all.
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
    void refuse(const Json& other);

    const Team& team_;
    Json identity_;
    std::optional<Workspace> workspace_;  // of rank 0
    Journal journal_;
    std::optional<std::vector<Field>> known_fields_;
    std::vector<Field> fields_;
};

/// Collective. The source's fields with the mean and deviation of each channel (u8 and real fields
/// of layout CHW) or feature (real fields of one dimension or none; not labels), and the count of
/// each class (labels and other scalar i64 fields, masks, tokens); a field that has statistics
/// already keeps them. The result depends neither on options.team nor on options.threads: whole
/// numbers are summed exactly, real ones in a fixed number of parts whose sums are added in a fixed
/// order. Errors: E210.
std::vector<Field> scan_fields(const RowSource& source,
                               const PackOptions& options,
                               const PackReport& report);

}  // namespace lockstep
