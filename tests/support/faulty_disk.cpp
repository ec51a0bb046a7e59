// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: a disk below a run's checkpoints that is slow, fails, hangs, or sees a rank's
// end. Meant are the calls that change something there ("/ckpt" and "/latest" in their path):
// mkdir, write, fsync, rename, remove, unlink and unlinkat; and reads of data sets.
//
//     FAULTY_DISK_RANK    rank of Open MPI that is meant; unset: all. Programs without one: rank 0
//     FAULTY_DISK_AT      "N NAME PART": the N-th call of NAME whose path has PART
//     FAULTY_DISK_BYTES   the call that writes this byte, of all that the rank writes
//     FAULTY_DISK_DOES    at that call: "kill" before it (with BYTES: once what comes before is
//                         written), "kill-after" it, "hang", or the number of the error with which
//                         it and all calls from then on end
//     FAULTY_DISK_VICTIM  rank that is killed; unset: the one that makes the call
//     FAULTY_DISK_PIDS    prefix of the files in which ranks find each other for that
//     FAULTY_DISK_MS      each of the calls takes so much longer
//     FAULTY_DISK_DIRECT  what becomes of a write around the page cache: "refuse" it, or do "half"
//     FAULTY_DISK_TRACE   prefix of files that get a line "NAME BYTES PATH" after each call, by
//     rank
//     FAULTY_DISK_READS   bytes a second of files that end in .h5 for all threads of a rank
//     FAULTY_MEMINFO      file that std::ifstream reads instead of /proc/meminfo
//     FAULTY_THREADS      while this file is there, no thread can be made
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

std::string_view variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

long number(const char* name, long otherwise = 0) {
    const std::string value(variable(name));
    return value.empty() ? otherwise : std::atol(value.c_str());
}

std::string own_rank() {
    const std::string_view rank = variable("OMPI_COMM_WORLD_RANK");
    return std::string(rank.empty() ? "0" : rank);
}

bool is_meant() {
    const std::string_view meant = variable("FAULTY_DISK_RANK");
    return meant.empty() || meant == own_rank();
}

bool is_watched(std::string_view path) {
    return path.find("/ckpt") != path.npos || path.find("/latest") != path.npos;
}

