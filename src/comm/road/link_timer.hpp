// SPDX-License-Identifier: Apache-2.0
// Measures the speed of messages from other nodes, independent of late ranks.
//
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
#pragma once

#include "lockstep/core/link_times.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace lockstep {

/// Timed messages, by sender.
class LinkMeter {
  public:
    void add(int from, std::size_t bytes, double seconds) {
        Sender& sender = senders_[from];
        if (sender.messages.size() < most_messages) sender.messages.emplace_back();
        sender.messages[sender.count++ % most_messages] = {bytes, seconds};
    }

    /// Returns the fastest eighth of each sender's messages since the last call.
    std::vector<LinkTimes> take() {
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

  private:
    static constexpr std::size_t most_messages = 256;  ///< of a sender

    struct Message {
        std::size_t bytes = 0;
        double seconds = 0;
    };
    struct Sender {
        std::vector<Message> messages;
        std::size_t count = 0;  ///< of all; if there are enough, a new one replaces the oldest
    };
    std::map<int, Sender> senders_;
};

/// Times one message at a time.
class LinkTimer {
  public:
    /// Half of a shorter message may have arrived before a rank waits for it.
    static constexpr std::size_t least_bytes = 128 << 10;

    /// `meter` must outlive this.
    explicit LinkTimer(LinkMeter& meter) : meter_(meter) {}

    /// Call when the receives of a note and of `bytes` from `from` are posted.
    void begin(int from, std::size_t bytes, double now) {
        stage_ = Stage::note;
        from_ = from;
        bytes_ = bytes;
        looked_s_ = looked_before_s_ = now;
    }

    bool awaits_note() const { return stage_ == Stage::note; }
    bool awaits_message() const { return stage_ == Stage::message; }
    bool is_running() const { return stage_ != Stage::none; }

    /// Call before testing note and message.
    void look(double now) { looked_before_s_ = std::exchange(looked_s_, now); }
    /// Call when this test has found the note, which was not there yet when the look before began.
    void note_came() {
        stage_ = Stage::message;
        begun_s_ = looked_before_s_;
    }

    /// Call when a test has found the message.
    void message_came(double now) {
        stage_ = Stage::none;
        meter_.add(from_, bytes_, now - begun_s_);
    }

  private:
    enum class Stage { none, note, message };

    LinkMeter& meter_;
    Stage stage_ = Stage::none;
    int from_ = 0;
    std::size_t bytes_ = 0;
    double begun_s_ = 0;  ///< latest begin of the message
    double looked_s_ = 0, looked_before_s_ = 0;
};

}  // namespace lockstep
