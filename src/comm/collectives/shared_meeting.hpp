// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a node meet before and within a collective call.
#pragma once

#include "lockstep/comm/data_type.hpp"

#include "base/rank_flags.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

enum class SharedOperation : std::uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    barrier,
    lend
};

/// What a rank says about its call beside its flag. All but where its buffer is must agree.
struct SharedCall {
    static constexpr std::uint16_t private_memory = 0xffff;

    SharedOperation operation;
    DataType type = DataType::float32;
    std::uint16_t window = private_memory;  ///< which of those that were lent
    std::int32_t root = 0;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  ///< of the buffer in this rank's part of that window

    bool is_same_as(const SharedCall& other) const {
        return operation == other.operation && type == other.type && root == other.root &&
               bytes == other.bytes;
    }
};

/// Barriers, of which the first one in each call also compares what is called.
class SharedMeeting {
  public:
    static std::size_t bytes_for(int ranks) { return RankFlags::bytes_for(ranks); }

    /// As RankFlags. `names`: what errors call the ranks, if not by their numbers here.
    SharedMeeting(
        std::byte* memory, int rank, int ranks, Patience patience, std::vector<int> names = {});

    int rank() const { return rank_; }
    int ranks() const { return ranks_; }

    /// Collective. All ranks are in the same call, and see what each wrote before it. Errors: E630
    /// names who did not come, E633 whose call is another.
    void begin(const SharedCall& mine);

    /// Collective. Once more within the call. Errors: E630.
    void meet();

    /// What `rank` said in begin(); valid within the call.
    const SharedCall& call_of(int rank) const { return note(rank).calls[turn()]; }

    /// What errors call the current call: "all-reduce of 100 float (call 2)".
    std::string purpose() const;

    /// 0 and 1, alternating by call. Under next_turn() the next call may share something even
    /// before begin(): nobody can still look at that of the call before this one.
    std::size_t turn() const { return calls_ % 2; }
    std::size_t next_turn() const { return (calls_ + 1) % 2; }

    /// How long a meeting may take.
    void set_deadline(double seconds) { deadline_s_ = seconds; }

  private:
    /// Two, because a rank may be in its next call while another still looks at this one.
    struct Note {
        SharedCall calls[2];
    };
    Note& note(int rank) const { return flags_.note<Note>(rank); }
    [[noreturn]] void report_disagreement() const;
    std::vector<int> with_names(std::vector<int> ranks) const;

    RankFlags flags_;
    const int rank_, ranks_;
    const std::vector<int> names_;
    std::uint64_t calls_ = 0;
    double deadline_s_ = no_deadline;
};

}  // namespace lockstep
