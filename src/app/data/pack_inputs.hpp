// SPDX-License-Identifier: Apache-2.0
// What commands that pack share: the inputs of `data pack`, as options and as a source of rows, and
// the ranks as data's functions know them.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/sources.hpp"
#include "lockstep/data/team.hpp"
#include "lockstep/run/progress.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// How the text of a table is written; what is not given is as in the training table, if there is
/// one.
struct TableText {
    std::optional<DecimalSign> decimal;  ///< nothing: a point
    std::string encoding;                ///< iconv's name; "": bytes stay as they are

    /// Sets those of `csv`, after those of the field that it may be `like`.
    void apply(CsvOptions& csv) const;
};

/// Returns the options of `text`, which several commands have.
OptionSection table_text_group(TableText& text);

struct PackInputs {
    fs::path images, labels, csv, folder, masks;
    std::vector<std::string> npy, cifar10, cifar100, text, tokens;
    fs::path hdf5;       ///< files, with commas between them
    std::string fields;  ///< fields of `hdf5`
    ImageLayout layout = ImageLayout::unstated;
    Color color = Color::as_first;
    std::string resize;       ///< "HxW"; "": images have one size
    std::string mask_values;  ///< "0,255"; "": pixels of masks are class numbers
    CsvOptions csv_columns;   ///< but for its text
    TableText table_text;
    fs::path like;            ///< packed data set whose form a table follows; "": none
    std::int64_t length = 0;  ///< length of windows of text or tokens; 0: not given
    RawTokens token_type = RawTokens::none;
    bool follows_links = false, is_sample_a_file = false;
    std::uint64_t memory = SourceOptions{}.memory_bytes;  ///< memory for reading `hdf5`
};

OptionTable pack_input_sections(PackInputs& inputs);

/// Adds further files to the list that was begun, for patterns that a shell expands, as in "--text
/// *.md". Errors: E101 if none was begun.
void add_files(PackInputs& inputs, const std::vector<std::string>& files);

/// Opens the one input that is given. Errors: E105 (none), E106 (several, or an option of another),
/// and those of opening.
std::unique_ptr<RowSource> open_inputs(const PackInputs& inputs,
                                       const std::string& split,
                                       const ReadReport& report);

/// Shows how far packing is, for as long as `progress` lives and while a SignalGuard is there.
/// Errors: E242 if a signal asked this process to end; `doing` is "packing".
std::function<void(const PackProgress&)> pack_report(const std::string& doing, Progress& progress);

/// All of `ranks`, which must outlive the result.
Team team_of(const Communicator& ranks);

}  // namespace lockstep
