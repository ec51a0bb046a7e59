// SPDX-License-Identifier: Apache-2.0
// How the HTML report looks.
#pragma once

#include <string_view>

namespace lockstep {

/// Its style sheet: light and dark by the reader's system, and paper.
std::string_view report_style();

}  // namespace lockstep
