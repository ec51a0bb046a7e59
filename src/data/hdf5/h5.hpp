// SPDX-License-Identifier: Apache-2.0
// The HDF5 library behind owning handles; every failure becomes an Error with the library's reason.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hdf5.h>

namespace lockstep::h5 {

/// Owns an HDF5 identifier of any kind. Null state: -1. Move-only; the destructor never throws.
class Handle {
  public:
    using Close = herr_t (*)(hid_t);
    Handle() = default;
    Handle(hid_t id, Close close) : id_(id), close_(close) {}
    Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
    Handle& operator=(Handle other) noexcept;
    ~Handle() { reset(); }

    hid_t id() const { return id_; }
    explicit operator bool() const { return id_ >= 0; }
    void reset();

  private:
    hid_t id_ = -1;
    Close close_ = nullptr;
};

/// Keeps the library from printing its error stack while in scope.
class QuietErrors {
  public:
    QuietErrors();
    ~QuietErrors();
    QuietErrors& operator=(QuietErrors&&) = delete;

  private:
    H5E_auto2_t function_ = nullptr;
    void* data_ = nullptr;
};

/// Returns the library's reasons for its last failure on this thread, innermost first, in one line.
std::string last_reasons();

/// Returns an Error of `code` with last_reasons().
Error failure(const char* code, const char* doing, const fs::path& path);

/// Returns `result`, or throws failure() if it is negative.
template <class Result>
Result checked(Result result, const char* code, const char* doing, const fs::path& path) {
    if (result < 0) throw failure(code, doing, path);
    return result;
}

/// Alignment of a new file, which HDF5 1.8 and later can read. It has no times, so that equal
/// content gives equal bytes. `alignment` places large objects at multiples of 4 KiB (for data that
/// is not chunked). The library never learns of failed writes (driver.hpp): check `error`, an
/// errno, after each step and after the handle is gone; it must outlive the handle.
enum class Alignment { none, large_objects };
Handle create_file(const fs::path& path, Alignment alignment, int& error);

/// Opens an existing file, read-only, without locks, through a driver that notes the places of raw
/// data instead of reading them (driver.hpp). Errors: E205.
Handle open_for_probing(const fs::path& path);

/// Returns access properties for opening data sets. If links are refused, access stays within the
/// file, and `was_refused` becomes true if a link leads out of it. It must outlive what is opened.
Handle access_to_dataset(Links links, bool* was_refused = nullptr);

std::string file_name(const Handle& object);

/// Returns the size of a data set, by dimension; none for a single value and for nothing.
std::vector<hsize_t> extent_of(const Handle& dataset);

/// Returns a type of UTF-8 texts of `size` bytes.
Handle text_type(std::size_t size);

Handle create_group(const Handle& parent, const char* name, const fs::path& path);

/// Returns the library's type for `type` on disk.
hid_t type_of(ElementType type);

/// A fixed-size data set, never filled. `chunk` empty: contiguous and allocated at once; else
/// chunks of that shape, passed through the filter of `codec`, which this process need not have.
struct DatasetShape {
    std::vector<hsize_t> size, chunk;
    Codec codec = Codec::none;
    int level = 0;
};
Handle create_dataset(const Handle& parent,
                      const std::string& name,
                      hid_t type,
                      const DatasetShape& shape,
                      const fs::path& path);

void write_attribute(const Handle& object, const char* name, const std::string& value);
void write_attribute(const Handle& object, const char* name, std::uint64_t value);
void write_attribute(const Handle& object, const char* name, const std::vector<double>& values);
void write_attribute(const Handle& object,
                     const char* name,
                     const std::vector<std::uint64_t>& values);
void write_attribute(const Handle& object,
                     const char* name,
                     const std::vector<std::string>& values);

/// The attribute's value; nothing if it is missing or of another kind.
std::optional<std::string> read_text(const Handle& object, const char* name);
std::optional<std::uint64_t> read_number(const Handle& object, const char* name);

}  // namespace lockstep::h5
