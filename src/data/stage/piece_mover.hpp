// SPDX-License-Identifier: Apache-2.0
// Moves pieces of files from the node that reads them to all that lack them.
#pragma once

#include "lockstep/data/manifest.hpp"
#include "lockstep/data/stage.hpp"

#include "stage_plan.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep {

/// The name of a file that is not whole yet.
std::filesystem::path part_of(const std::filesystem::path& path);

/// Makes part_of(path), of `bytes`. Errors: E401, E405.
void create_part(const std::filesystem::path& path, std::uint64_t bytes);

/// One process of a column.
class PieceMover {
  public:
    /// `missing` are the shards that this node lacks. All must outlive this.
    PieceMover(const StageOptions& options,
               const Manifest& manifest,
               const std::filesystem::path& folder,
               const std::vector<std::size_t>& missing);

    /// Collective over the column. Its own pieces are read ahead while others travel. What fails
    /// here (reading, writing, `report`) ends the column when it is this node's turn to send: the
    /// others throw the same error. Returns the bytes read.
    std::uint64_t move(const std::vector<StagePiece>& pieces, const StageReport& report) const;

  private:
    const StageOptions& options_;
    const Manifest& manifest_;
    const std::filesystem::path& folder_;
    std::vector<bool> is_missing_;
};

}  // namespace lockstep
