// SPDX-License-Identifier: Apache-2.0
// Turns input files into a data set: shards, block index, statistics, manifest.
#pragma once

#include "lockstep/data/row_source.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct PackOptions {
    std::filesystem::path images, labels;  ///< IDX, gzip or not
    std::filesystem::path output;          ///< the folder that becomes the data set
    std::string name;                      ///< of the data set and its shards; "" = output's name
    std::string split = "train";
    Codec codec = Codec::none;
    int level = 0;                                  ///< of the codec; 0 = its usual one
    int shards = 0;                                 ///< 0 = about 512 MiB each
    std::uint32_t block_rows = 0;                   ///< 0 = so that a block has at most 512 KiB
    std::optional<std::uint64_t> shuffle_seed = 0;  ///< rows are shuffled once; nullopt = kept
    std::int64_t classes = 0;                       ///< expected; 0 = largest label + 1
    std::vector<std::string> class_names;           ///< empty, or one per class
};

/// How far packing is. Throwing from the callback cancels and leaves nothing behind.
struct PackProgress {
    std::string_view stage;             ///< "scan", "write", "verify"
    std::uint64_t done = 0, total = 0;  ///< samples, samples, bytes
};
using PackReport = std::function<void(const PackProgress&)>;

struct PackResult {
    std::filesystem::path path;
    Manifest manifest;
    std::uint64_t raw_bytes = 0;     ///< of all fields, uncompressed
    std::uint64_t stored_bytes = 0;  ///< of all shards
};

/// Packs the inputs named in `options`. The same inputs and options give the same bytes on any
/// machine. Everything is written to a folder beside `output`, flushed, verified, and renamed; what
/// an interrupted run left there is removed by the next.
/// Errors: E407 (output exists), E404 (another pack is writing it), E401, E403, E405; E102, E106
/// (options); E209, E210, E214 (inputs); E213 (what was written reads back differently).
PackResult pack_dataset(const PackOptions& options, const PackReport& report = {});

/// The same from any source; options.images and labels are ignored.
PackResult pack_dataset(const RowSource& source,
                        const PackOptions& options,
                        const PackReport& report = {});

}  // namespace lockstep
