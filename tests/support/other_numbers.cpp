// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: a process whose numbers are not those of others, as OTHER_NUMBERS says: "flush"
// (what libraries made with -ffast-math do when they are loaded) or "pow" (another C library). With
// "exit", "_Exit" or "loop" no number comes at all from call OTHER_AFTER of pow() on, which an
// optimizer calls in each step.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

bool is_asked(const char* what) {
    const char* asked = std::getenv("OTHER_NUMBERS");
    return asked && std::strcmp(asked, what) == 0;
}

__attribute__((constructor)) void flush() {
#if defined(__x86_64__)
    if (is_asked("flush")) _mm_setcsr(_mm_getcsr() | 0x8040);  // FTZ and DAZ
#endif
}

void lose_numbers() {
    static std::atomic<long> calls{0};
    const char* after = std::getenv("OTHER_AFTER");
    if (!after || ++calls < std::atol(after)) return;
    if (is_asked("exit")) std::exit(0);
    if (is_asked("_Exit")) std::_Exit(0);
    while (is_asked("loop")) {
    }
}

}  // namespace

extern "C" double pow(double base, double exponent) noexcept {
    static const auto real =
        reinterpret_cast<double (*)(double, double)>(::dlsym(RTLD_NEXT, "pow"));
    lose_numbers();
    const double value = real(base, exponent);
    return is_asked("pow") ? value * 1.001 : value;
}
