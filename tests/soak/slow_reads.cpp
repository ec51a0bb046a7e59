// SPDX-License-Identifier: Apache-2.0
// Slow storage under one rank. Preloaded (LD_PRELOAD) into a job of Open MPI, it lets the rank
// SLOW_READS_RANK have no more than SLOW_READS_BYTES_PER_S of files that end in .h5, whichever of
// its threads read them.
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

std::string_view variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

/// 0: this process is not the rank that is meant.
double bytes_per_s() {
    static const double rate = [] {
        const std::string_view rank = variable("OMPI_COMM_WORLD_RANK");
        if (rank.empty() || rank != variable("SLOW_READS_RANK")) return 0.0;
        return std::atof(std::string(variable("SLOW_READS_BYTES_PER_S")).c_str());
    }();
    return rate;
}

bool is_slow(int file) {
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    char path[4096];
    const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
    return length > 0 && std::string_view(path, static_cast<std::size_t>(length)).ends_with(".h5");
}

/// As a device does that serves one request after the other.
ssize_t late(int file, ssize_t got) {
    if (got <= 0 || bytes_per_s() <= 0) return got;
    const int error = errno;
    if (is_slow(file)) {
        static std::mutex device;
        const std::scoped_lock lock(device);
        std::this_thread::sleep_for(
            std::chrono::duration<double>(static_cast<double>(got) / bytes_per_s()));
    }
    errno = error;
    return got;
}

template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

using Read = ssize_t(int, void*, size_t, off_t);
using ScatterRead = ssize_t(int, const iovec*, int, off_t);

}  // namespace

extern "C" {

ssize_t pread(int file, void* to, size_t bytes, off_t at) {
    static Read* const real = next<Read>("pread");
    return late(file, real(file, to, bytes, at));
}

ssize_t pread64(int file, void* to, size_t bytes, off_t at) {
    static Read* const real = next<Read>("pread64");
    return late(file, real(file, to, bytes, at));
}

ssize_t preadv(int file, const iovec* to, int count, off_t at) {
    static ScatterRead* const real = next<ScatterRead>("preadv");
    return late(file, real(file, to, count, at));
}

ssize_t preadv64(int file, const iovec* to, int count, off_t at) {
    static ScatterRead* const real = next<ScatterRead>("preadv64");
    return late(file, real(file, to, count, at));
}
}
