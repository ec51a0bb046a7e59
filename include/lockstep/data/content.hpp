// SPDX-License-Identifier: Apache-2.0
/// @file
/// A digest of the samples themselves: the manifest of foreign files covers only the files' times.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the bytes of all rows, decoded: the amount that content_hashes() of one part reads.
std::uint64_t content_bytes(const DatasetIndex& index);

/// Checks the memory that one thread needs to read, without the target rows: a block is expanded
/// whole. Errors: E106 if it exceeds `allowed`.
void check_reading_memory(const DatasetIndex& index, std::uint64_t allowed);

/// Returns XXH3-64 of the decoded rows of each stored block in part `part` of `parts` of the data,
/// field after field. Other blocks have 0, so that the results of all parts can be added. A block
/// that cannot be decoded counts as one without rows. Errors: of the machine only, E402 and
/// similar.
std::vector<std::int64_t> content_hashes(std::shared_ptr<const DatasetIndex> index,
                                         int part = 0,
                                         int parts = 1);

/// Returns XXH3-128 in hexadecimal of the `hashes` of all blocks and of other facts that decide
/// samples and their order: fields, numbers of rows. Names, times and storage of files do not
/// count.
std::string content_digest(const DatasetIndex& index, std::span<const std::int64_t> hashes);

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
        fs::path path;
        FileStamp seen;
    };
    std::vector<Watched> files_;
};

}  // namespace lockstep
