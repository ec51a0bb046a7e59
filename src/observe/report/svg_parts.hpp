// SPDX-License-Identifier: Apache-2.0
// Elements of SVG. Places are in units of the drawing's viewBox, which is as wide as the page has
// pixels for it; all texts are escaped.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Part of a drawing.
struct Box {
    double left, top, right, bottom;
};

/// Which end of a text is at its place.
enum class Anchor { start, middle, end };

/// Begins a drawing that screen readers call `title`. `id`: unique in the page.
std::string open_svg(double width,
                     double height,
                     const std::string& id,
                     const std::string& title,
                     const std::string& description);

std::string svg_text(
    double x, double y, Anchor anchor, std::string_view css, const std::string& text);
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view css);
std::string svg_rectangle(double x, double y, double width, double height, std::string_view css);

}  // namespace lockstep
