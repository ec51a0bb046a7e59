// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "csv_table.hpp"
#include "hdf5/shard_probe.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

namespace {

constexpr std::size_t csv_buffer_bytes = std::size_t{1} << 20,
                      longest_record = std::size_t{16} << 20;
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

}  // namespace

CsvReader::CsvReader(const InputFile& file, char separator, const std::string& encoding)
    : file_(file), separator_(static_cast<unsigned char>(separator)), encoding_(encoding) {
    if (const FileGuess kind = guess_of_file(file.path()); kind.is_known)
        throw malformed_input(file.path(), "a CSV file", kind.meaning, kind.way);
    if (!encoding.empty()) {
        const iconv_t made = ::iconv_open("UTF-8", encoding.c_str());
        check(made != reinterpret_cast<iconv_t>(-1), [&] {
            return Error("E103",
                         fmt::format("--encoding is '{}'", printable(encoding)),
                         "the system's iconv knows no encoding of that name",
                         "'iconv -l' lists them: latin1, cp1252, utf-16, shift_jis, ...");
        });
        converter_.reset(made);
    }
    peek();
    if (buffer_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
}

Error CsvReader::malformed(std::uint64_t line, const std::string& why) const {
    return malformed_input(
        file_.path(), "a CSV file", fmt::format("line {}: {}", grouped(line), why));
}

// Empty at the end of the file.
void CsvReader::fill() {
    buffer_.clear();
    at_ = 0;
    while (buffer_.empty() && offset_ < file_.bytes()) {
        buffer_.resize(std::min<std::uint64_t>(csv_buffer_bytes, file_.bytes() - offset_));
        file_.read(offset_, std::as_writable_bytes(std::span(buffer_)));
        offset_ += buffer_.size();
        if (converter_) recode();
    }
}

// As far as the buffer, and what was left before it, are whole characters.
void CsvReader::recode() {
    const auto refuse = [&](const char* how) {
        return malformed(
            line_,
            fmt::format("from here on there are bytes that {} {}", how, printable(encoding_)));
    };
    left_ += std::exchange(buffer_, {});
    char* from = left_.data();
    std::size_t bytes = left_.size();
    while (bytes > 0) {
        std::array<char, 4096> text;
        char* to = text.data();
        std::size_t room = text.size();
        const std::size_t done = ::iconv(converter_.get(), &from, &bytes, &to, &room);
        const int problem = done == static_cast<std::size_t>(-1) ? errno : 0;
        buffer_.append(text.data(), to);
        if (problem == EINVAL) break;  // the rest of a character is yet to come
        if (problem != 0 && problem != E2BIG) throw refuse("are no");
    }
    left_.erase(0, left_.size() - bytes);
    if (offset_ == file_.bytes() && !left_.empty()) throw refuse("end within a character of");
}

int CsvReader::peek() {
    if (at_ == buffer_.size()) fill();
    if (buffer_.empty()) return end_of_file;
    return static_cast<unsigned char>(buffer_[at_]);
}

int CsvReader::take() {
    const int sign = peek();
    if (sign != end_of_file) ++at_;
    if (sign == '\n') ++line_;
    return sign;
}

void CsvReader::grow(std::string& cell, int sign) {
    if (sign == 0)
        throw malformed(line_, "a zero byte: this is no text, or UTF-16 (--encoding utf-16)");
    if (++record_bytes_ > longest_record)
        throw malformed(record_line_, "the record that begins here has more than 16 MiB");
    cell += static_cast<char>(sign);
}

void CsvReader::read_quoted(std::string& cell) {
    const std::uint64_t opened = line_;
    for (take();;) {
        const int sign = take();
        if (sign == end_of_file) throw malformed(opened, "a quote opens and never closes");
        if (sign != '"') {
            grow(cell, sign);
        } else if (peek() == '"') {
            grow(cell, take());
        } else {
            break;
        }
    }
    const int after = peek();
    if (after != separator_ && after != '\n' && after != '\r' && after != end_of_file)
        throw malformed(line_, "text follows a closing quote");
}

void CsvReader::read_plain(std::string& cell) {
    for (int sign = peek(); sign != separator_ && sign != '\n' && sign != end_of_file;
         sign = peek())
        grow(cell, take());
    if (cell.ends_with('\r') && peek() != separator_) cell.pop_back();
}

bool CsvReader::ends_line() {
    if (peek() == '\r') take();
    if (peek() == end_of_file) return true;
    if (peek() != '\n') return false;
    take();
    return true;
}

void CsvReader::read_record(std::vector<std::string>& cells) {
    std::size_t count = 0;
    record_bytes_ = 0;
    record_line_ = line_;
    do {
        if (count == cells.size()) cells.emplace_back();
        std::string& cell = cells[count++];
        cell.clear();
        if (peek() == '"')
            read_quoted(cell);
        else
            read_plain(cell);
        record_bytes_ += sizeof(std::string);
    } while (peek() == separator_ && take() != end_of_file);
    if (!ends_line()) throw malformed(line_, "a carriage return ends no line");
    cells.resize(count);
}

bool CsvReader::next(std::vector<std::string>& cells) {
    while (peek() != end_of_file) {
        read_record(cells);
        if (cells.size() > 1 || !cells[0].empty()) return true;
    }
    return false;
}

}  // namespace lockstep
