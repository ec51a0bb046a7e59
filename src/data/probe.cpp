// SPDX-License-Identifier: Apache-2.0
#include "probe.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <cstring>
#include <memory>
#include <optional>

#include <sys/stat.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

namespace lockstep::h5 {
namespace {

// What the driver is asked to note; the library gives its callbacks no other way to reach us.
thread_local std::optional<RawRead>* noting = nullptr;

// `base` must come first: the library knows only that part.
struct ProbeFile {
    H5FD_t base{};
    UniqueFd fd;
    haddr_t allocated = 0, size = 0;
};

ProbeFile& probe(H5FD_t* file) {
    return *reinterpret_cast<ProbeFile*>(file);
}
const ProbeFile& probe(const H5FD_t* file) {
    return *reinterpret_cast<const ProbeFile*>(file);
}

H5FD_t* open_file(const char* name, unsigned, hid_t, haddr_t) {
    try {
        auto file = std::make_unique<ProbeFile>();
        file->fd = open_for_reading(name);
        struct stat facts {};
        if (::fstat(file->fd.value(), &facts) != 0) return nullptr;
        file->size = static_cast<haddr_t>(facts.st_size);
        return &file.release()->base;
    } catch (...) {
        return nullptr;
    }
}

herr_t close_file(H5FD_t* file) {
    delete &probe(file);
    return 0;
}

herr_t query(const H5FD_t*, unsigned long* flags) {
    if (flags) *flags = 0;  // no sieving, no accumulation: every read reaches us as it is
    return 0;
}

haddr_t allocated(const H5FD_t* file, H5FD_mem_t) {
    return probe(file).allocated;
}
herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t address) {
    probe(file).allocated = address;
    return 0;
}
haddr_t size(const H5FD_t* file, H5FD_mem_t) {
    return probe(file).size;
}

herr_t read(H5FD_t* file, H5FD_mem_t kind, hid_t, haddr_t offset, std::size_t bytes, void* out) {
    if (kind == H5FD_MEM_DRAW && noting) {
        *noting = RawRead{offset, bytes};
        return 0;
    }
    try {
        const std::span buffer(static_cast<std::byte*>(out), bytes);
        const std::size_t got = read_at(probe(file).fd.value(), buffer, offset, "HDF5 metadata");
        std::memset(buffer.data() + got, 0, bytes - got);
        return 0;
    } catch (...) {
        return -1;
    }
}

herr_t refuse_to_write(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, std::size_t, const void*) {
    return -1;
}

H5FD_class_t driver_class() {
    H5FD_class_t driver{};
#if H5_VERSION_GE(1, 13, 0)
    driver.version = H5FD_CLASS_VERSION;
    driver.value = static_cast<H5FD_class_value_t>(600);
#endif
    driver.name = "lockstep_probe";
    driver.maxaddr = haddr_t{1} << 62;
    driver.fc_degree = H5F_CLOSE_WEAK;
    driver.open = open_file;
    driver.close = close_file;
    driver.query = query;
    driver.get_eoa = allocated;
    driver.set_eoa = set_allocated;
    driver.get_eof = size;
    driver.read = read;
    driver.write = refuse_to_write;
    const H5FD_mem_t kinds[] = H5FD_FLMAP_DICHOTOMY;
    std::memcpy(driver.fl_map, kinds, sizeof kinds);
    return driver;
}

}  // namespace

Handle probing_access() {
    static const H5FD_class_t driver = driver_class();
    const Handle registered(checked(H5FDregister(&driver), "E205", "register driver", ""),
                            H5FDunregister);
    Handle access(checked(H5Pcreate(H5P_FILE_ACCESS), "E205", "prepare", ""), H5Pclose);
    checked(H5Pset_driver(access.id(), registered.id(), nullptr), "E205", "prepare", "");
    return access;  // which keeps the driver registered
}

bool find_chunk(
    const Handle& dataset, int rank, std::uint64_t row, std::uint64_t limit, ChunkPlace& place) {
    std::vector<hsize_t> start(static_cast<std::size_t>(rank), 0);
    start[0] = row;
    hsize_t stored = 0;
    if (H5Dget_chunk_storage_size(dataset.id(), start.data(), &stored) < 0) return false;
    if (stored == 0 || stored > limit) return false;
    // The driver does not write to the buffer; it is there because the library wants one.
    std::vector<std::byte> unused(stored);
    std::uint32_t skipped_filters = 0;
    std::optional<RawRead> seen;
    noting = &seen;
    const herr_t result =
        H5Dread_chunk(dataset.id(), H5P_DEFAULT, start.data(), &skipped_filters, unused.data());
    noting = nullptr;
    if (result < 0 || !seen) return false;
    place = {seen->offset, seen->bytes, skipped_filters == 0};
    return true;
}

}  // namespace lockstep::h5
