// SPDX-License-Identifier: Apache-2.0
/// @file
/// Advice for users whose data do not suit a training.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

/// Returns advice on replacing field number `field` by `numbers`: a Python expression of its array
/// `x` and of NumPy, `n`, without single quotes. For foreign files it is a command that writes them
/// again.
std::string way_to_rewrite(const DatasetIndex& data, std::size_t field, const std::string& numbers);

/// Returns advice on giving field number `field` another name, followed by `layout` (":label" or
/// "").
std::string way_to_rename(const DatasetIndex& data,
                          std::size_t field,
                          const std::string& name,
                          const std::string& layout = "");

/// Returns "row 17 of '/x' in 'b.h5'": the place of the value of `field` in sample number `sample`.
std::string row_text(const DatasetIndex& data, const Field& field, std::uint64_t sample);

}  // namespace lockstep
