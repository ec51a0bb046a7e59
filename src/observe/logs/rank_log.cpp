// SPDX-License-Identifier: Apache-2.0
#include "logs/rank_log.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

// A rank's first lines tell what is known of its clock.
constexpr std::size_t head_bytes = 4 << 10;

double time_in(std::string_view bytes, LogRecord& record) {
    const RecordFate fate = record.read(bytes);
    if (fate == RecordFate::line || fate == RecordFate::clock) return record.line.time_s;
    const auto json = fate == RecordFate::other ? try_parse_json(bytes) : std::nullopt;
    const Json* const time = json ? json->find("t") : nullptr;
    return time && time->is_number() ? time->get<double>()
                                     : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::optional<int> rank_of_file(const fs::path& path, std::string_view extension) {
    const std::string name = path.filename().string();
    std::string_view digits(name);
    if (!digits.starts_with("rank-") || !digits.ends_with(extension)) return {};
    digits.remove_prefix(5);
    digits.remove_suffix(std::min(extension.size(), digits.size()));
    const auto rank = parse_integer(digits);
    if (!rank || *rank < 0 || *rank > std::numeric_limits<int>::max()) return {};
    return static_cast<int>(*rank);
}

bool is_launcher_file(const fs::path& path) {
    return path.filename().string().starts_with("launcher-") && path.extension() == ".jsonl";
}

RankLog::RankLog(fs::path path, int rank, const LogChoice& choice, const RankLogSettings& settings)
    : path_(std::move(path)), choice_(choice), settings_(settings), facts_{.rank = rank} {
    read_facts();
}

std::size_t RankLog::read_from(std::uint64_t offset, std::span<char> into) {
    if (fd_) return read_at(fd_.value(), std::as_writable_bytes(into), offset, path_);
    UniqueFd fd;
    try {
        fd = open_for_reading(path_);
    } catch (const Error& error) {
        if (kind_of(error) == ErrorKind::file_missing) return 0;  // it may come
        throw;
    }
    const std::size_t got = read_at(fd.value(), std::as_writable_bytes(into), offset, path_);
    if (settings_.stays_open) fd_ = std::move(fd);
    return got;
}

void RankLog::read_facts() {
    std::string head(head_bytes, '\0');
    head.resize(read_from(0, head));
    std::string_view rest(head);
    for (auto end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
        const RecordFate fate = record_.read(rest.substr(0, end));
        if (fate == RecordFate::line || fate == RecordFate::clock) facts_.host = record_.line.host;
        if (fate == RecordFate::clock) {
            facts_.clock_ahead_s = record_.clock.ahead_s;
            facts_.clock_error_s = record_.clock.error_s;
            return;
        }
        rest.remove_prefix(end + 1);
    }
}

// Times in a log go up: the place is looked for by halves, in the part that is wanted.
void RankLog::seek(double since_s) {
    constexpr std::uint64_t window = 64 << 10;
    std::error_code failed;
    const auto size = fs::file_size(path_, failed);
    if (failed) return;
    std::uint64_t low = size - std::min(size, choice_.newest_bytes), high = size;
    if (since_s == -std::numeric_limits<double>::infinity()) high = low;
    std::string part(window, '\0');
    while (high - low > window) {
        const std::uint64_t middle = low + (high - low) / 2;
        const std::string_view found(part.data(), read_from(middle, part));
        const auto begin = found.find('\n');
        const auto end = begin == found.npos ? begin : found.find('\n', begin + 1);
        if (end == found.npos) break;
        const double time_s = time_in(found.substr(begin + 1, end - begin - 1), record_);
        if (!(time_s - facts_.clock_ahead_s < since_s))
            high = middle;
        else
            low = middle;
    }
    offset_ = line_at_ = low;
    skips_line_ = low > 0;  // it began before
}

bool RankLog::fill() {
    if (begin_ > 0) {
        std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        searched_ -= begin_;
        begin_ = 0;
    }
    if (end_ == 0 && buffer_.size() > settings_.piece_bytes) {
        buffer_.resize(settings_.piece_bytes);
        buffer_.shrink_to_fit();
    }
    if (end_ == buffer_.size()) buffer_.resize(std::max(settings_.piece_bytes, 2 * buffer_.size()));
    const std::size_t got = read_from(offset_, std::span(buffer_).subspan(end_));
    end_ += got;
    offset_ += got;
    return got > 0;
}

// A file may be one line of a terabyte, which takes no room where it is zeros: its end may have
// more.
void RankLog::leave_endless_line() {
    constexpr std::uint64_t most = 64 << 20, end_bytes = 64 << 10;
    begin_ = end_;
    if (offset_ - line_at_ < most) return;
    std::error_code failed;
    const std::uint64_t size = fs::file_size(path_, failed);
    if (!failed && size > offset_ + end_bytes) offset_ = size - end_bytes;
    line_at_ = offset_;
}

std::optional<std::string_view> RankLog::next_bytes() {
    for (;;) {
        const void* const found =
            end_ > searched_ ? std::memchr(buffer_.data() + searched_, '\n', end_ - searched_)
                             : nullptr;
        if (found) {
            const auto at =
                static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
            const std::string_view bytes(buffer_.data() + begin_, at - begin_);
            begin_ = searched_ = at + 1;
            const bool is_end_of_long = std::exchange(skips_line_, false);
            if (!is_end_of_long && bytes.size() <= settings_.longest_line) return bytes;
            damaged_ += is_end_of_long ? 0 : 1;
            continue;
        }
        searched_ = end_;
        if (end_ - begin_ > settings_.longest_line) {
            damaged_ += skips_line_ ? 0 : 1;
            if (!std::exchange(skips_line_, true)) line_at_ = offset_;
        }
        if (skips_line_) leave_endless_line();
        if (!fill()) return {};
    }
}

bool RankLog::is_wanted() const {
    return record_.line.level >= choice_.least && record_.line.time_s >= choice_.since_s &&
           (choice_.node.empty() || choice_.node == record_.line.host);
}

bool RankLog::take(std::string_view bytes) {
    const RecordFate fate = record_.read(bytes);
    if (fate == RecordFate::damaged) ++damaged_;
    if (fate == RecordFate::clock) {
        facts_.host = record_.line.host;
        facts_.clock_ahead_s = record_.clock.ahead_s;
        facts_.clock_error_s = record_.clock.error_s;
    }
    if (fate != RecordFate::line) return false;
    LogLine& line = record_.line;
    line.rank = facts_.rank;
    last_s_ = line.time_s = std::max(line.time_s - facts_.clock_ahead_s, last_s_);
    if (line.kind != LogKind::launcher) return is_wanted();
    facts_.host = line.host;
    launcher_.add(line.time_s, line.text);
    return take_launcher_line();
}

bool RankLog::take_launcher_line() {
    while (auto next = launcher_.take()) {
        launcher_line_ = std::move(*next);
        record_.line = {.time_s = launcher_line_.time_s,
                        .rank = no_rank,
                        .level = launcher_line_.level,
                        .kind = LogKind::launcher,
                        .host = facts_.host,
                        .text = launcher_line_.text,
                        .alike = launcher_line_.alike,
                        .code = launcher_line_.code,
                        .why = launcher_line_.why};
        if (is_wanted()) return true;
    }
    return false;
}

bool RankLog::advance() {
    if (!std::exchange(has_begun_, true)) seek(choice_.since_s);
    if (take_launcher_line()) return true;
    while (const auto bytes = next_bytes())
        if (take(*bytes)) return true;
    return word_ && take_words();
}

// Where the log's end alone was read, the place in stderr is not known.
void RankLog::take_last_words() {
    constexpr std::uint64_t most = 64 << 10, most_guessed = 4 << 10;
    if (word_) return;
    word_ = 0;
    if (facts_.rank == no_rank) return launcher_.finish();
    fs::path path = path_;
    path.replace_extension(".stderr");
    std::error_code failed;
    const std::uint64_t size = fs::file_size(path, failed);
    std::uint64_t from = record_.stderr_end;
    if (failed || size <= from) return;
    last_s_ = std::max(last_s_,
                       1e-9 * static_cast<double>(file_stamp(path).time_ns) - facts_.clock_ahead_s);
    from = std::max(from, size - std::min(size, from > 0 ? most : most_guessed));
    const UniqueFd fd = open_for_reading(path);
    words_.resize(static_cast<std::size_t>(size - from));
    words_.resize(read_at(fd.value(), std::as_writable_bytes(std::span(words_)), from, path));
}

bool RankLog::take_words() {
    if (facts_.rank == no_rank) return take_launcher_line();
    while (*word_ < words_.size()) {
        const std::size_t end = std::min(words_.find('\n', *word_), words_.size());
        record_.line = {.time_s = last_s_,
                        .rank = facts_.rank,
                        .level = Level::warn,
                        .kind = LogKind::captured,
                        .host = facts_.host,
                        .text = std::string_view(words_).substr(*word_, end - *word_)};
        word_ = end + 1;
        if (!record_.line.text.empty() && is_wanted()) return true;
    }
    return false;
}

}  // namespace lockstep
