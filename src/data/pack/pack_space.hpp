// SPDX-License-Identifier: Apache-2.0
// The folder in which a team packs: who holds it, what an interrupted pack left in it.
#pragma once

#include "lockstep/data/pack.hpp"

#include "journal.hpp"
#include "workspace.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

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

}  // namespace lockstep
