// SPDX-License-Identifier: Apache-2.0
// Makes an index of HDF5 files that others wrote.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "contents.hpp"
#include "format/widening.hpp"
#include "hdf5/sandbox.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Samples of each class: 0 to the largest label of field `field`. Reads the whole field once.
/// Errors: E210 for a label below 0 or of a million and more; those of reading.
std::vector<std::uint64_t> counted_classes(const DatasetIndex& index, std::size_t field);

/// Why a data set is not streamed: E234, or E212 where a filter is in the way.
struct NotStreamable : Error {
    using Error::Error;
    bool is_about_filter() const { return code() == "E212"; }
};

/// One DatasetIndex::open_foreign(). Used once, by one thread.
class ForeignOpening {
  public:
    ForeignOpening(const std::vector<fs::path>& files, const std::vector<FieldMapping>& mappings);
    DatasetIndex run();

    /// Of the first field in the first file.
    Candidate look();

  private:
    DatasetIndex open_all();
    std::string way_out(const NotStreamable& reason) const;
    void ask(std::size_t number);
    bool add_files();
    Widening widening_of(const DatasetFacts& facts, std::size_t field) const;
    bool may_become_labels(std::size_t number, std::size_t field) const;
    ElementType type_of(std::size_t number, std::size_t field) const;
    const DatasetFacts& checked(std::size_t number, std::size_t field) const;
    Field field_of(std::size_t number, std::size_t field) const;
    bool is_label(std::size_t field) const;
    bool add_file(std::size_t number);
    void choose_block_rows();
    void add_blocks(std::size_t number);
    void describe_origin();
    void describe(DatasetIndex& index) const;
    void count_classes(DatasetIndex& index);
    void warn(DatasetIndex& index) const;

    const std::vector<FieldMapping>& mappings_;
    std::vector<bool> becomes_labels_;  // by field: elements of any type become i64
    std::vector<fs::path> files_;
    fs::path folder_;
    FileRequest request_;
    Sandbox sandbox_;
    FileFacts facts_;  // of the file that is being added
    Manifest manifest_;
    std::vector<std::vector<StoredBlock>> stored_;
    BlockForms forms_;
    std::vector<FileStamp> stamps_;
};

}  // namespace lockstep
