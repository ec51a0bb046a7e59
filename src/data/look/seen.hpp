// SPDX-License-Identifier: Apache-2.0
// What a first look has found, before it is text or JSON.
#pragma once

#include "look_text.hpp"
#include "looked_at.hpp"
#include "value_summary.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Of the values of one data set.
struct SeenValues {
    std::string fault;  ///< why none were read; "" if some were
    bool is_damaged = false;
    ValueSummary summary;
    bool is_one_hot = false;         ///< each row has one 1, and 0 elsewhere
    std::uint64_t rows = 0, of = 0;  ///< that were read, of how many
    std::vector<ClassCount> classes;
    std::uint64_t counted_rows = 0;  ///< of the classes
};

/// A written sheet of images.
struct SeenSheet {
    std::filesystem::path path;
    std::uint64_t images = 0, of = 0;
};

/// A command that trains.
struct TrainCommand {
    std::string line;
    std::string obstacle;  ///< why there is none; "" if there is one
};

/// All of it.
struct Seen {
    LookedAtPlace place;
    std::vector<std::optional<SeenValues>> values;  ///< by data set; nothing where none are read
    std::optional<SeenSheet> sheet;
    TrainCommand train;
};

/// For the fields of the place, with the built-in model, the task and the batch that fit them.
TrainCommand train_command(const Seen& seen);

/// As lines of `columns` where they fit.
std::string tree_text(const Seen& seen, std::size_t columns);

/// As a JSON object with a line break at its end.
std::string json_text(const Seen& seen);

}  // namespace lockstep
