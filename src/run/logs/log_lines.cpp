// SPDX-License-Identifier: Apache-2.0
#include "logs/log_lines.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep {

LogLines::LogLines(fs::path path, const LineLimits& limits)
    : path_(std::move(path)), limits_(limits) {}

UniqueFd LogLines::open() const {
    try {
        return open_for_reading(path_);
    } catch (const Error& error) {
        if (kind_of(error) == ErrorKind::file_missing) return {};  // it may come
        throw;
    }
}

std::size_t LogLines::read_from(std::int64_t offset, std::span<char> into) {
    UniqueFd opened;
    if (!fd_) opened = open();
    const UniqueFd& fd = fd_ ? fd_ : opened;
    if (!fd) return 0;
    const std::size_t got = read_at(
        fd.value(), std::as_writable_bytes(into), static_cast<std::uint64_t>(offset), path_);
    if (opened && limits_.stays_open) fd_ = std::move(opened);
    return got;
}

std::int64_t LogLines::size() {
    if (!fd_) fd_ = open();
    if (!fd_) return 0;
    const auto bytes = static_cast<std::int64_t>(file_stamp(path_).bytes);
    if (!limits_.stays_open) fd_ = {};
    return bytes;
}

void LogLines::choose(std::int64_t from, std::int64_t to) {
    offset_ = line_at_ = std::max<std::int64_t>(from, 0);
    to_ = to;
    begin_ = end_ = searched_ = 0;
    skips_line_ = offset_ > 0;
}

bool LogLines::fill() {
    if (begin_ > 0) {
        std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        searched_ -= begin_;
        begin_ = 0;
    }
    if (end_ == 0 && buffer_.size() > limits_.piece_bytes) {
        buffer_.resize(limits_.piece_bytes);
        buffer_.shrink_to_fit();
    }
    if (end_ == buffer_.size()) buffer_.resize(std::max(limits_.piece_bytes, 2 * buffer_.size()));
    const std::size_t got = read_from(offset_, std::span(buffer_).subspan(end_));
    end_ += got;
    offset_ += static_cast<std::int64_t>(got);
    return got > 0;
}

// A file may be one line of a terabyte, which takes no room where it is zeros: its end may have
// more.
void LogLines::leave_endless_line() {
    constexpr std::int64_t most = 64 << 20, end_bytes = 64 << 10;
    begin_ = end_;
    if (offset_ - line_at_ < most) return;
    std::error_code failed;
    const auto size = static_cast<std::int64_t>(fs::file_size(path_, failed));
    if (!failed && size > offset_ + end_bytes) offset_ = size - end_bytes;
    line_at_ = offset_;
}

std::optional<std::string_view> LogLines::unended() {
    if (limits_.last == UnendedLine::is_awaited || skips_line_ || begin_ == end_) return {};
    const std::string_view line(buffer_.data() + begin_, end_ - begin_);
    begin_ = searched_ = end_;
    return line;
}

std::optional<std::string_view> LogLines::next() {
    for (;;) {
        if (offset_ - static_cast<std::int64_t>(end_ - begin_) >= to_) return {};
        const void* const found =
            end_ > searched_ ? std::memchr(buffer_.data() + searched_, '\n', end_ - searched_)
                             : nullptr;
        if (found) {
            const auto at =
                static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
            const std::string_view line(buffer_.data() + begin_, at - begin_);
            begin_ = searched_ = at + 1;
            const bool is_end_of_long = std::exchange(skips_line_, false);
            if (!is_end_of_long && line.size() <= limits_.longest_line) return line;
            passed_over_ += is_end_of_long ? 0 : 1;
            continue;
        }
        searched_ = end_;
        if (end_ - begin_ > limits_.longest_line) {
            passed_over_ += skips_line_ ? 0 : 1;
            if (!std::exchange(skips_line_, true)) line_at_ = offset_;
        }
        if (skips_line_) leave_endless_line();
        if (!fill()) return unended();
    }
}

}  // namespace lockstep
