// SPDX-License-Identifier: Apache-2.0
// Data sets whose values are in other files, row after row.
#pragma once

#include "file_facts.hpp"
#include "h5.hpp"

#include <vector>

namespace lockstep::h5 {

/// Returns the whole data sets, or stretches of external files, that `dataset` with `facts` joins
/// in the order of its rows, each with its file. Empty if it is built in any other way, or if a
/// part is missing or of another type. Opens the files that the file names.
std::vector<DatasetFacts> parts_of(const Handle& dataset,
                                   const Handle& properties,
                                   const DatasetFacts& facts);

}  // namespace lockstep::h5
