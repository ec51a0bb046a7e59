// SPDX-License-Identifier: Apache-2.0
// A data set of one HDF5 file for packing: whether it can be packed, and the reader of its rows.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "hdf5/file_facts.hpp"
#include "hdf5/row_form.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// The relevant facts of a data set of one file.
struct Part {
    fs::path path;
    std::string name, field;  ///< its path, and the field
    std::vector<std::uint64_t> size;
    RowForm form;
    std::uint64_t rows_at_once = 1;
    double chunks_of_row = 0;  ///< number of chunks of a row; small if a chunk has many rows
    std::shared_ptr<const DatasetIndex> blocks;  ///< null: libhdf5 reads it
    std::uint64_t plugin = 0;                    ///< the filter that needs a plugin, if any

    ElementType read_as = ElementType::u8;  ///< type to which libhdf5 converts, before unpacking

    std::uint64_t chunk_bytes = 0;  ///< bytes that libhdf5 expands at a time; 0: it is not used

    std::uint64_t row_elements() const;
    std::uint64_t row_bytes() const { return row_elements() * element_bytes(form.type); }
};

/// Checks the most bytes of buffers while rows of `part` are read: here, and in the child if
/// libhdf5 reads them. Errors: E106 if they are more than `allowed`.
void check_pack_memory(const Part& part, std::uint64_t allowed);

/// Makes the part of `field` from `facts` of the file at `path`. Throws as form_of().
Part part_of(const DatasetFacts& facts,
             const fs::path& path,
             const FieldMapping& field,
             Links links);

}  // namespace lockstep
