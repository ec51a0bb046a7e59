// SPDX-License-Identifier: Apache-2.0
// A data set of one HDF5 file that is to be packed: whether it can be, and who reads its rows.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "format/widening.hpp"
#include "hdf5/contents.hpp"
#include "hdf5/file_facts.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A data set of one file, and what of it matters.
struct Part {
    fs::path path;
    std::string name, field;  ///< its path, and what it becomes
    std::vector<std::uint64_t> size;
    ElementType type = ElementType::u8;
    std::uint64_t rows_at_once = 1;
    bool is_text = false;             ///< labels by name
    std::vector<EnumMember> members;  ///< of an enumeration
    double chunks_of_row = 0;         ///< that a row lies in; small where a chunk has many rows
    std::shared_ptr<const DatasetIndex> blocks;  ///< null: libhdf5 reads it
    std::uint64_t plugin = 0;                    ///< which filter that needs, if it is not its own

    std::optional<Unpacking> unpacking = {};  ///< where libhdf5 reads numbers of `read_as`
    ElementType read_as = ElementType::u8;    ///< what libhdf5 makes of them

    std::uint64_t chunk_bytes = 0;  ///< that libhdf5 expands at a time; 0: it need not

    std::uint64_t row_elements() const;
    std::uint64_t row_bytes() const { return row_elements() * element_bytes(type); }
};

/// Most bytes that buffers take while rows of `part` are read: here, and in the child if libhdf5
/// reads them.
std::uint64_t reading_bytes(const Part& part);

/// Errors: E106 if that is more than `allowed`.
void check_pack_memory(const Part& part, std::uint64_t allowed);

/// An error that has no advice yet: that needs all files and fields.
struct NotPacked {
    Obstacle obstacle;
    Error error;
};

NotPacked malformed(const Part& part,
                    const std::string& why,
                    Obstacle obstacle,
                    const char* code = "E214");

/// What `facts` say of `field` in the file at `path`. Throws NotPacked; E235.
Part part_of(const DatasetFacts& facts,
             const fs::path& path,
             const FieldMapping& field,
             Links links);

}  // namespace lockstep
