// SPDX-License-Identifier: Apache-2.0
// The time from posting a receive to its end is mostly waiting for the sender, which is no property
// of the link. So some messages are announced by an empty note, which the sender posts just before:
//
//     sender     ....... computes ........ | note message |
//     receiver   | posted .................. | note came ===== message came |
//                                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ on its way
//
// They are timed from the note, or from posting if that was later. The note waits behind other
// traffic on the same link, as the message does, so such traffic does not count as lateness.
//
// MPI moves long messages only while both ends call it. If one of them computes in that time, or
// waits for a core, a good link looks slow. So only the fastest messages of a sender count: a slow
// link has no fast ones.
//
// What must never happen:
// - A node sends a note that its peer does not expect: which messages are timed follows from sizes
//   and counts that are equal on both (rail.cpp).
// - A link looks faster than it is: where a moment is not known, the one before counts, and other
//   messages that came meanwhile do not.
//
// Tested: comm/road/link_timer_test.cpp, node_exchange_test.cpp.

#include "road/link_timer.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t most_messages = 256;  // of a sender

}  // namespace

void LinkMeter::add(int from, std::size_t bytes, double seconds) {
    Sender& sender = senders_[from];
    if (sender.messages.size() < most_messages) {
        sender.messages.push_back({bytes, seconds});
        return;
    }
    sender.messages[sender.next] = {bytes, seconds};
    sender.next = (sender.next + 1) % most_messages;
}

std::vector<LinkTimes> LinkMeter::take() {
    std::vector<LinkTimes> all;
    for (auto& [from, sender] : std::exchange(senders_, {})) {
        std::ranges::sort(sender.messages, {}, [](const Message& message) {
            return message.seconds / static_cast<double>(message.bytes);
        });
        LinkTimes& times = all.emplace_back(LinkTimes{.from = from});
        sender.messages.resize((sender.messages.size() + 7) / 8);
        for (const Message& message : sender.messages) {
            ++times.messages;
            times.bytes += message.bytes;
            times.seconds += message.seconds;
        }
    }
    return all;
}

void LinkTimer::begin(int from, std::size_t bytes, double now) {
    stage_ = Stage::note;
    from_ = from;
    bytes_ = bytes;
    looked_s_ = looked_before_s_ = now;
}

// It was not there yet when the look before began.
void LinkTimer::note_came() {
    stage_ = Stage::message;
    begun_s_ = looked_before_s_;
}

void LinkTimer::message_came(double now) {
    stage_ = Stage::none;
    meter_.add(from_, bytes_, now - begun_s_);
}

}  // namespace lockstep
