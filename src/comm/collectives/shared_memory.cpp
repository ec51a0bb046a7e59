// SPDX-License-Identifier: Apache-2.0
// Collectives between ranks of one node, in three ways; what is fastest depends on size and on
// where the buffers lie:
//
//     tiny, small    each puts all into the window | meet | each sums everything itself
//     lent buffers   meet | owners sum in place, in the window itself | meet
//     other memory   through pieces of the window, by turns
//
// A meeting costs more than to copy some kilobytes, so small messages are in the window before the
// first meeting says what is called; hence turns: two places, so that a rank that is already in its
// next call does not write where another still reads.
//
// What must never happen:
// - Ranks take different ways for one call. The way follows from the size, which begin() compares,
//   and from what all ranks said of their buffers. Where only some have lent theirs, the others
//   have shared already: those that have not do it now, and all meet once more.
// - A rank sums in an order of its own: all ways use the balanced order, and so have the same bits.
//
// Tested: comm/collectives/shared_memory_test.cpp, make_collectives_test.cpp, no_room_test.cpp.

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"

#include "base/aligned_floats.hpp"
#include "base/one_node.hpp"
#include "collectives/back_ends.hpp"
#include "collectives/lent_windows.hpp"
#include "collectives/private_memory.hpp"
#include "collectives/shared_meeting.hpp"
#include "collectives/small_messages.hpp"
#include "collectives/staged_messages.hpp"
#include "collectives/window_messages.hpp"

namespace lockstep {
namespace {

/// Where everything but what is lent lies.
struct Places {
    std::size_t small_messages, staged_messages, end;

    explicit Places(int ranks)
        : small_messages(whole_pages(SharedMeeting::bytes_for(ranks))),
          staged_messages(small_messages + whole_pages(SmallMessages::bytes_for(ranks))),
          end(staged_messages + StagedMessages::bytes_for(ranks)) {}
};

class SharedMemory : public Collectives {
  public:
    SharedMemory(const Communicator& ranks, NoRoom no_room)
        : ranks_(ranks.duplicate()),
          no_room_(no_room),
          patience_(patience_of(ranks)),
          places_(ranks.size()),
          window_(ranks, places_.end),
          meeting_(window_.data(), ranks.rank(), ranks.size(), patience_),
          lent_(ranks_),
          small_(window_.data() + places_.small_messages, meeting_),
          staged_(window_.data() + places_.staged_messages, meeting_),
          in_window_(lent_, meeting_) {
        ranks.barrier();
    }

    std::string_view name() const override { return name_of(Algorithm::shared_memory); }
    void set_deadline(double seconds) override { meeting_.set_deadline(seconds); }

    std::byte* lend(std::size_t bytes) override {
        meeting_.begin({.operation = SharedOperation::lend, .bytes = bytes});
        try {
            return lent_.lend(bytes);
        } catch (const AgreedError& error) {
            if (kind_of(error) != ErrorKind::no_shared_memory || no_room_ == NoRoom::is_an_error)
                throw;
            warn_of_no_room(error);
            return private_.lend(bytes);
        }
    }

    void all_reduce(void* data, std::size_t count, DataType type) override {
        run(SharedOperation::all_reduce, data, count, type);
    }
    void reduce_scatter(void* data, std::size_t count, DataType type) override {
        run(SharedOperation::reduce_scatter, data, count, type);
    }
    void all_gather(void* data, std::size_t count, DataType type) override {
        run(SharedOperation::all_gather, data, count, type);
    }
    void broadcast(void* data, std::size_t bytes, int root) override {
        expect(root >= 0 && root < meeting_.ranks(), "the root is one of the ranks");
        run({.operation = SharedOperation::broadcast, .root = root, .bytes = bytes},
            {static_cast<std::byte*>(data), bytes});
    }
    void barrier() override { meeting_.begin({.operation = SharedOperation::barrier}); }

  private:
    void warn_of_no_room(const Error& error) {
        if (!has_warned_)
            once(Level::warn,
                 "{}; all-reduce copies more and is slower ({})",
                 error.what(),
                 error.fix());
        has_warned_ = true;
    }

    void run(SharedOperation operation, void* data, std::size_t count, DataType type) {
        const std::size_t bytes = count * size_of(type);
        run({.operation = operation, .type = type, .bytes = bytes},
            {static_cast<std::byte*>(data), bytes, type});
    }

    void run(SharedCall call, const Message& message) {
        if (message.bytes == 0) return meeting_.begin(call);
        const bool is_tiny = message.bytes <= tiny_bytes();
        if (!is_tiny) lent_.locate(message, call);
        const bool shares = call.window == SharedCall::private_memory;
        if (shares) share(meeting_.next_turn(), call, message);
        meeting_.begin(call);
        const int lent = is_tiny ? 0 : ranks_that_lent();
        if (lent == meeting_.ranks()) return in_window_.run(call);
        if (lent > 0) {
            if (!shares) share(meeting_.turn(), call, message);
            meeting_.meet();
        }
        if (is_small(message))
            small_.finish(meeting_.turn(), call, message);
        else
            staged_.finish(call, message);
    }

    static bool is_small(const Message& message) {
        return message.bytes <= SmallMessages::most_bytes;
    }

    void share(std::size_t turn, const SharedCall& call, const Message& message) {
        if (is_small(message))
            small_.share(turn, call, message);
        else
            staged_.share(call, message);
    }

    int ranks_that_lent() const {
        int lent = 0;
        for (int rank = 0; rank < meeting_.ranks(); ++rank)
            lent += meeting_.call_of(rank).window != SharedCall::private_memory;
        return lent;
    }

    /// Up to here copying costs less than the second meeting that summing in the window needs: a
    /// meeting of ranks that share cores takes switches between them.
    std::size_t tiny_bytes() const {
        return patience_ == Patience::much ? 256 : SmallMessages::most_bytes;
    }

    const Communicator ranks_;
    const NoRoom no_room_;
    bool has_warned_ = false;
    const Patience patience_;
    const Places places_;
    const SharedWindow window_;
    SharedMeeting meeting_;
    LentWindows lent_;
    SmallMessages small_;
    StagedMessages staged_;
    WindowMessages in_window_;
    PrivateMemory private_;
};

}  // namespace

std::unique_ptr<Collectives> make_shared_memory_collectives(const Communicator& ranks,
                                                            NoRoom no_room) {
    if (ranks.size() == 1) return make_single_rank_collectives(Algorithm::shared_memory);
    check_one_node(are_on_one_node(ranks), ranks);
    return std::make_unique<SharedMemory>(ranks, no_room);
}

}  // namespace lockstep
