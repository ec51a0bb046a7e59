// SPDX-License-Identifier: Apache-2.0
#include "run_lines.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace lockstep {

RunLines::RunLines(const fs::path& path) : path_(path) {
    try {
        fd_ = open_for_reading(path);
    } catch (const Error& error) {
        if (kind_of(error) != ErrorKind::file_missing) throw;
        return;
    }
    size_ = static_cast<std::int64_t>(file_stamp(path).bytes);
}

void RunLines::choose(std::int64_t from, std::int64_t to) {
    at_ = std::clamp<std::int64_t>(from, 0, size_);
    to_ = std::min(to, size_);
    buffer_.clear();
    begin_ = 0;
    is_inside_ = at_ > 0;
}

void RunLines::choose_last(std::int64_t bytes) {
    choose(std::max<std::int64_t>(size_ - bytes, 0), size_);
}

bool RunLines::fill() {
    constexpr std::int64_t piece_bytes = 64 << 10;
    buffer_.erase(0, begin_);
    begin_ = 0;
    // A line that begins before to_ ends here, or it is too long.
    const std::int64_t end = std::min(size_, to_ + longest_line + 1);
    const std::size_t kept = buffer_.size();
    const std::int64_t wanted = std::clamp<std::int64_t>(end - at_, 0, piece_bytes);
    buffer_.resize(kept + static_cast<std::size_t>(wanted));
    const auto into = std::as_writable_bytes(std::span(buffer_).subspan(kept));
    const std::size_t got =
        wanted == 0 ? 0 : read_at(fd_.value(), into, static_cast<std::uint64_t>(at_), path_);
    buffer_.resize(kept + got);
    at_ += static_cast<std::int64_t>(got);
    return got > 0;
}

std::optional<std::string_view> RunLines::next() {
    std::size_t searched = begin_;
    for (;;) {
        const std::int64_t line_at = at_ - static_cast<std::int64_t>(buffer_.size() - begin_);
        if (line_at >= to_) return std::nullopt;
        const std::size_t end = buffer_.find('\n', searched);
        if (end != buffer_.npos) {
            const std::string_view line(buffer_.data() + begin_, end - begin_);
            searched = begin_ = end + 1;
            if (!std::exchange(is_inside_, false) && line.size() <= longest_line) return line;
            continue;
        }
        is_inside_ = is_inside_ || buffer_.size() - begin_ > longest_line;
        if (is_inside_) begin_ = buffer_.size();
        searched = buffer_.size() - begin_;
        if (fill()) continue;
        if (is_inside_ || begin_ == buffer_.size()) return std::nullopt;
        const std::string_view last(buffer_.data() + begin_, buffer_.size() - begin_);
        begin_ = buffer_.size();
        return last.size() <= longest_line && at_ == size_ ? std::optional(last) : std::nullopt;
    }
}

}  // namespace lockstep
