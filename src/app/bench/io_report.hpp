// SPDX-License-Identifier: Apache-2.0
// What `lockstep bench io` found, as text for people.
#pragma once

#include "lockstep/data/measure_io.hpp"

#include <string>

namespace lockstep {

/// Before measuring: machine, what is done, and what the columns mean. Lines begin with "# ".
std::string io_header_text(const IoPlan& plan, const std::string& cpu_model);

/// A data set's rows, notes and verdicts.
std::string io_table_text(const std::string& name, const IoMeasurements& measured);

}  // namespace lockstep
