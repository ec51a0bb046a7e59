// SPDX-License-Identifier: Apache-2.0
// Reads the records of a CSV file by RFC 4180, one after another.
#pragma once

#include "column.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <iconv.h>

namespace lockstep {

/// Cells may be quoted, with separators, line breaks and doubled quotes inside; lines end with LF
/// or CRLF; empty lines are skipped; a byte order mark is ignored.
class CsvReader {
  public:
    /// `encoding` is a name of iconv's: "latin1", "cp1252", "utf-16"; "": bytes stay as they are.
    /// Errors: E103 (no such encoding).
    CsvReader(const InputFile& file, char separator, const std::string& encoding = "");

    /// Reads the next record into `cells`. Returns false at the end. Errors: E214 naming the line
    /// (a quote that never closes, text after one, a zero byte, a record of more than 16 MiB, bytes
    /// that are not of the encoding).
    bool next(std::vector<std::string>& cells);

    /// Returns the line on which the last record began, from 1.
    std::uint64_t line() const { return record_line_; }
    /// Returns the number of the file's bytes read so far.
    std::uint64_t bytes_read() const { return offset_; }

  private:
    static constexpr int end_of_file = -1;
    int peek();
    void fill();
    void recode();
    int take();
    void read_record(std::vector<std::string>& cells);
    void read_quoted(std::string& cell);
    void read_plain(std::string& cell);
    bool ends_line();
    void grow(std::string& cell, int sign);
    Error malformed(std::uint64_t line, const std::string& why) const;

    const InputFile& file_;
    int separator_;
    std::string encoding_;
    std::unique_ptr<void, decltype(&iconv_close)> converter_{nullptr, iconv_close};
    std::string left_;  // bytes of a character whose others are yet to come
    std::string buffer_;
    std::size_t at_ = 0;
    std::uint64_t offset_ = 0, line_ = 1, record_line_ = 1;
    std::size_t record_bytes_ = 0;
};

}  // namespace lockstep
