// SPDX-License-Identifier: Apache-2.0
// What an HDF5 file has, for somebody who has to say which of it are fields.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

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

/// "--field images=/x/data:CHW --field labels=/y": those that the sizes suggest; "" if none do.
std::string suggested_fields(const std::vector<Candidate>& all);

/// E207: the file has no `wanted`, and what it has.
Error no_such_dataset(const fs::path& file, const std::string& wanted, const std::string& field);

/// Where no fields are given: E216, with what there is, if `where` names HDF5 files of others.
void check_needs_no_fields(const fs::path& where);

}  // namespace lockstep
