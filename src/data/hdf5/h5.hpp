// SPDX-License-Identifier: Apache-2.0
// The HDF5 library behind owning handles; every failure becomes an Error with the library's reason.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/manifest.hpp"

#include "file_facts.hpp"

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

/// The same for E402: `path` cannot be written.
template <class Result>
Result written(Result result, const fs::path& path) {
    return checked(result, "E402", "write", path);
}

/// Alignment of a new file, which HDF5 1.8 and later can read. It has no times, so that equal
/// content gives equal bytes. `alignment` places large objects at multiples of 4 KiB (for data that
/// is not chunked). The library never learns of failed writes (driver.cpp): check `error`, an
/// errno, after each step and after the handle is gone; it must outlive the handle.
enum class Alignment { none, large_objects };
Handle create_file(const fs::path& path, Alignment alignment, int& error);

/// Opens an existing file, read-only, without locks, through a driver that notes the places of raw
/// data instead of reading them (driver.cpp). Errors: E205.
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

/// An attribute of an object, which need not be there.
class Attribute {
  public:
    Attribute(const Handle& object, const char* name);

    bool is_there() const { return is_there_; }
    H5T_class_t kind() const { return H5Tget_class(type_.id()); }
    bool has_sign() const { return H5Tget_sign(type_.id()) != H5T_SGN_NONE; }
    std::size_t count() const;

    /// Returns values as the library converts them; none if it cannot.
    template <class Value>
    std::vector<Value> values(hid_t type) const {
        std::vector<Value> read(count());
        if (H5Aread(attribute_.id(), type, read.data()) < 0) read.clear();
        return read;
    }

    /// The one value, a whole number or a text of fixed length of at most `most` bytes; nothing if
    /// it is missing or anything else.
    std::optional<std::uint64_t> whole_number() const;
    std::optional<std::string> fixed_text(std::size_t most) const;

    /// The one text of variable length, cut to `most` bytes; nothing if it is anything else.
    std::optional<std::string> variable_text(std::size_t most) const;

  private:
    bool is_there_;
    Handle attribute_, type_, space_;
};

// Two file drivers of ours (driver.cpp).

/// Returns file access properties for probing: read-only, without locks.
Handle probing_access();

/// Returns file access properties for writing a new file, without locks. The errno of the first
/// failure goes to `error`, which must outlive the file; nothing is written after it.
Handle writing_access(int& error);

/// Returns the number of the library's reads from files opened through probing_access(), for tests
/// of its growth with the number of chunks. A chunk that was found counts as one.
std::uint64_t reads();

/// The chunks of `dataset`, opened through probing_access(), whose size and chunk are those of
/// `facts`: the driver notes where the library would read each. Not H5Dchunk_iter, which 1.10.8
/// lacks and which forgets in some versions what comes before the superblock. A chunk that is
/// missing or impossible is a `fault`.
ChunkFacts find_chunks(const Handle& dataset, const DatasetFacts& facts);

}  // namespace lockstep::h5