template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void put(const std::string& path, int how, const std::string& text) {
    static const auto real_write = next<ssize_t(int, const void*, size_t)>("write");
    const int file = ::open(path.c_str(), how | O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    [[maybe_unused]] const auto wrote = real_write(file, text.data(), text.size());
    ::close(file);
}

// A rank that is to be killed by another one says which process it is, before it writes anything.
struct Introduction {
    Introduction() {
        const std::string_view prefix = variable("FAULTY_DISK_PIDS");
        if (prefix.empty() || variable("OMPI_COMM_WORLD_RANK").empty()) return;
        put(std::string(prefix) + "." + own_rank(), O_TRUNC, std::to_string(::getpid()) + "\n");
    }
} introduction;

void end_victim() {
    const std::string victim(variable("FAULTY_DISK_VICTIM"));
    if (victim.empty() || victim == own_rank()) ::raise(SIGKILL);
    const std::string path = std::string(variable("FAULTY_DISK_PIDS")) + "." + victim;
    int pid = 0;
    if (std::FILE* const in = std::fopen(path.c_str(), "r")) {
        if (std::fscanf(in, "%d", &pid) != 1) pid = 0;
        std::fclose(in);
    }
    if (pid <= 1 || ::kill(pid, SIGKILL) != 0) ::abort();
}

// The call at which something happens.
class Moment {
  public:
    Moment() {
        const std::string at(variable("FAULTY_DISK_AT"));
        const auto first = at.find(' '), second = at.find(' ', first + 1);
        if (first == at.npos || second == at.npos) return;
        left_ = std::atoi(at.c_str());
        name_ = at.substr(first + 1, second - first - 1);
        part_ = at.substr(second + 1);
    }

    bool is_at(std::string_view name, std::string_view path) {
        if (name != name_ || path.find(part_) == path.npos) return false;
        return --left_ == 0;
    }

  private:
    std::string name_, part_;
    std::atomic<int> left_ = 0;
};

// What is to happen to one call.
struct Fate {
    bool is_now = false;
    std::size_t bytes = 0;  // to be written before
};

Fate fate_of(const char* name, std::string_view path, std::size_t bytes) {
    static Moment moment;
    static std::atomic<long> written{0};
    static const long last = number("FAULTY_DISK_BYTES", std::numeric_limits<long>::max());
    const auto count = static_cast<long>(bytes);
    const long before = written.fetch_add(count);
    const bool is_cut = before <= last && last < before + count;
    return {.is_now = moment.is_at(name, path) || is_cut,
            .bytes = static_cast<std::size_t>(is_cut ? last - before : 0)};
}

std::atomic<bool> is_broken{false};

void trace(const char* name, std::size_t bytes, std::string_view path) {
    static const std::string prefix(variable("FAULTY_DISK_TRACE"));
    if (prefix.empty()) return;
    put(prefix + "." + own_rank(),
        O_APPEND,
        std::string(name) + " " + std::to_string(bytes) + " " + std::string(path) + "\n");
}

// Does `call` with a number of bytes, `bytes` or fewer, unless a fault comes in its place.
template <class Call>
auto faulty(const char* name, std::string_view path, std::size_t bytes, const Call& call) {
    using Result = decltype(call(bytes));
    if (!is_watched(path)) return call(bytes);
    const Fate fate = is_meant() ? fate_of(name, path, bytes) : Fate();
    if (const long late_ms = number("FAULTY_DISK_MS"); late_ms > 0 && is_meant())
        std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
    const std::string_view does = variable("FAULTY_DISK_DOES");
    if (fate.is_now && does == "kill") {
        if (fate.bytes > 0) call(fate.bytes);
        end_victim();
    }
    while (fate.is_now && does == "hang") ::pause();
    if (fate.is_now && number("FAULTY_DISK_DOES") > 0) is_broken = true;
    if (is_broken) {
        errno = static_cast<int>(number("FAULTY_DISK_DOES"));
        return static_cast<Result>(-1);
    }
    const Result result = call(bytes);
    const int error = errno;
    if (result >= 0) trace(name, bytes, path);
    if (fate.is_now && does == "kill-after") end_victim();
    errno = error;
    return result;
}

template <class Function, class... Arguments>
int faulty_path(const char* name, std::string_view path, Arguments... arguments) {
    return faulty(name, path, 0, [&](std::size_t) { return next<Function>(name)(arguments...); });
}

// Does it, unless it goes around the page cache and is not to.
ssize_t written(int file, const void* bytes, size_t count) {
    static const auto real = next<ssize_t(int, const void*, size_t)>("write");
    const std::string_view does = variable("FAULTY_DISK_DIRECT");
    if (does.empty() || (::fcntl(file, F_GETFL) & O_DIRECT) == 0) return real(file, bytes, count);
    if (does == "half") return real(file, bytes, count / 2);
    errno = EINVAL;
    return -1;
}

std::string path_of(int file) {
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    char path[4096];
    const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
    return {path, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

// As late as from a device that serves one request after the other.
ssize_t late(int file, ssize_t got) {
    static const auto bytes_per_s = static_cast<double>(
        is_meant() && !variable("OMPI_COMM_WORLD_RANK").empty() ? number("FAULTY_DISK_READS") : 0);
    if (got <= 0 || bytes_per_s <= 0 || !path_of(file).ends_with(".h5")) return got;
    static std::mutex device;
    const std::scoped_lock lock(device);
    std::this_thread::sleep_for(
        std::chrono::duration<double>(static_cast<double>(got) / bytes_per_s));
    return got;
}

using Read = ssize_t(int, void*, size_t, off_t);
using ScatterRead = ssize_t(int, const iovec*, int, off_t);

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t count) {
    return faulty("write", path_of(file), count, [&](std::size_t part) {
        return written(file, bytes, part);
    });
}

int fsync(int file) {
    return faulty_path<int(int)>("fsync", path_of(file), file);
}

int rename(const char* from, const char* to) {
    return faulty_path<int(const char*, const char*)>("rename", to, from, to);
}

int mkdir(const char* path, mode_t mode) {
    return faulty_path<int(const char*, mode_t)>("mkdir", path, path, mode);
}

int unlink(const char* path) {
    return faulty_path<int(const char*)>("unlink", path, path);
}

int remove(const char* path) noexcept {
    return faulty_path<int(const char*)>("remove", path, path);
}

int unlinkat(int folder, const char* path, int flags) {
    return faulty_path<int(int, const char*, int)>(
        "unlinkat", folder == AT_FDCWD ? path : path_of(folder) + "/" + path, folder, path, flags);
}

ssize_t pread(int file, void* to, size_t bytes, off_t at) {
    return late(file, next<Read>("pread")(file, to, bytes, at));
}

ssize_t pread64(int file, void* to, size_t bytes, off_t at) {
    return late(file, next<Read>("pread64")(file, to, bytes, at));
}

ssize_t preadv(int file, const iovec* to, int count, off_t at) {
    return late(file, next<ScatterRead>("preadv")(file, to, count, at));
}

ssize_t preadv64(int file, const iovec* to, int count, off_t at) {
    return late(file, next<ScatterRead>("preadv64")(file, to, count, at));
}

int pthread_create(pthread_t* thread,
                   const pthread_attr_t* how,
                   void* (*run)(void*),
                   void* with) noexcept {
    using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    const char* const refusal = std::getenv("FAULTY_THREADS");
    if (refusal && ::access(refusal, F_OK) == 0) return EAGAIN;
    return next<Create>("pthread_create")(thread, how, run, with);
}

std::FILE* fopen64(const char* path, const char* mode) {
    static const auto real = next<std::FILE*(const char*, const char*)>("fopen64");
    const char* const shown = std::getenv("FAULTY_MEMINFO");
    return real(shown && path == std::string_view("/proc/meminfo") ? shown : path, mode);
}
}
