// SPDX-License-Identifier: Apache-2.0
// Makes an index of foreign HDF5 files.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "contents.hpp"
#include "format/index_columns.hpp"
#include "row_form.hpp"
#include "row_layout.hpp"
#include "sandbox.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// The reason why a data set is not streamed although packing may read it: E234, E212 (a filter),
/// E205 (a link).
struct NotStreamable : Error {
    using Error::Error;
};

/// Returns the identity of a file without hashes: its size and time.
ByteWriter identity_of(const fs::path& file, std::uint64_t bytes);

/// Returns the folder that all files lie below, so that they have names within one.
fs::path common_folder(const std::vector<fs::path>& files);

/// Returns the files without links in their paths. Errors: those of opening them.
std::vector<fs::path> canonical(std::vector<fs::path> files);

/// Checks that there are fields, each with a name of its own. Errors: E235.
void check_fields(const std::vector<FieldMapping>& fields);

/// Warnings of the guarantees that packed shards have and these files lack.
enum class Telling { warnings, nothing };

/// The work of one DatasetIndex::open_foreign(). Used once, by one thread.
class ForeignOpening {
  public:
    ForeignOpening(const std::vector<fs::path>& files, const std::vector<FieldMapping>& mappings);
    DatasetIndex run(Telling telling = Telling::warnings);

    /// Says what the fields are part of, for the command that packs; the rows of a block; and the
    /// number of files that a warning names, 0 for none.
    void be_part_of(const AskedFiles& whole, std::uint32_t block_rows, std::size_t warned_of);

    /// Returns the candidate of the first field in the first file.
    Candidate look();

  private:
    DatasetIndex made_index();
    AskedFiles asked_files() const;
    std::string way_out(const NotStreamable& reason) const;
    NotStreamable refused(std::size_t number,
                          std::size_t field,
                          const std::string& why,
                          const std::string& code = "E234") const;
    void ask(std::size_t number);
    bool add_files();
    bool may_become_labels(std::size_t field) const;
    RowForm rows_in(std::size_t number, std::size_t field) const;
    bool is_label(std::size_t field) const;
    bool is_made(std::size_t field) const;
    RowsRequest rows_of(std::size_t number, std::size_t field) const;
    LabelColumn hot_rows_of(const DatasetIndex& index, std::size_t field) const;
    void keep(DatasetIndex& index, std::size_t field, const LabelColumn& column);
    void suggest_one_hot() const;
    void read_labels(DatasetIndex& index);
    bool add_file(std::size_t number);
    void add_shards(std::size_t number);
    std::uint32_t linked_shard(const fs::path& file, std::size_t first);
    void add_blocks_of(std::size_t number, std::size_t field, ByteWriter& identity);
    void add_shard(const fs::path& file, std::uint64_t samples, const FileStamp& stamp);
    void look_again_behind_links();
    const Shard& shard_of(std::size_t number) const { return manifest_.shards[own_shard_[number]]; }
    void choose_block_rows();
    void add_blocks(std::size_t number);
    void describe_origin();
    void describe(DatasetIndex& index) const;
    void warn(DatasetIndex& index) const;

    const std::vector<FieldMapping>& mappings_;
    const AskedFiles* whole_ = nullptr;           // null: the files and mappings are all
    std::size_t warned_of_ = 0;                   // files, named together
    std::uint32_t block_rows_ = 0;                // 0: as the largest field has them
    std::vector<bool> becomes_labels_;            // by field: elements of any type become i64
    std::vector<NamedClasses> named_;             // by field
    std::map<std::string, std::string> unasked_;  // warnings, by field
    std::vector<fs::path> files_;
    fs::path looked_at_;  // the file examined last
    fs::path folder_;
    FileRequest request_;
    Sandbox sandbox_;
    FileFacts facts_;                         // facts of the file that is being added
    std::vector<RowForm> rows_, first_rows_;  // by field, of that file and of the first
    Manifest manifest_;
    std::vector<std::vector<StoredBlock>> stored_;
    BlockForms forms_;
    std::vector<FileStamp> stamps_;         // by shard
    std::vector<FileStamp> asked_;          // stamps of files before they were read
    std::map<fs::path, FileStamp> linked_;  // stamps of files that links lead to
    std::set<fs::path> known_;              // files that are already shards
    std::vector<std::uint32_t> own_shard_;  // by file; linked files come before it
    std::vector<std::vector<std::uint32_t>>
        part_shards_;  // by field and part, for the current file
};

}  // namespace lockstep
