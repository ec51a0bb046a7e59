// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: a disk below a run's checkpoints that is slow, fails, or sees a rank's end. Calls
// that write there (files and folders below "/ckpt", and "/latest") are counted in each process.
//
//     FAULTY_DISK_RANK   rank of Open MPI that is meant; unset: all
//     FAULTY_DISK_CALL   from this call on (1: the first) FAULTY_DISK_DOES; 0 counts only
//     FAULTY_DISK_DOES   "kill" or the number of an error
//     FAULTY_DISK_MS     each of the calls takes so much longer
//     FAULTY_DISK_COUNT  file that gets the number of calls so far, with ".RANK"
//     FAULTY_MEMINFO     file that std::ifstream reads instead of /proc/meminfo
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

std::string_view variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

int number(const char* name) {
    return std::atoi(std::string(variable(name)).c_str());
}

bool is_meant() {
    static const bool meant = [] {
        const std::string_view rank = variable("OMPI_COMM_WORLD_RANK");
        return !rank.empty() &&
               (variable("FAULTY_DISK_RANK").empty() || rank == variable("FAULTY_DISK_RANK"));
    }();
    return meant;
}

bool is_watched(std::string_view path) {
    return path.find("/ckpt") != path.npos || path.find("/latest") != path.npos;
}

bool is_watched(int file) {
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    char path[4096];
    const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
    return length > 0 && is_watched(std::string_view(path, static_cast<std::size_t>(length)));
}

std::atomic<int> calls{0};

// At each call, because a rank ends without destructors.
void tell(int count) {
    static const std::string file(variable("FAULTY_DISK_COUNT"));
    if (file.empty()) return;
    const std::string path = file + "." + std::string(variable("OMPI_COMM_WORLD_RANK"));
    if (std::FILE* const out = std::fopen(path.c_str(), "w")) {
        std::fprintf(out, "%d\n", count);
        std::fclose(out);
    }
}

// Returns the error that the call ends with; 0: it is done.
template <class Place>
int fault(const Place& place) {
    if (!is_meant() || !is_watched(place)) return 0;
    static const int first = number("FAULTY_DISK_CALL"), late_ms = number("FAULTY_DISK_MS");
    if (late_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
    const int call = ++calls;
    tell(call);
    if (call < first || first == 0) return 0;
    if (variable("FAULTY_DISK_DOES") == "kill") ::raise(SIGKILL);
    return number("FAULTY_DISK_DOES");
}

template <class Function, class Place, class... Arguments>
auto call(const char* name, const Place& place, Arguments... arguments) {
    static const auto next = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
    using Result = decltype(next(arguments...));
    if (const int error = fault(place); error != 0) {
        errno = error;
        return static_cast<Result>(-1);
    }
    return next(arguments...);
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t count) {
    return call<ssize_t(int, const void*, size_t)>("write", file, file, bytes, count);
}

int fsync(int file) {
    return call<int(int)>("fsync", file, file);
}

int rename(const char* from, const char* to) {
    return call<int(const char*, const char*)>("rename", std::string_view(to), from, to);
}

std::FILE* fopen64(const char* path, const char* mode) {
    static const auto next = reinterpret_cast<decltype(&fopen64)>(::dlsym(RTLD_NEXT, "fopen64"));
    const char* const shown = std::getenv("FAULTY_MEMINFO");
    return next(shown && path == std::string_view("/proc/meminfo") ? shown : path, mode);
}

int mkdir(const char* path, mode_t mode) {
    return call<int(const char*, mode_t)>("mkdir", std::string_view(path), path, mode);
}
}
