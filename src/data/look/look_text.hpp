// SPDX-License-Identifier: Apache-2.0
// A first look as lines for a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Parts of a line with two spaces between them, `indent` spaces in front; what goes beyond
/// `columns` goes on in further lines, four spaces further in. Ends with a line break.
std::string wrapped(const std::vector<std::string>& parts, std::size_t indent, std::size_t columns);

/// The groups of `name`, "a/b/" of "/a/b/x", that `before` is not in, each as a line; and how
/// deep the data set itself is.
std::pair<std::string, std::size_t> group_lines(const std::string& name, const std::string& before);

/// A class and how many samples have it.
struct ClassCount {
    std::string name;
    std::uint64_t count = 0;
};

/// A bar for each class, the first twenty.
std::string histogram_text(const std::vector<ClassCount>& classes, std::size_t columns);

}  // namespace lockstep
