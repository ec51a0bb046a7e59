// SPDX-License-Identifier: Apache-2.0
// What the log of one start's rank 0 tells, without reading all of a long one.
#pragma once

#include "lockstep/observe/run_status.hpp"

namespace lockstep {

/// The start `record.incarnation` by its log; began_unix_s 0 where there is none. A damaged line is
/// passed over. Of a log over half a mebibyte only both ends are read, and where a part of its
/// steps counts the place where that part ends: reports carry sums. Of one over 64 MiB no more is
/// read whatever it holds. `kept_until`: the last step that counts.
StartRecord read_start(const fs::path& log, std::int64_t incarnation, std::int64_t kept_until);

}  // namespace lockstep
