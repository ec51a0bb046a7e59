// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether files that are read for hours are still those that were opened.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// Watches the files of a data set whose blocks have no hashes: nothing else would notice that they
/// were written again. Bytes that were read before check() found nothing are those of the data set.
/// What a file system does not show by size, time or inode stays unseen.
class FileWatch {
  public:
    /// From the moment at which this process opened `index`; from now on if another did. Errors:
    /// those of file_stamp().
    explicit FileWatch(std::shared_ptr<const DatasetIndex> index);

    /// Looks at each file. Errors: E251 naming the first that is not as it was.
    void check() const;

  private:
    struct Watched {
        std::filesystem::path path;
        FileStamp seen;
    };
    std::vector<Watched> files_;
};

}  // namespace lockstep
