// SPDX-License-Identifier: Apache-2.0
// What an unfinished pack has done already, kept beside its shards so that another can go on.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/data/manifest.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

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

}  // namespace lockstep
