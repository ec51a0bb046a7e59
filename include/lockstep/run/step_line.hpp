// SPDX-License-Identifier: Apache-2.0
/// @file
/// The results of one step (or of several) as one line.
#pragma once

#include "lockstep/core/clock.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// Numbers of the steps since the last report; `step` is the last of them.
struct StepReport {
    std::int64_t epoch = 0, step = 0;
    double loss = 0, lr = 0, samples_per_s = 0;
    PhaseSeconds phases{};
    std::uint64_t memory_bytes = 0;  ///< resident memory; 0: unknown
};

/// Returns "step 1200 | loss 0.4183 | lr 4.0e-2 | 14.2k samples/s | data 1 % comm 4 % wait 2 % |
/// mem 1.2 GiB".
std::string step_line(const StepReport& report);

/// Returns "[#####---------------]  25 % eta 4m12s | `text`", cut to `columns`; below 30 columns
/// without the bar. `fraction` is clamped to [0, 1]; a negative `eta_s` is left out.
std::string live_line(double fraction, double eta_s, const std::string& text, std::size_t columns);

/// Returns the front of `line`, at most `columns` bytes, which no terminal shows wider; no UTF-8
/// character is cut.
std::string cut_to_columns(const std::string& line, std::size_t columns);

/// Returns three digits: "14.2k", "873", "1.31M".
std::string rate_text(double per_second);

/// Returns the width of the terminal on stdout, or of the controlling terminal if that has none; 80
/// if stdout is no terminal. It is read at each call, because it may have been resized.
std::size_t terminal_columns();

}  // namespace lockstep
