// SPDX-License-Identifier: Apache-2.0
#include "report/svg_parts.hpp"

#include "report/html_parts.hpp"
#include "report/svg_axis.hpp"

#include <array>

#include <fmt/format.h>

namespace lockstep {

std::string open_svg(double width,
                     double height,
                     const std::string& id,
                     const std::string& title,
                     const std::string& description) {
    return fmt::format(
        "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{}-t {}-d\">"
        "<title id=\"{}-t\">{}</title><desc id=\"{}-d\">{}</desc>\n",
        svg_number(width),
        svg_number(height),
        id,
        id,
        id,
        html_text(title),
        id,
        html_text(description));
}

std::string svg_text(
    double x, double y, Anchor anchor, std::string_view css, const std::string& text) {
    constexpr std::array<std::string_view, 3> names{"start", "middle", "end"};
    return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" class=\"{}\">{}</text>",
                       svg_number(x),
                       svg_number(y),
                       names[static_cast<std::size_t>(anchor)],
                       css,
                       html_text(text));
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view css) {
    return fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>",
                       svg_number(x1),
                       svg_number(y1),
                       svg_number(x2),
                       svg_number(y2),
                       css);
}

std::string svg_rectangle(double x, double y, double width, double height, std::string_view css) {
    return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}\"/>",
                       svg_number(x),
                       svg_number(y),
                       svg_number(width),
                       svg_number(height),
                       css);
}

}  // namespace lockstep
