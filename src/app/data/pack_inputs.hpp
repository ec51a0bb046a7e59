// SPDX-License-Identifier: Apache-2.0
// What `data pack` can be given as input, as options and as a source of rows.
#pragma once

#include "lockstep/data/sources.hpp"

#include "options.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct PackInputs {
    std::filesystem::path images, labels, csv, folder;
    std::vector<std::string> npy, cifar10, cifar100, text, tokens;
    std::filesystem::path hdf5;  ///< files, with commas between them
    std::string fields;          ///< of `hdf5`
    ImageLayout layout = ImageLayout::unstated;
    Color color = Color::as_first;
    std::string resize;  ///< "HxW"; "": images have one size
    CsvOptions csv_columns;
    std::int64_t length = 0;  ///< of windows of text or tokens; 0: not given
    RawTokens token_type = RawTokens::none;
    bool follows_links = false;
    std::uint64_t memory = SourceOptions{}.memory_bytes;  ///< of reading `hdf5`

    /// Classes that the input has whatever is in it: the 256 of bytes; 0: count them.
    std::int64_t usual_classes() const { return text.empty() ? 0 : 256; }
};

OptionTable pack_input_sections(PackInputs& inputs);

/// Further files of the list that was begun, as a shell makes them of "--text *.md". Errors: E101
/// if none was.
void add_files(PackInputs& inputs, const std::vector<std::string>& files);

/// Opens the one input that is given. Errors: E105 (none), E106 (several, or an option of another),
/// and those of opening.
std::unique_ptr<RowSource> open_inputs(const PackInputs& inputs,
                                       const std::string& split,
                                       const ReadReport& report);

}  // namespace lockstep
