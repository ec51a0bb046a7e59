// SPDX-License-Identifier: Apache-2.0
// Sources whose rows are at equal distances in files, as those of most are; and the rules of field
// names: images are CHW, class labels are i64.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/sources.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Returns E214 about an input; `kind` is what it should be, e.g. "a whole NPY file".
Error malformed_input(const fs::path& path,
                      const std::string& kind,
                      const std::string& why,
                      const std::string& fix = "");

/// Returns the same for a file that does not begin as `kind` does, and names its actual kind if
/// known. `made` is the ending of files of the kind.
Error other_kind(const fs::path& path,
                 const std::string& kind,
                 const std::string& why,
                 std::string_view made = "");

/// A file from which rows are read. Any thread.
class InputFile {
  public:
    explicit InputFile(const fs::path& path);  ///< Errors: E201, E202, E206, E402
    InputFile(UniqueFd fd, fs::path path);

    /// Fills all of `out`. Errors: E402; E214 if the file ends before.
    void read(std::uint64_t offset, std::span<std::byte> out) const;

    bool begins_with(std::string_view bytes) const;
    std::uint64_t bytes() const { return bytes_; }
    const fs::path& path() const { return path_; }

  private:
    UniqueFd fd_;
    fs::path path_;
    std::uint64_t bytes_ = 0;
};

/// Consecutive rows: number i begins at offset + i * stride.
struct FileRows {
    std::shared_ptr<const InputFile> file;
    std::uint64_t offset = 0, rows = 0;
    std::size_t stride = 0;
};

/// Makes a field's row of a stored one. Any thread.
using RowTransform =
    std::function<void(std::span<const std::byte> stored, std::span<std::byte> out)>;

/// One field's rows; `transform` empty: they are stored as the field has them.
struct Column {
    std::vector<FileRows> runs;
    std::size_t stored_bytes = 0;  ///< size of a stored row
    RowTransform transform = {};
};

class ColumnSource : public RowSource {
  public:
    /// Each column has `samples` rows.
    ColumnSource(std::vector<Field> fields, std::vector<Column> columns);

    void name_rows(std::vector<std::string> names) { row_names_ = std::move(names); }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override;
    std::string row_name(std::uint64_t row) const override {
        return row_names_.empty() ? "" : row_names_[row];
    }

    /// Hashes all rows of the first field, then of the second, and so on, as read() returns them.
    Hash128 fingerprint() const override;

  private:
    void add_run(std::size_t field, const FileRows& run, Hasher128& hasher) const;

    std::vector<Column> columns_;
    std::vector<std::string> row_names_;
};

/// One writer; then finish() and read by any number of threads. The file has no name: it is gone
/// when the last reader is, however the process ends.
class Spool {
  public:
    /// In the system's temporary folder ($TMPDIR, /tmp). Errors: E401.
    Spool();

    /// Errors: E405, E402.
    void append(std::span<const std::byte> bytes);

    std::uint64_t bytes() const { return written_ + buffer_.size(); }

    /// What was appended, as a file, with the name that messages have of it.
    std::shared_ptr<const InputFile> finish(const fs::path& name = "(temporary rows)");

  private:
    void flush();

    fs::path path_;
    UniqueFd fd_;
    std::vector<std::byte> buffer_;
    std::uint64_t written_ = 0;
};

/// A field, and the conversion of stored rows to its rows.
struct FieldPlan {
    Field field;
    RowTransform transform;  ///< empty: unchanged
};

/// Remedies for a field that does not suit its name, as commands or options. Both or none.
struct FieldWays {
    std::function<std::string(const std::string& name, bool is_label)> given;
    /// Returns a command with a Python expression of its array x and of NumPy, n.
    std::function<std::string(const std::string& numbers)> rewritten;
};

/// Plans a field; `shape` is one stored sample's. "images" of two dimensions get a channel, those
/// of three become CHW. "labels" and "..._labels" are whole numbers: one per sample become i64; any
/// numbers, one per class, stay. "masks" of whole numbers [H, W, 1] or [1, H, W] become [H, W], and
/// the layout of those of two dimensions is HW. Other fields stay unchanged. Errors: E214 naming
/// `origin`; E106 if `layout` is needed.
FieldPlan plan_field(const std::string& name,
                     ElementType type,
                     std::vector<std::int64_t> shape,
                     ImageLayout layout,
                     const fs::path& origin,
                     const FieldWays& ways = {});

/// Converts u8, i32 or i64 to i64.
RowTransform widening(ElementType from);

/// Refuses channels for images of two dimensions, when one option applies to all. Errors: E235.
/// `one_each`: as in LaidOutRows.
void check_has_channels(const NamedInput& images,
                        ImageLayout layout,
                        std::uint64_t count,
                        const std::vector<std::int64_t>& shape,
                        const std::string& one_each);

/// Checks that no field is named twice in the values of --`option`, and that some field has images
/// if `layout` is stated. Errors: E103, E106.
void check_inputs(const std::string& option,
                  const std::vector<NamedInput>& inputs,
                  ImageLayout layout = ImageLayout::unstated);

}  // namespace lockstep
