// SPDX-License-Identifier: Apache-2.0
// Tells a test where the build put lockstep-h5probe, which lies beside the programs.
#include <cstdlib>

namespace {
const int told = ::setenv("LOCKSTEP_H5PROBE", LOCKSTEP_BUILT_H5PROBE, 0);
}
