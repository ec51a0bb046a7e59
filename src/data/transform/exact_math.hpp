// SPDX-License-Identifier: Apache-2.0
// sin, cos, exp and log from additions and multiplications: the same bits on every machine. The C
// library does not promise that, because it chooses code by processor.
#pragma once

namespace lockstep {

struct CosineSine {
    double cosine, sine;
};

/// Returns cosine and sine of an angle in degrees, |degrees| <= 360; exact at 0.
CosineSine cosine_sine(double degrees);

/// Returns e^x for x <= 0; 0 below -700.
double exponential(double x);

/// Returns the natural logarithm of a normal x > 0.
double logarithm(double x);

}  // namespace lockstep
