// SPDX-License-Identifier: Apache-2.0
// Photos, tables and texts as people have them, for `predict`.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/train/infer.hpp"

#include "data/pack_inputs.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

/// How `predict` reads a table.
struct RawTable {
    std::string row_names;  ///< column that names the rows; "": none
    TableText text;

    bool is_given() const {
        return !row_names.empty() || text.decimal.has_value() || !text.encoding.empty();
    }
};

/// A temporary data set that is made of an input as it is. Its folder lies beside the outputs,
/// which all ranks see, and ends with this object.
class RawInput {
  public:
    /// Collective. If `input` is a data set or HDF5, `settings` take it as it is. Else it is packed
    /// in its order, read as the training data of the run were: an image or a folder of them, a
    /// table (.csv, .tsv, with its columns found by their names), .npy or .txt; `settings` get the
    /// names of rows. Errors: E106 for an input of which a run cannot take its only field; those of
    /// reading and packing.
    RawInput(InferSettings& settings,
             const std::filesystem::path& input,
             const RawTable& table,
             const Communicator& ranks);
    ~RawInput();
    RawInput& operator=(RawInput&&) = delete;

  private:
    std::filesystem::path folder_;  // on rank 0; "": none was made
};

}  // namespace lockstep
