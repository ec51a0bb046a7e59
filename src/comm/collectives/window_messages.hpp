// SPDX-License-Identifier: Apache-2.0
// Buffers that all ranks of a node see: nothing is copied but what the call is to copy.
#pragma once

#include "collectives/byte_buffer.hpp"
#include "collectives/lent_windows.hpp"
#include "collectives/shared_meeting.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// Each rank does the work of one stripe, straight from its peers' buffers into theirs.
class WindowMessages {
  public:
    /// Both outlive this.
    WindowMessages(const LentWindows& windows, SharedMeeting& meeting);

    /// Collective. After begin(), if the buffers of all ranks were lent.
    void run(const SharedCall& call);

  private:
    void sum(DataType type, std::span<std::byte* const> outputs, std::size_t count);
    void copy(const std::byte* from, std::size_t bytes);

    const LentWindows& windows_;
    SharedMeeting& meeting_;
    const std::vector<int> order_;
    std::vector<std::byte*> stripes_;  ///< this rank's stripe in the buffer of each rank
    std::vector<const void*> inputs_;
    std::vector<void*> outputs_;
};

}  // namespace lockstep
