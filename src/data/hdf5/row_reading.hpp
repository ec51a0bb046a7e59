// SPDX-License-Identifier: Apache-2.0
// Reads rows through libhdf5, with any chunks and filters, converted to one of our types.
#pragma once

#include "file_facts.hpp"
#include "h5.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// Reads rows of data sets, and keeps the last one open. Filters may be plugins of libhdf5
/// (HDF5_PLUGIN_PATH). It is for the child process, because libhdf5 parses the whole file. One
/// thread.
class RowReading {
  public:
    /// Reads rows. Errors: E205, E207 if there is no such data set, E213 if it has other rows or
    /// the library cannot read them; `why` has the library's reason.
    std::vector<std::byte> read(const RowsRequest& request);

    /// Returns the texts of rows of a data set [n] or [n, 1]. Errors: as read(), also if it holds
    /// others.
    Texts read_texts(const RowsRequest& request);

  private:
    /// The selection of a read in the open data set, and in memory.
    struct Selection {
        h5::Handle there, here;
    };

    void open(const RowsRequest& request);
    Selection select(const RowsRequest& request) const;

    RowsRequest opened_;
    h5::Handle file_, dataset_;
    std::vector<hsize_t> size_;
};

}  // namespace lockstep
