// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks whether files that are read for hours are still those that were opened.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// Watches the files of a data set whose blocks have no hashes: no other check would notice that
/// they were rewritten. Bytes that were read before a successful check() belong to the data set. A
/// change that keeps size, time and inode is not noticed.
class FileWatch {
  public:
    /// Compares with the state when this process opened `index`, or with the present one if another
    /// process did. Errors: those of file_stamp().
    explicit FileWatch(std::shared_ptr<const DatasetIndex> index);

    /// Checks each file. Errors: E251 naming the first that has changed.
    void check() const;

  private:
    struct Watched {
        std::filesystem::path path;
        FileStamp seen;
    };
    std::vector<Watched> files_;
};

}  // namespace lockstep
