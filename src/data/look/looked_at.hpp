// SPDX-License-Identifier: Apache-2.0
// Data sets of others' files and fields of packed ones, as a first look takes both.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/foreign.hpp"

#include "opening/contents.hpp"
#include "other_files.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// One data set.
struct LookedAt {
    std::string name;                           ///< "/x/data", or of a packed field "images"
    std::string type;                           ///< "u8", "a compound of id, mass"
    std::vector<std::uint64_t> size;            ///< by dimension, samples first
    std::string storage;                        ///< "chunks [100, 28, 28], deflate"
    std::string obstacle;                       ///< why it cannot be streamed; "" if it can
    std::shared_ptr<const DatasetIndex> index;  ///< null: its rows are not read
    std::size_t field = 0;                      ///< its position there
};

/// All of one place.
struct LookedAtPlace {
    std::string title;  ///< what it is, and how large
    std::vector<LookedAt> all;
    bool is_cut_off = false;            ///< there may be more
    OtherFiles others;                  ///< of others' files
    std::vector<Candidate> candidates;  ///< as `all`; none of packed data
    std::vector<FieldMapping> fields;   ///< that are suggested; none of packed data
    bool is_packed = false;
    fs::path data;           ///< as --data takes it
    std::string run_option;  ///< " --run NAME"
};

/// Errors: those of opening; a data set that cannot be read has an obstacle.
LookedAtPlace look_at_place(const std::filesystem::path& where);

}  // namespace lockstep
