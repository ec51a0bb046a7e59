// SPDX-License-Identifier: Apache-2.0

#include "column.hpp"

#include "lockstep/core/numbers.hpp"

#include "hdf5/shard_probe.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

std::uint64_t rows_of(const Column& column) {
    std::uint64_t rows = 0;
    for (const FileRows& run : column.runs) rows += run.rows;
    return rows;
}

constexpr std::size_t spool_buffer_bytes = std::size_t{1} << 20;

// Not every file system has nameless files; then the name goes at once.
UniqueFd nameless_file(const fs::path& folder) {
    UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (fd) return fd;
    std::string name = folder / ".lockstep-XXXXXX";
    fd = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
    const int reason = errno;
    check(static_cast<bool>(fd), [&] {
        return Error("E401",
                     fmt::format("cannot make a temporary file in '{}'", folder.string()),
                     system_error("create", folder, reason).what(),
                     "set TMPDIR to a folder with room for the input's rows");
    });
    ::unlink(name.c_str());
    return fd;
}

fs::path spool_folder() {
    std::error_code failed;
    const fs::path usual = fs::temp_directory_path(failed);
    return failed ? fs::path("/tmp") : usual;
}

}  // namespace

Error malformed_input(const fs::path& path,
                      const std::string& kind,
                      const std::string& why,
                      const std::string& fix) {
    return Error(
        "E214",
        fmt::format("'{}' is not {}", path.string(), kind),
        why,
        fix.empty() ? "make or download it again, or check that it is the file you mean" : fix);
}

Error other_kind(const fs::path& path,
                 const std::string& kind,
                 const std::string& why,
                 std::string_view made) {
    const FileGuess found = guess_of_file(path, made);
    return malformed_input(path, kind, found.is_known ? found.meaning : why, found.way);
}

InputFile::InputFile(const fs::path& path) : InputFile(open_for_reading(path), path) {}

InputFile::InputFile(UniqueFd fd, fs::path path) : fd_(std::move(fd)), path_(std::move(path)) {
    struct stat facts {};
    if (::fstat(fd_.value(), &facts) != 0) throw system_error("look at", path_, errno);
    if (S_ISDIR(facts.st_mode)) throw system_error("read", path_, EISDIR);
    check(S_ISREG(facts.st_mode), [&] {
        return malformed_input(path_, "a file", "pipes and devices cannot be read at random");
    });
    bytes_ = static_cast<std::uint64_t>(facts.st_size);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
    const std::size_t got = read_at(fd_.value(), out, offset, path_);
    check(got == out.size(), [&] {
        return malformed_input(path_,
                               "whole",
                               fmt::format("it ends at byte {}; {} more are needed there",
                                           grouped(offset + got),
                                           grouped(out.size() - got)));
    });
}

bool InputFile::begins_with(std::string_view bytes) const {
    std::string head(bytes.size(), '\0');
    if (bytes_ < head.size()) return false;
    read(0, std::as_writable_bytes(std::span(head)));
    return head == bytes;
}

ColumnSource::ColumnSource(std::vector<Field> fields, std::vector<Column> columns)
    : RowSource(rows_of(columns.at(0)), std::move(fields)), columns_(std::move(columns)) {
    expect(fields_.size() == columns_.size(), "each field has a column");
    for (const Column& column : columns_)
        expect(rows_of(column) == samples_, "each column has all samples");
}

void ColumnSource::read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const {
    const Column& column = columns_[field];
    const FileRows* run = column.runs.data();
    while (row >= run->rows) row -= (run++)->rows;
    const std::uint64_t offset = run->offset + row * run->stride;
    if (!column.transform) return run->file->read(offset, out);
    std::vector<std::byte> stored(column.stored_bytes);
    run->file->read(offset, stored);
    column.transform(stored, out);
}

void ColumnSource::add_run(std::size_t field, const FileRows& run, Hasher128& hasher) const {
    const Column& column = columns_[field];
    const std::uint64_t most = std::max<std::size_t>(piece_bytes / run.stride, 1);
    std::vector<std::byte> piece, row(fields_[field].bytes_per_sample());
    for (std::uint64_t first = 0; first < run.rows; first += most) {
        const std::uint64_t rows = std::min(most, run.rows - first);
        piece.resize((rows - 1) * run.stride + column.stored_bytes);
        run.file->read(run.offset + first * run.stride, piece);
        for (std::uint64_t i = 0; i < rows; ++i) {
            const auto stored = std::span(piece).subspan(i * run.stride, column.stored_bytes);
            if (column.transform) column.transform(stored, row);
            hasher.add(column.transform ? std::span<const std::byte>(row) : stored);
        }
    }
}

Hash128 ColumnSource::fingerprint() const {
    Hasher128 hasher;
    for (std::size_t field = 0; field < fields_.size(); ++field)
        for (const FileRows& run : columns_[field].runs) add_run(field, run, hasher);
    return hasher.value();
}

Spool::Spool()
    : path_(spool_folder() / "(temporary rows)"), fd_(nameless_file(path_.parent_path())) {
    buffer_.reserve(spool_buffer_bytes);
}

void Spool::append(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > spool_buffer_bytes) flush();
    if (bytes.size() >= spool_buffer_bytes) {
        write_all(fd_.value(), bytes, path_);
        written_ += bytes.size();
        return;
    }
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void Spool::flush() {
    write_all(fd_.value(), buffer_, path_);
    written_ += buffer_.size();
    buffer_.clear();
}

std::shared_ptr<const InputFile> Spool::finish(const fs::path& name) {
    flush();
    return std::make_shared<const InputFile>(std::move(fd_), name);
}

}  // namespace lockstep
