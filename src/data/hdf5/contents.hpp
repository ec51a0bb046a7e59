// SPDX-License-Identifier: Apache-2.0
// What HDF5 files of others have, for somebody who has to say which of it are fields; and how these
// are opened.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/foreign.hpp"

#include "file_facts.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Files and fields as the user gave them.
struct AskedFiles {
    std::vector<fs::path> files;
    std::vector<FieldMapping> fields;
    ImageLayout layout = ImageLayout::unstated;
    Links links = Links::refused;
    bool is_sample_a_file = false;
};

/// The obstacle to packing a data set.
enum class Obstacle {
    elsewhere,  ///< its values are in other files
    elements,   ///< no field has such numbers
    samples,    ///< it has none, or no dimension that counts them
    library,    ///< libhdf5 cannot open it: it is damaged, or newer
};

/// Returns "lockstep data pack --hdf5 a.h5 --field images=/x --out NAME".
std::string pack_command(const AskedFiles& asked, Links links = Links::refused);

/// Checks that samples of `shape`, `count` of them in the file, can have the layout that field
/// number `field` states. Errors: E235.
void check_dimensions(const AskedFiles& asked,
                      std::size_t field,
                      const fs::path& file,
                      std::uint64_t count,
                      const std::vector<std::int64_t>& shape);

/// Returns a command that writes the files anew into a folder NAME, with `numbers` in the data set
/// of field number `field`: a Python expression of its array `x` and of NumPy, `n`, without single
/// quotes.
std::string rewrite_command(const AskedFiles& asked, std::size_t field, const std::string& numbers);

/// Does the same with `data_sets`, a Python dictionary of what is written by name. It uses `x`,
/// which was data set `d`, the file's name `f`, and `i[k]` of the names `k` in `r`, the other
/// fields'. Names that it takes out of `r` are not written unchanged. `x` is `taken`, of the file
/// `i`, after the statements `before`.
std::string write_anew_command(const AskedFiles& asked,
                               std::size_t field,
                               const std::string& data_sets,
                               std::string_view taken = "i[d][()]",
                               std::string_view before = "");

/// Does the same for an NPY file, or for ARCHIVE:NAME, an array of NumPy's archive, into NAME.npy.
/// `reading` are further arguments of NumPy's load(), each after a comma.
std::string rewrite_npy_command(const fs::path& file,
                                const std::string& numbers,
                                const std::string& reading = "");

/// Returns the command that packs files of one sample each.
std::string sample_a_file_command(AskedFiles asked);

/// Returns the remedy for `obstacle` of field number `field`, which `facts` describe; if there is
/// none, searches the first file for another data set.
std::string way_past(Obstacle obstacle,
                     const AskedFiles& asked,
                     std::size_t field,
                     const DatasetFacts& facts);

/// Returns E209: in `file`, field number `field` has `size`, with another number of rows than
/// field number `before`, whose size is `first`.
Error other_rows(const fs::path& file,
                 const AskedFiles& asked,
                 std::size_t before,
                 const std::vector<std::uint64_t>& first,
                 std::size_t field,
                 const std::vector<std::uint64_t>& size);

/// Returns E209: fields of different files have other numbers of rows. Each has the path of the
/// first of its files.
Error other_samples(const RowsRequest& first, const RowsRequest& other);

/// Returns the way in which libhdf5 gets a missing filter, and the command that then works, if one
/// is known.
std::string way_past_filter(std::uint64_t kind, const AskedFiles& asked);

/// Reads the first row of each field of one of the files as open_hdf5() would. Errors: as
/// open_hdf5().
void check_packs_hdf5(const fs::path& file, const AskedFiles& asked);

/// Returns the remedy where `file` of `asked` is not streamed because of `why`: the command that
/// packs `whole`, or all that was asked if that is null, or what hinders packing. Only what was
/// tried is said to work: the first row of each field.
std::string way_to_pack(const fs::path& file,
                        AskedFiles asked,
                        const AskedFiles* whole,
                        const std::string& why);

/// A data set that may be a field.
struct Candidate {
    std::string name;
    DatasetFacts facts;
    std::string obstacle;                      ///< why it cannot be streamed; "" if it can
    std::shared_ptr<const DatasetIndex> rows;  ///< its numbers alone; null if it has none to read
};

/// Returns what a data set of a file is as `field`.
Candidate candidate_of(const fs::path& file, const FieldMapping& field);

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

/// Whether it is the folder of a packed data set.
bool is_packed(const fs::path& where);

/// Where no fields are given: E216, with what there is and fields as values of `option`, if `where`
/// names HDF5 files of others.
void check_needs_no_fields(const fs::path& where, const std::string& option);

/// Returns the folder that all files lie below, so that they have names within one.
fs::path common_folder(const std::vector<fs::path>& files);

/// Returns the files without links in their paths. Errors: those of opening them.
std::vector<fs::path> canonical(std::vector<fs::path> files);

/// Checks that there are fields, each with a name of its own. Errors: E235.
void check_fields(const std::vector<FieldMapping>& fields);

/// Warnings of the guarantees that packed shards have and these files lack.
enum class Telling { warnings, nothing };

/// What an opening is part of, and what it says.
struct OpeningOptions {
    Telling telling = Telling::warnings;
    const AskedFiles* whole = nullptr;  ///< for the command that packs; null: these files are all
    std::uint32_t block_rows = 0;       ///< rows of a block; 0: as the largest field has them
    std::optional<std::size_t> warned_of = {};  ///< files that a warning names; unset: all of these
};

/// Opens files that have all fields. Errors: as DatasetIndex::open_foreign().
DatasetIndex open_files(const std::vector<fs::path>& files,
                        const std::vector<FieldMapping>& fields,
                        const OpeningOptions& options = {});

}  // namespace lockstep
