// SPDX-License-Identifier: Apache-2.0
// A zip ends with a record that contains the place of its table of entries. Each row of the table
// has the place of a second, local header, which the entry's bytes follow:
//
//   | header, bytes | header, bytes | ... | table: row, row, ... | (Zip64 end, locator) | end |
//
// If a number does not fit into 32 bits, these are all ones and a Zip64 field has it.
//
// Tested: train/program/program_file_test.cpp (damaged and hostile archives),
// data/pack/array_sources_test.cpp.
#include "lockstep/core/zip_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::string_view end_mark = "PK\5\6", row_mark = "PK\1\2", local_mark = "PK\3\4";
constexpr std::string_view zip64_end_mark = "PK\6\6", zip64_locator_mark = "PK\6\7";
constexpr std::size_t end_bytes = 22, row_bytes = 46, local_bytes = 30, locator_bytes = 20;
constexpr std::size_t zip64_end_bytes = 56, longest_comment = 65535;
constexpr std::uint64_t most_table_bytes = 64u << 20;
constexpr std::uint64_t all_ones = 0xffffffff;
constexpr std::size_t crc_in_row = 16, descriptor_flag = 8;
constexpr std::uint64_t deflated = 8;  // the method

// CRC-32 of ZIP: polynomial 0x04c11db7, bits reflected (APPNOTE.TXT 4.4.7). By bytes of a table.
constexpr auto crc_table = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
        table[i] = i;
        for (int bit = 0; bit < 8; ++bit)
            table[i] = table[i] >> 1 ^ (table[i] % 2 == 1 ? 0xedb88320U : 0U);
    }
    return table;
}();

// Little-endian numbers of a piece of the file. What lies behind its end reads as 0: who takes a
// record has checked that it is there.
template <std::size_t bytes>
std::uint64_t number_at(std::string_view piece, std::size_t at) {
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) {
        const bool is_there = at < piece.size() && i < piece.size() - at;
        value = value << 8 | (is_there ? static_cast<unsigned char>(piece[at + i]) : 0u);
    }
    return value;
}

// An entry's numbers as the row has them, with those of its Zip64 field in their place.
struct ZipRow {
    std::uint64_t flags = 0, method = 0, stored = 0, bytes = 0, local = 0;
};

void take_zip64(std::string_view extra, ZipRow& row) {
    constexpr std::uint64_t zip64_field = 1;
    for (std::size_t at = 0; at + 4 <= extra.size();) {
        const std::size_t end = at + 4 + number_at<2>(extra, at + 2);
        if (number_at<2>(extra, at) == zip64_field) {
            std::size_t next = at + 4;
            for (std::uint64_t* number : {&row.bytes, &row.stored, &row.local}) {
                if (*number != all_ones) continue;
                *number = number_at<8>(extra, next);
                next += 8;
            }
        }
        at = end;
    }
}

}  // namespace

