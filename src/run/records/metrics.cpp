// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/metrics.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::string text_between(int file, std::uint64_t begin, std::uint64_t end, const fs::path& path) {
    std::string text(end - begin, '\0');
    text.resize(read_at(file, std::as_writable_bytes(std::span(text)), begin, path));
    return text;
}

/// Returns the begin of the line that ends before `end`; reads backwards in blocks.
std::uint64_t start_of_line(int file, std::uint64_t end, const fs::path& path) {
    constexpr std::uint64_t block = 4096;
    while (end > 0) {
        const auto begin = end - std::min(block, end);
        const auto newline = text_between(file, begin, end, path).rfind('\n');
        if (newline != std::string::npos) return begin + newline + 1;
        end = begin;
    }
    return 0;
}

/// A line that is damaged, or that belongs to a step which the resumed run will do again.
bool is_beyond(const std::string& line, std::int64_t resumed_step) {
    const Json json = try_parse_json(line).value_or(Json());
    const Json* const step = json.find("step");
    return !step || !step->is_number_integer() || step->get<std::int64_t>() > resumed_step;
}

/// Length of the file without the last lines that are not whole or lie beyond `resumed_step`.
/// Steps only grow, so the search ends at the first line to keep: a resume costs what it drops.
std::uint64_t length_to_keep(int file, std::int64_t resumed_step, const fs::path& path) {
    const auto size = static_cast<std::uint64_t>(::lseek(file, 0, SEEK_END));
    auto end = start_of_line(file, size, path);
    while (end > 0) {
        const auto begin = start_of_line(file, end - 1, path);
        if (!is_beyond(text_between(file, begin, end - 1, path), resumed_step)) break;
        end = begin;
    }
    return end;
}

}  // namespace

MetricsFile::MetricsFile(const fs::path& path, std::int64_t resumed_step)
    : path_(path), file_(open_for_writing(path, O_RDWR | O_CREAT | O_APPEND)) {
    if (!file_) throw system_error("open", path.string(), errno);
    const auto length = length_to_keep(file_.value(), resumed_step, path);
    if (::ftruncate(file_.value(), static_cast<off_t>(length)) != 0) {
        throw system_error("cut", path.string(), errno);
    }
}

void MetricsFile::append(const Json& record) {
    const auto line = record.dump() + '\n';
    write_all(file_.value(), bytes_of(line), path_);
}

}  // namespace lockstep
