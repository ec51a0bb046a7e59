// SPDX-License-Identifier: Apache-2.0
/// @file
/// Advice for users whose data do not suit a training.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

/// How field number `field` becomes `numbers`, a Python expression of its array `x` and of NumPy,
/// `n`, without single quotes: of foreign files a command that writes them again.
std::string way_to_rewrite(const DatasetIndex& data, std::size_t field, const std::string& numbers);

/// How field number `field` gets another name, and `layout` behind it (":label" or "").
std::string way_to_rename(const DatasetIndex& data,
                          std::size_t field,
                          const std::string& name,
                          const std::string& layout = "");

/// "row 17 of '/x' in 'b.h5'": where sample number `sample` has its value of `field`.
std::string row_text(const DatasetIndex& data, const Field& field, std::uint64_t sample);

}  // namespace lockstep
