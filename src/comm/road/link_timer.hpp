// SPDX-License-Identifier: Apache-2.0
// Measures the speed of messages from other nodes, independent of late ranks.
#pragma once

#include "lockstep/core/link_times.hpp"

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace lockstep {

/// Timed messages, by sender.
class LinkMeter {
  public:
    void add(int from, std::size_t bytes, double seconds);

    /// Returns the fastest eighth of each sender's messages since the last call.
    std::vector<LinkTimes> take();

  private:
    struct Message {
        std::size_t bytes = 0;
        double seconds = 0;
    };
    struct Sender {
        std::vector<Message> messages;
        std::size_t next = 0;  ///< place of the next one when there are enough
    };
    std::map<int, Sender> senders_;
};

/// Times one message at a time. See link_timer.cpp.
class LinkTimer {
  public:
    /// Half of a shorter message may have arrived before a rank waits for it.
    static constexpr std::size_t least_bytes = 128 << 10;

    /// `meter` must outlive this.
    explicit LinkTimer(LinkMeter& meter) : meter_(meter) {}

    /// Call when the receives of a note and of `bytes` from `from` are posted.
    void begin(int from, std::size_t bytes, double now);
    bool awaits_note() const { return stage_ == Stage::note; }
    bool awaits_message() const { return stage_ == Stage::message; }
    bool is_running() const { return stage_ != Stage::none; }

    /// Call before testing note and message.
    void look(double now) { looked_before_s_ = std::exchange(looked_s_, now); }
    /// Call when this test has found the note.
    void note_came();
    /// Call when a test has found the message.
    void message_came(double now);

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
