// SPDX-License-Identifier: Apache-2.0
// Says which rank was lost, when ranks that this process launched ended without saying so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace lockstep {

/// Made before the launch, so that flight records of earlier starts are left alone.
class PostMortem {
  public:
    explicit PostMortem(std::filesystem::path run);

    /// Runs `launch` and gives back its exit code; 76 where the ranks have given their verdict.
    /// Errors: E660 naming the rank that is gone without a word; what `launch` throws otherwise.
    int explain(const std::function<int()>& launch) const;

  private:
    bool ranks_have_spoken() const;
    void name_the_dead() const;

    std::filesystem::path run_;
    std::int64_t before_;  ///< incarnations that had begun
};

}  // namespace lockstep
