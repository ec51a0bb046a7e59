// SPDX-License-Identifier: Apache-2.0
// What an HDF5 file has, for somebody who has to say which of it are fields.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/foreign.hpp"

#include "file_facts.hpp"
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
    std::string obstacle;                      ///< why it cannot be streamed; "" if it can
    std::shared_ptr<const DatasetIndex> rows;  ///< its numbers alone; null if it has none to read
};

/// All data sets of a file, at most `most_listed`. Errors: as Sandbox::look().
std::vector<Candidate> candidates_of(const fs::path& file, Links links = Links::refused);

/// HDF5 files that others wrote, and the data sets of the first.
struct ForeignPlace {
    std::vector<fs::path> files;
    std::vector<Candidate> all;
};

/// No files if `where` names a packed data set, or nothing. Errors: E216 for a file that is not
/// HDF5 and for several packed data sets; E203, E204.
ForeignPlace foreign_place(const fs::path& where, Links links = Links::refused);

/// A line for each: name, type, size, and why it is not streamed; the first twenty.
std::string list_text(const std::vector<Candidate>& all);

/// What is known of a data set's numbers.
struct KnownValues {
    double least = 0, most = 0;
    bool are_whole = false;   ///< all of them, whatever their type
    bool is_one_hot = false;  ///< each row has one 1, and 0 elsewhere
};

/// Whether a model can be given its rows.
bool may_be_input(const Candidate& each);

/// Of a model's input, by its dimensions: [n, C, H, W], [n, H, W], [n, features], or [n, T] of
/// tokens by its name.
FieldMapping input_mapping(const Candidate& input);

/// A model's input first, then what it may learn: those that sizes, types and names suggest, and
/// `values`, by data set, where they are known; none if nothing can be an input.
std::vector<FieldMapping> suggested_mappings(
    const std::vector<Candidate>& all, const std::vector<std::optional<KnownValues>>& values = {});

/// The same as options: "--field images=/x/data:CHW --field labels=/y"; "" for none.
std::string suggested_fields(const std::vector<Candidate>& all);

/// E207: `file` lacks the data set of field number `field`; says where else it is, or what there
/// is.
Error no_such_dataset(const fs::path& file, const AskedFiles& asked, std::size_t field);

/// Whether there is no data set, not even one that the library does not open.
bool is_absent(const DatasetFacts& facts);

/// Nothing if the file has the field's data set, even if the library does not open it. Errors: as
/// no_such_dataset().
void check_is_there(const DatasetFacts& facts,
                    const fs::path& file,
                    const AskedFiles& asked,
                    std::size_t field);

/// Whether it is the folder of a packed data set.
bool is_packed(const fs::path& where);

/// Where no fields are given: E216, with what there is and fields as values of `option`, if `where`
/// names HDF5 files of others.
void check_needs_no_fields(const fs::path& where, const std::string& option);

}  // namespace lockstep
