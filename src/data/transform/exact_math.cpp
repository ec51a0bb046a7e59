// SPDX-License-Identifier: Apache-2.0
#include "exact_math.hpp"

#include <cmath>

namespace lockstep {
namespace {

// ln 2 in two parts: multiples of the first by small whole numbers are exact.
constexpr double ln2_high = 0x1.62e42fefa0000p-1, ln2_low = 0x1.cf79abc9e3b3ap-40;

}  // namespace

CosineSine cosine_sine(double degrees) {
    // Taylor's series of an eighth of the angle (less than 0.8), then doubled three times.
    const double x = degrees * (3.14159265358979323846 / 180 / 8);
    const double square = x * x;
    double cosine = 1, sine = 1;
    for (int i = 18; i >= 2; i -= 2) {
        cosine = 1 - square / (i * (i - 1)) * cosine;
        sine = 1 - square / (i * (i + 1)) * sine;
    }
    sine *= x;
    for (int doubling = 0; doubling < 3; ++doubling) {
        const double twice = 2 * sine * cosine;
        cosine = 1 - 2 * sine * sine;
        sine = twice;
    }
    return {cosine, sine};
}

double exponential(double x) {
    if (x < -700) return 0;
    const int powers = static_cast<int>(x * 1.4426950408889634 - 0.5);
    const double rest = (x - powers * ln2_high) - powers * ln2_low;
    double sum = 1;
    for (int i = 16; i >= 1; --i) sum = 1 + rest / i * sum;
    return std::ldexp(sum, powers);
}

double logarithm(double x) {
    int power = 0;
    double mantissa = std::frexp(x, &power);
    if (mantissa < 0.70710678118654752) {
        mantissa *= 2;
        --power;
    }
    const double t = (mantissa - 1) / (mantissa + 1), square = t * t;
    double sum = 0;
    for (int i = 23; i >= 1; i -= 2) sum = 1.0 / i + square * sum;
    return 2 * t * sum + power * ln2_low + power * ln2_high;
}

}  // namespace lockstep
