// SPDX-License-Identifier: Apache-2.0
// Data sets whose values lie in other files, row after row.
#pragma once

#include "file_facts.hpp"
#include "h5.hpp"

#include <vector>

namespace lockstep::h5 {

/// The whole data sets, or stretches of external files, that `dataset` with `facts` puts one after
/// the other, in the order of its rows: each with the file it lies in. Empty if it is made in any
/// other way, or if one of them is missing or of another type. Opens what the file names.
std::vector<DatasetFacts> parts_of(const Handle& dataset,
                                   const Handle& properties,
                                   const DatasetFacts& facts);

}  // namespace lockstep::h5
