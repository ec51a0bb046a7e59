// SPDX-License-Identifier: Apache-2.0
// How fast messages of other nodes come in, whoever is late.
#pragma once

#include "lockstep/core/link_times.hpp"

#include <cstddef>
#include <map>
#include <vector>

namespace lockstep {

/// Messages that were timed, by sender.
class LinkMeter {
  public:
    void add(int from, std::size_t bytes, double seconds);

    /// Since the last call: of each sender the eighth that was fastest.
    std::vector<LinkTimes> take();

  private:
    struct Message {
        std::size_t bytes = 0;
        double seconds = 0;
    };
    struct Sender {
        std::vector<Message> messages;
        std::size_t next = 0;  ///< where the next one goes when there are enough
    };
    std::map<int, Sender> senders_;
};

/// Times one message at a time. See link_timer.cpp.
class LinkTimer {
  public:
    /// Half of a shorter message may be through before anybody waits for it.
    static constexpr std::size_t least_bytes = 128 << 10;

    /// `meter` outlives this.
    explicit LinkTimer(LinkMeter& meter) : meter_(meter) {}

    /// The receives of a note and of `bytes` from `from` are posted.
    void begin(int from, std::size_t bytes, double now);
    bool awaits_note() const { return stage_ == Stage::note; }
    bool awaits_message() const { return stage_ == Stage::message; }
    bool is_running() const { return stage_ != Stage::none; }

    /// Before a look at note and message.
    void look(double now);
    /// This look has found the note.
    void note_came();
    /// It has found the message by now.
    void message_came(double now);

  private:
    enum class Stage { none, note, message };

    LinkMeter& meter_;
    Stage stage_ = Stage::none;
    int from_ = 0;
    std::size_t bytes_ = 0;
    double begun_s_ = 0;  ///< the message, at the latest
    double looked_s_ = 0, looked_before_s_ = 0;
};

}  // namespace lockstep
