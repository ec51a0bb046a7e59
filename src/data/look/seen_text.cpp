// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "seen.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::string rows_text(std::uint64_t rows, std::uint64_t of) {
    if (rows == of) return fmt::format("{} rows", grouped(of));
    return fmt::format("{} of {} rows", grouped(rows), grouped(of));
}

std::string values_text(const SeenValues& values) {
    if (!values.fault.empty()) return printable(values.fault);
    const std::string range = range_text(values.summary);
    return values.rows == values.of ? range : range + " in " + rows_text(values.rows, values.of);
}

std::vector<std::string> parts_of(const LookedAt& data, const std::optional<SeenValues>& values) {
    std::vector<std::string> sizes;
    for (const std::uint64_t size : data.size) sizes.push_back(grouped(size));
    std::vector<std::string> parts{
        printable(data.name.substr(data.name.rfind('/') + 1)),
        data.type.empty() ? ""  // the library does not open it
                          : fmt::format("{} [{}]", printable(data.type), fmt::join(sizes, ", ")),
        data.storage};
    if (!data.obstacle.empty())
        parts.push_back("not streamed: " + printable(data.obstacle));
    else if (values)
        parts.push_back(values_text(*values));
    return parts;
}

std::string histogram_of(const LookedAt& data,
                         const std::optional<SeenValues>& values,
                         std::size_t columns) {
    if (!values || values->classes.empty()) return "";
    return fmt::format("\n{}: {} classes in {}\n{}",
                       printable(data.name),
                       grouped(values->classes.size()),
                       rows_text(values->counted_rows, values->of),
                       histogram_text(values->classes, columns));
}

std::string sheet_text(const std::optional<SeenSheet>& sheet) {
    if (!sheet) return "";
    return fmt::format("\n{}: {} of {} images\n",
                       printable(sheet->path.string()),
                       grouped(sheet->images),
                       grouped(sheet->of));
}

}  // namespace

std::string tree_text(const Seen& seen, std::size_t columns) {
    const LookedAtPlace& place = seen.place;
    std::string tree = printable(place.title) + "\n", histograms, before;
    for (std::size_t i = 0; i < place.all.size(); ++i) {
        const LookedAt& data = place.all[i];
        const auto [groups, depth] = group_lines(data.name, before);
        tree += groups + wrapped(parts_of(data, seen.values[i]), 2 * depth, columns);
        histograms += histogram_of(data, seen.values[i], columns);
        before = data.name;
    }
    if (place.all.empty()) tree += "it has no data sets\n";
    if (place.is_cut_off) tree += "... and maybe more: these are the first\n";
    const std::string train = seen.train.line.empty()
                                  ? "\nno command to train on it: " + seen.train.obstacle + "\n"
                                  : "\ntrain on it:\n  " + printable(seen.train.line) + "\n";
    return tree + others_text(place.others) + histograms + sheet_text(seen.sheet) + train;
}

}  // namespace lockstep
