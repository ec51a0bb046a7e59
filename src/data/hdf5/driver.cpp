// SPDX-License-Identifier: Apache-2.0
// Two file drivers for libhdf5. Between it and the file stands this C interface, a table of
// functions that the library calls. It shows us what the library does not report, and hides
// failures that the library does not survive.
//
// Finding: HDF5 1.10.8 has no H5Dchunk_iter, and its chunk queries cost O(number of chunks) each.
// Noting the address of raw reads finds 20,000 chunks in 5 ms. Writing: after a failed write, the
// library cannot close the file any more and crashes at exit.
//
//     finding    H5Dread_chunk --> read(kind = raw) --> note offset and size, read nothing
//                              --> read(kind = metadata) --> pread
//     writing    H5Dwrite, H5Fclose --> write --> pwrite, until the first error; from then on
//                                                 "all is well", and nothing is written
//
// The address is returned through a thread-local variable: the callbacks have no argument of the
// caller's.
//
// What must never happen:
// - An exception passes through the library's C frames: read() catches what read_at() throws.
// - A failed write is forgotten: the library was told that it succeeded, so `error` is the only
//   trace, and whoever writes must look at it before he believes the file (shard_writer.cpp does,
//   twice).
// - Probing writes: its driver refuses.
// - `base` moves from the first place of DriverFile: the library has a pointer to it and no more.
//
// Tested: data/hdf5/sandbox_test.cpp (found chunks against the library's own answers; work per
// chunk), data/pack/pack_test.cpp (EndsInOrderWhenNothingMoreCanBeWritten: a full disk).

#include "lockstep/core/files.hpp"

#include "h5.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

namespace lockstep::h5 {
namespace {

// Where the library would have read raw data, while a caller asks for it: the library gives its
// callbacks no other way to return it.
struct RawRead {
    std::uint64_t offset = 0, bytes = 0;
    std::uint32_t skipped_filters = 0;  // of a chunk; bit i: filter i
};
thread_local std::optional<RawRead>* noting = nullptr;

// Addresses without memory behind them; a probe of larger chunks asks for the size of each first.
constexpr std::uint64_t room_at_once = std::uint64_t{1} << 30;

std::atomic<std::uint64_t> reads_done{0};

// The arguments of writing_access() for the driver, passed through the library.
struct WritingInfo {
    int* error = nullptr;
};

// `base` must come first: the library knows only that part.
struct DriverFile {
    H5FD_t base{};
    UniqueFd fd;
    haddr_t allocated = 0, size = 0;
    int* error = nullptr;  // null for probing
};

DriverFile& own(H5FD_t* file) {
    return *reinterpret_cast<DriverFile*>(file);
}
const DriverFile& own(const H5FD_t* file) {
    return *reinterpret_cast<const DriverFile*>(file);
}

H5FD_t* made_of(UniqueFd fd, int* error) {
    struct stat facts {};
    if (!fd || ::fstat(fd.value(), &facts) != 0) return nullptr;
    auto file = std::make_unique<DriverFile>();
    file->fd = std::move(fd);
    file->size = static_cast<haddr_t>(facts.st_size);
    file->error = error;
    return &file.release()->base;
}

H5FD_t* open_for_writing(const char* name, unsigned, hid_t access, haddr_t) {
    const auto* info = static_cast<const WritingInfo*>(H5Pget_driver_info(access));
    if (!info) return nullptr;
    UniqueFd fd(::open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd) *info->error = errno;
    return made_of(std::move(fd), info->error);
}

herr_t read(H5FD_t* file, H5FD_mem_t kind, hid_t, haddr_t offset, std::size_t bytes, void* out) {
    ++reads_done;
    if (kind == H5FD_MEM_DRAW && noting) {
        *noting = RawRead{offset, bytes};
        return 0;
    }
    try {
        const std::span buffer(static_cast<std::byte*>(out), bytes);
        const std::size_t got = read_at(own(file).fd.value(), buffer, offset, "HDF5 metadata");
        std::memset(buffer.data() + got, 0, bytes - got);
        return 0;
    } catch (...) {
        return -1;
    }
}

herr_t write(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t offset, std::size_t bytes, const void* data) {
    DriverFile& file = own(base);
    const std::span from(static_cast<const std::byte*>(data), bytes);
    if (*file.error == 0) *file.error = try_write_at(file.fd.value(), from, offset);
    file.size = std::max(file.size, offset + bytes);
    return 0;
}

herr_t set_size(H5FD_t* base, hid_t, hbool_t) {
    DriverFile& file = own(base);
    if (file.size == file.allocated) return 0;
    const auto size = static_cast<off_t>(file.allocated);
    if (*file.error == 0 && ::ftruncate(file.fd.value(), size) != 0) *file.error = errno;
    file.size = file.allocated;
    return 0;
}

H5FD_class_t common_class([[maybe_unused]] int value, const char* name) {
    H5FD_class_t driver{};
#if H5_VERSION_GE(1, 13, 0)
    driver.version = H5FD_CLASS_VERSION;
    driver.value = static_cast<H5FD_class_value_t>(value);
#endif
    driver.name = name;
    driver.maxaddr = haddr_t{1} << 62;
    driver.fc_degree = H5F_CLOSE_WEAK;
    driver.close = [](H5FD_t* file) -> herr_t {
        delete &own(file);
        return 0;
    };
    driver.get_eoa = [](const H5FD_t* file, H5FD_mem_t) { return own(file).allocated; };
    driver.set_eoa = [](H5FD_t* file, H5FD_mem_t, haddr_t address) -> herr_t {
        own(file).allocated = address;
        return 0;
    };
    driver.get_eof = [](const H5FD_t* file, H5FD_mem_t) { return own(file).size; };
    driver.read = read;
    const H5FD_mem_t kinds[] = H5FD_FLMAP_DICHOTOMY;
    std::memcpy(driver.fl_map, kinds, sizeof kinds);
    return driver;
}

H5FD_class_t probing_class() {
    H5FD_class_t driver = common_class(600, "lockstep_probe");
    driver.open = [](const char* name, unsigned, hid_t, haddr_t) {
        return made_of(UniqueFd(::open(name, O_RDONLY | O_CLOEXEC)), nullptr);
    };
    driver.query = [](const H5FD_t*, unsigned long* flags) -> herr_t {
        if (flags) *flags = 0;  // no sieving, no accumulation: every read reaches us as it is
        return 0;
    };
    driver.write = [](H5FD_t*, H5FD_mem_t, hid_t, haddr_t, std::size_t, const void*) -> herr_t {
        return -1;
    };
    return driver;
}

H5FD_class_t writing_class() {
    H5FD_class_t driver = common_class(601, "lockstep_write");
    driver.fapl_size = sizeof(WritingInfo);
    driver.open = open_for_writing;
    driver.query = [](const H5FD_t*, unsigned long* flags) -> herr_t {
        if (flags)
            *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
                     H5FD_FEAT_AGGREGATE_SMALLDATA;
        return 0;
    };
    driver.write = write;
    driver.truncate = set_size;
    return driver;
}

Handle access_through(const H5FD_class_t& driver, const void* info) {
    const QuietErrors quiet;
    const Handle registered(checked(H5FDregister(&driver), "E205", "register driver", "HDF5"),
                            H5FDunregister);
    Handle access(checked(H5Pcreate(H5P_FILE_ACCESS), "E205", "prepare", "HDF5"), H5Pclose);
    checked(H5Pset_driver(access.id(), registered.id(), info), "E205", "prepare", "HDF5");
    return access;  // keeps the driver registered
}

// The beginning of the chunk after the one at `start`: the last dimension runs fastest.
void advance(std::vector<hsize_t>& start, const DatasetFacts& facts) {
    for (std::size_t d = start.size(); d-- > 0;) {
        start[d] += facts.chunk[d];
        if (start[d] < facts.size[d]) return;
        start[d] = 0;
    }
}

// Filters may grow what they cannot compress, but not by more than this.
std::uint64_t most_stored(const DatasetFacts& facts) {
    std::uint64_t bytes = 2 * 8;
    for (const std::uint64_t size : facts.chunk) {
        if (size > (std::uint64_t{1} << 40) / bytes) return std::uint64_t{1} << 40;
        bytes *= size;
    }
    return bytes + 65536;
}

// Finds chunks of one data set, opened through probing_access(). One thread.
class ChunkProbe {
  public:
    // Every chunk is stored in at most `most_bytes`.
    ChunkProbe(const Handle& dataset, std::uint64_t most_bytes)
        : dataset_(dataset), most_bytes_(most_bytes) {
        if (most_bytes <= room_at_once) make_room(most_bytes);
    }

