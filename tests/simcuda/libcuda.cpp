// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1: that it is there, and its version, is all that is asked of the driver.
#include "simcuda/gpus.hpp"

extern "C" int cuDriverGetVersion(int* version) {
    *version = simcuda::driver_of_cuda;
    return 0;
}
