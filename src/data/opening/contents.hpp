// SPDX-License-Identifier: Apache-2.0
// What an HDF5 file has, for somebody who has to say which of it are fields.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/foreign.hpp"

#include "hdf5/file_facts.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// A data set that may be a field.
struct Candidate {
    std::string name;
    DatasetFacts facts;
    std::string obstacle;  ///< why it cannot be streamed; "" if it can
};

/// All data sets of a file, at most `most_listed`. Errors: as Sandbox::look().
std::vector<Candidate> candidates_of(const fs::path& file);

/// A line for each: name, type, size, and why it is not streamed; the first twenty.
std::string list_text(const std::vector<Candidate>& all);

/// A model's input first, then labels: those that the sizes suggest, the largest input that has
/// labels, else the largest; none if none do.
std::vector<FieldMapping> suggested_mappings(const std::vector<Candidate>& all);

/// The same as options: "--field images=/x/data:CHW --field labels=/y"; "" for none.
std::string suggested_fields(const std::vector<Candidate>& all);

/// E207: the file has no `wanted`, and what it has.
Error no_such_dataset(const fs::path& file, const std::string& wanted, const std::string& field);

/// Whether there is no data set, not even one that the library does not open.
bool is_absent(const DatasetFacts& facts);

/// Nothing if the file has the field's data set, even if the library does not open it. Errors: as
/// no_such_dataset().
void check_is_there(const DatasetFacts& facts, const fs::path& file, const FieldMapping& field);

/// Whether it is the folder of a packed data set.
bool is_packed(const fs::path& where);

/// Where no fields are given: E216, with what there is and fields as values of `option`, if `where`
/// names HDF5 files of others.
void check_needs_no_fields(const fs::path& where, const std::string& option);

}  // namespace lockstep
