// SPDX-License-Identifier: Apache-2.0
// Labels that are not class numbers: texts, or one-hot rows.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/manifest.hpp"

#include "file_facts.hpp"
#include "sandbox.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Returns true if a data set may hold labels as texts: [n] or [n, 1].
bool is_column_of_texts(const DatasetFacts& facts);

/// The classes of all samples, in their order.
struct LabelColumn {
    std::vector<std::string> names;      ///< by class; none if they have none
    std::vector<std::uint64_t> counts;   ///< samples, by class
    std::vector<std::uint32_t> numbers;  ///< the class, by sample

    /// Returns u8 if that numbers all classes, else i32.
    ElementType type() const { return counts.size() <= 256 ? ElementType::u8 : ElementType::i32; }

    /// Returns the numbers as elements of type().
    std::vector<std::byte> bytes() const;
};

/// Classes named by texts: the distinct texts of all files, numbered in sorted order, byte by byte.
/// Bounded memory: a million classes, 64 MiB of names.
class TextLabels {
  public:
    /// Adds the first `rows` of a data set, read by libhdf5 in its child process. Errors: E210 for
    /// an empty or too long text and for too many, naming file and row; those of
    /// Sandbox::read_texts().
    void add(Sandbox& sandbox, const RowsRequest& from);

    LabelColumn finish();

  private:
    std::uint32_t number_of(std::string text, const RowsRequest& from, std::uint64_t row);

    std::map<std::string, std::uint32_t> met_;  // numbered in the order of appearance
    std::uint64_t name_bytes_ = 0;
    std::vector<std::uint32_t> numbers_;
};

/// Adds the classes of the next rows, of `type`, to `column`, whose counts are as many as a row has
/// numbers: one is 1, in the place of the class, and the others are 0. `first` is the number of the
/// first row in the file. Errors: E210 naming file and row.
void add_hot_rows(LabelColumn& column,
                  ElementType type,
                  std::span<const std::byte> rows,
                  const RowsRequest& from,
                  std::uint64_t first);

}  // namespace lockstep
