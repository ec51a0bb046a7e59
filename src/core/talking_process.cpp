// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/talking_process.hpp"

#include "lockstep/core/child.hpp"
#include "lockstep/core/timed_read.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <span>

#include <unistd.h>

namespace lockstep {
namespace {

/// A write to a child that is gone must not end this process.
class NoPipeSignal {
  public:
    NoPipeSignal() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
    ~NoPipeSignal() { std::signal(SIGPIPE, before_); }
    NoPipeSignal(const NoPipeSignal&) = delete;
    NoPipeSignal& operator=(const NoPipeSignal&) = delete;

  private:
    void (*before_)(int);
};

}  // namespace

struct TalkingProcess::Inside {
    Child child;
    std::string heard;  ///< not yet given out

    std::optional<std::string> next_line() {
        const auto end = heard.find('\n');
        if (end == heard.npos) return {};
        std::string line = heard.substr(0, end);
        heard.erase(0, end + 1);
        if (line.ends_with('\r')) line.pop_back();  // ssh's own words end so
        return line;
    }
};

TalkingProcess::TalkingProcess(const std::vector<std::string>& argv)
    : inside_(std::make_unique<Inside>()) {
    inside_->child = start_child(argv, {}, ChildPipes::both);
}

TalkingProcess::TalkingProcess(TalkingProcess&&) noexcept = default;

TalkingProcess::~TalkingProcess() {
    if (inside_) end_child(inside_->child.pid);
}

void TalkingProcess::say(const std::string& line) {
    const NoPipeSignal quiet;
    std::string rest = line + "\n";
    while (!rest.empty()) {
        const ssize_t wrote = ::write(inside_->child.input.value(), rest.data(), rest.size());
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return;
        rest.erase(0, static_cast<std::size_t>(wrote));
    }
}

std::optional<std::string> TalkingProcess::hear(double deadline_s) {
    std::array<char, 4096> buffer;
    while (true) {
        if (auto line = inside_->next_line()) return line;
        const auto got = timed_read(
            inside_->child.output.value(), std::as_writable_bytes(std::span(buffer)), deadline_s);
        if (got.value_or(0) == 0) return {};
        inside_->heard.append(buffer.data(), *got);
    }
}

}  // namespace lockstep
