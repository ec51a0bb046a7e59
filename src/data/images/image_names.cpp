// SPDX-License-Identifier: Apache-2.0
#include "image_names.hpp"

#include "image.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

template <std::size_t N>
bool is_one_of(const std::string_view (&endings)[N], std::string_view ending) {
    return std::ranges::find(endings, ending) != std::end(endings);
}

bool is_tiff_ending(std::string_view ending) {
    return ending == ".tif" || ending == ".tiff";
}

}  // namespace

bool is_read_image(std::string_view ending) {
    constexpr std::string_view always[] = {".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".pnm"};
    return is_one_of(always, ending) || (is_tiff_ending(ending) && reads_tiff());
}

bool is_foreign_image(std::string_view ending) {
    constexpr std::string_view never[] = {".bmp", ".gif", ".heic", ".avif", ".jp2"};
    return is_one_of(never, ending) || !missing_package(ending).empty();
}

std::string_view missing_package(std::string_view ending) {
    if (is_tiff_ending(ending) && !reads_tiff()) return "libtiff-dev";
    return "";
}

std::string read_images_text() {
    std::vector<std::string_view> names{"PNG", "JPEG", "PPM", "PGM"};
    if (reads_tiff()) names.emplace_back("TIFF");
    const std::string_view last = names.back();
    names.pop_back();
    return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

}  // namespace lockstep
