// SPDX-License-Identifier: Apache-2.0
// The content of an HDF5 file, for users who have to choose its fields.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/foreign.hpp"

#include "hdf5/file_facts.hpp"
#include "way_out.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A data set that may be a field.
struct Candidate {
    std::string name;
    DatasetFacts facts;
    std::string obstacle;  ///< the reason why it cannot be streamed; "" if it can
    std::shared_ptr<const DatasetIndex>
        rows;  ///< index of this data set alone; null if it cannot be read
};

/// Returns all data sets of a file, at most `most_listed`. Errors: as Sandbox::look().
std::vector<Candidate> candidates_of(const fs::path& file, Links links = Links::refused);

/// Foreign HDF5 files, and the data sets of the first.
struct ForeignPlace {
    std::vector<fs::path> files;
    std::vector<Candidate> all;
};

/// Returns no files if `where` names a packed data set, or nothing. Errors: E216 for a file that is
/// not HDF5 and for several packed data sets; E203, E204.
ForeignPlace foreign_place(const fs::path& where, Links links = Links::refused);

/// Returns a line for each: name, type, size, and why it is not streamed; the first twenty.
std::string list_text(const std::vector<Candidate>& all);

/// Facts about a data set's numbers.
struct KnownValues {
    double least = 0, most = 0;
    bool are_whole = false;   ///< all are whole, whatever their type
    bool is_one_hot = false;  ///< each row has one 1, and 0 elsewhere
};

/// Returns true if its rows can be a model's input.
bool may_be_input(const Candidate& each);

/// Returns the mapping of a model's input, by its dimensions: [n, C, H, W], [n, H, W], [n,
/// features], or [n, T] for tokens by its name.
FieldMapping input_mapping(const Candidate& input);

/// Returns a model's input first, then possible targets: those that sizes, types and names suggest,
/// and `values`, by data set, if known. None if nothing can be an input.
std::vector<FieldMapping> suggested_mappings(
    const std::vector<Candidate>& all, const std::vector<std::optional<KnownValues>>& values = {});

/// Returns the same as options: "--field images=/x/data:CHW --field labels=/y"; "" for none.
std::string suggested_fields(const std::vector<Candidate>& all);

/// Returns E207: `file` lacks the data set of field number `field`. It says where else that is, or
/// what there is.
Error no_such_dataset(const fs::path& file, const AskedFiles& asked, std::size_t field);

/// Returns true if there is no data set, not even one that the library cannot open.
bool is_absent(const DatasetFacts& facts);

/// Checks that the file has the field's data set, even if the library cannot open it. Errors: as
/// no_such_dataset().
void check_is_there(const DatasetFacts& facts,
                    const fs::path& file,
                    const AskedFiles& asked,
                    std::size_t field);

/// Returns true for the folder of a packed data set.
bool is_packed(const fs::path& where);

/// Refuses foreign HDF5 files without fields. Errors: E216, with their data sets and suggested
/// values of `option`.
void check_needs_no_fields(const fs::path& where, const std::string& option);

}  // namespace lockstep