std::uint32_t zip_crc(std::span<const std::byte> bytes, std::uint32_t before) {
    std::uint32_t crc = ~before;
    for (const std::byte byte : bytes)
        crc = crc >> 8 ^ crc_table[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
    return ~crc;
}

ZipFile::ZipFile(const fs::path& path, const ZipRules& rules)
    : path_(path), rules_(rules), fd_(open_for_reading(path)), file_bytes_(file_stamp(path).bytes) {
    read_table();
}

std::string ZipFile::bytes_at(std::uint64_t offset, std::uint64_t count) const {
    require(offset <= file_bytes_ && count <= file_bytes_ - offset,
            [&] { return "it ends before what its table of entries names"; });
    std::string bytes(count, '\0');
    const std::size_t got =
        read_at(fd_.value(), std::as_writable_bytes(std::span(bytes)), offset, path_);
    require(got == count, [&] { return "it was cut while it was read"; });
    return bytes;
}

void ZipFile::read_table() {
    const std::uint64_t tail_bytes =
        std::min<std::uint64_t>(file_bytes_, end_bytes + longest_comment);
    const std::string tail = bytes_at(file_bytes_ - tail_bytes, tail_bytes);
    const std::size_t end = tail.rfind(end_mark);
    require(end != tail.npos && tail.size() - end >= end_bytes,
            [&] { return "it is no zip archive, or its end is missing"; });
    std::uint64_t bytes = number_at<4>(tail, end + 12), offset = number_at<4>(tail, end + 16);
    if (end >= locator_bytes && tail.compare(end - locator_bytes, 4, zip64_locator_mark) == 0) {
        const std::string record =
            bytes_at(number_at<8>(tail, end - locator_bytes + 8), zip64_end_bytes);
        require(record.starts_with(zip64_end_mark),
                [&] { return "its Zip64 end is not where it should be"; });
        bytes = number_at<8>(record, 40);
        offset = number_at<8>(record, 48);
    }
    require(bytes <= most_table_bytes, [&] {
        return fmt::format("its table of entries would have {} bytes", grouped(bytes));
    });
    const std::string table = bytes_at(offset, bytes);
    for (std::size_t at = 0; at < table.size();) at = read_entry(table, at, offset);
}

std::size_t ZipFile::read_entry(std::string_view table,
                                std::size_t at,
                                std::uint64_t table_offset) {
    const std::string_view row = table.substr(at);
    const std::size_t name_bytes = number_at<2>(row, 28), extra_bytes = number_at<2>(row, 30);
    const std::size_t whole = row_bytes + name_bytes + extra_bytes + number_at<2>(row, 32);
    require(row.starts_with(row_mark) && row.size() >= whole,
            [&] { return fmt::format("its table of entries breaks at byte {}", at); });
    std::string name(row.substr(row_bytes, name_bytes));
    ZipRow found{.flags = number_at<2>(row, 8),
                 .method = number_at<2>(row, 10),
                 .stored = number_at<4>(row, 20),
                 .bytes = number_at<4>(row, 24),
                 .local = number_at<4>(row, 42)};
    take_zip64(row.substr(row_bytes + name_bytes, extra_bytes), found);
    const bool is_plain = found.method == 0 && found.stored == found.bytes;
    const bool is_deflated = found.method == deflated && rules_.takes_deflated;
    require((found.flags & 1) == 0 && (is_plain || is_deflated), [&] {
        return fmt::format("its entry '{}' is compressed or encrypted; only plain ones are read",
                           printable(name));
    });
    const std::string local = bytes_at(found.local, local_bytes);
    require(local.starts_with(local_mark), [&] {
        return fmt::format("'{}' is not where its table of entries says", printable(name));
    });
    const std::uint64_t offset =
        found.local + local_bytes + number_at<2>(local, 26) + number_at<2>(local, 28);
    require(offset <= table_offset && found.stored <= table_offset - offset,
            [&] { return fmt::format("'{}' reaches beyond the entries", printable(name)); });
    if (rules_.has_outer_folder) name.erase(0, name.find('/') + 1);
    const ZipEntry entry{offset,
                         found.bytes,
                         found.stored,
                         static_cast<std::uint32_t>(number_at<4>(row, crc_in_row)),
                         table_offset + at,
                         found.local,
                         is_deflated,
                         (found.flags & descriptor_flag) != 0};
    require(entries_.try_emplace(name, entry).second,
            [&] { return fmt::format("it has '{}' twice", printable(name)); });
    return at + whole;
}

const ZipEntry* ZipFile::find(std::string_view name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second;
}

std::string ZipFile::first_bytes(const ZipEntry& entry, std::uint64_t most_bytes) const {
    expect(!entry.is_deflated, "a plain entry is read as it is");
    return bytes_at(entry.offset, std::min(entry.bytes, most_bytes));
}

void ZipFile::read(const ZipEntry& entry, std::span<std::byte> out) const {
    expect(out.size() == entry.bytes && !entry.is_deflated, "there is room for a plain entry");
    const std::size_t got = read_at(fd_.value(), out, entry.offset, path_);
    require(got == out.size() && zip_crc(out) == entry.crc, [&] {
        return fmt::format("the {} bytes at {} have another checksum than when they were written",
                           grouped(entry.bytes),
                           entry.offset);
    });
}

std::string ZipFile::text(const std::string& name, std::uint64_t most_bytes) const {
    const ZipEntry* entry = find(name);
    require(entry != nullptr, [&] { return fmt::format("it has no '{}'", name); });
    require(entry->bytes <= most_bytes, [&] {
        return fmt::format("its '{}' has {} bytes; {} are the most",
                           name,
                           grouped(entry->bytes),
                           grouped(most_bytes));
    });
    std::string text(entry->bytes, '\0');
    read(*entry, std::as_writable_bytes(std::span(text)));
    return text;
}

}  // namespace lockstep