    // Returns the chunk that begins at element `start`; nothing if the library does not find it.
    std::optional<RawRead> find(const std::vector<hsize_t>& start) {
        if (most_bytes_ > room_at_once) {
            hsize_t stored = 0;
            if (H5Dget_chunk_storage_size(dataset_.id(), start.data(), &stored) < 0) return {};
            if (stored > most_bytes_) return {};
            if (stored > unused_bytes_) make_room(stored);
        }
        std::uint32_t skipped = 0;
        std::optional<RawRead> seen;
        noting = &seen;
#if H5_VERSION_GE(2, 0, 0)
        std::size_t room = unused_bytes_;
        const herr_t result = H5Dread_chunk2(
            dataset_.id(), H5P_DEFAULT, start.data(), &skipped, unused_.get(), &room);
#else
        const herr_t result =
            H5Dread_chunk(dataset_.id(), H5P_DEFAULT, start.data(), &skipped, unused_.get());
#endif
        noting = nullptr;
        if (result < 0 || !seen || seen->bytes == 0 || seen->bytes > most_bytes_) return {};
        seen->skipped_filters = skipped;
        return seen;
    }

  private:
    void make_room(std::uint64_t bytes) {
        unused_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
        unused_bytes_ = bytes;
    }

    const Handle& dataset_;
    std::uint64_t most_bytes_;
    // The driver does not write to it; the library requires it.
    std::unique_ptr<std::byte[]> unused_;
    std::uint64_t unused_bytes_ = 0;
};

}  // namespace

Handle probing_access() {
    static const H5FD_class_t driver = probing_class();
    return access_through(driver, nullptr);
}

Handle writing_access(int& error) {
    static const H5FD_class_t driver = writing_class();
    const WritingInfo info{&error};
    return access_through(driver, &info);
}

std::uint64_t reads() {
    return reads_done;
}

ChunkFacts find_chunks(const Handle& dataset, const DatasetFacts& facts) {
    const std::uint64_t count = facts.chunk_count();
    if (count > most_chunks) return {.fault = "it has too many chunks"};
    ChunkFacts chunks;
    ChunkProbe probe(dataset, most_stored(facts));
    std::vector<hsize_t> start(facts.size.size(), 0);
    for (std::uint64_t i = 0; i < count; ++i, advance(start, facts)) {
        const auto place = probe.find(start);
        if (!place)
            return {.fault = fmt::format("the chunk of row {} was never written", start[0])};
        chunks.offsets.push_back(place->offset);
        chunks.bytes.push_back(place->bytes);
        chunks.skipped.push_back(place->skipped_filters);
    }
    return chunks;
}

}  // namespace lockstep::h5
