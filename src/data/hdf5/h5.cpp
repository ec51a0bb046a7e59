// SPDX-License-Identifier: Apache-2.0
#include "h5.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

namespace lockstep::h5 {
namespace {

constexpr hsize_t large_object = 64 * 1024, page = 4096;

// Returns what a new object is described by, if the library makes it.
template <class Result>
Result prepared(Result result, const fs::path& what = "HDF5") {
    return checked(result, "E402", "prepare", what);
}

Handle space_of(const std::vector<hsize_t>& size) {
    const hid_t id = size.empty()
                         ? H5Screate(H5S_SCALAR)
                         : H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr);
    return {prepared(id, "HDF5 space"), H5Sclose};
}

void write_values(const Handle& object,
                  const char* name,
                  hid_t disk_type,
                  hid_t memory_type,
                  const std::vector<hsize_t>& size,
                  const void* values) {
    const Handle space = space_of(size);
    const Handle attribute(
        checked(H5Acreate2(object.id(), name, disk_type, space.id(), H5P_DEFAULT, H5P_DEFAULT),
                "E402",
                "create attribute",
                name),
        H5Aclose);
    checked(H5Awrite(attribute.id(), memory_type, values), "E402", "write attribute", name);
}

void set_filter(const Handle& properties, const DatasetShape& shape) {
    if (shape.codec == Codec::none) return;
    const auto filter = static_cast<H5Z_filter_t>(shape.codec);
    // Deflate's parameter is its level, as is zstd's; that of LZ4 is the block size, 0 = 1 GiB.
    const unsigned parameter = shape.codec == Codec::lz4 ? 0 : static_cast<unsigned>(shape.level);
    prepared(H5Pset_filter(properties.id(), filter, H5Z_FLAG_OPTIONAL, 1, &parameter),
             "HDF5 filter");
}

Handle creation_properties(const DatasetShape& shape) {
    Handle properties(prepared(H5Pcreate(H5P_DATASET_CREATE)), H5Pclose);
    const hid_t id = properties.id();
    prepared(H5Pset_obj_track_times(id, false));
    prepared(H5Pset_fill_time(id, H5D_FILL_TIME_NEVER));
    if (shape.chunk.empty()) {
        prepared(H5Pset_alloc_time(id, H5D_ALLOC_TIME_EARLY));
        return properties;
    }
    const int rank = static_cast<int>(shape.chunk.size());
    prepared(H5Pset_chunk(id, rank, shape.chunk.data()));
    set_filter(properties, shape);
    return properties;
}

herr_t refuse_to_leave(
    const char*, const char*, const char*, const char*, unsigned*, hid_t, void* was_refused) {
    if (was_refused) *static_cast<bool*>(was_refused) = true;
    return -1;
}

}  // namespace

Handle& Handle::operator=(Handle other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
}

void Handle::reset() {
    if (id_ >= 0 && close_) close_(id_);
    id_ = -1;
}

QuietErrors::QuietErrors() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

// Errors left on a thread's stack keep the library from closing at exit.
QuietErrors::~QuietErrors() {
    H5Eclear2(H5E_DEFAULT);
    H5Eset_auto2(H5E_DEFAULT, function_, data_);
}

std::string last_reasons() {
    std::vector<std::string> reasons;
    const auto collect = [](unsigned, const H5E_error2_t* record, void* out) -> herr_t {
        if (record->desc && *record->desc)
            static_cast<std::vector<std::string>*>(out)->emplace_back(record->desc);
        return 0;
    };
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &reasons);
    reasons.resize(std::min<std::size_t>(reasons.size(), 3));
    return fmt::format("{}", fmt::join(reasons, "; "));
}

Error failure(const char* code, const char* doing, const fs::path& path) {
    const std::string reasons = last_reasons();
    return Error(code,
                 fmt::format("cannot {} '{}'", doing, path.string()),
                 fmt::format("HDF5 says: {}", reasons.empty() ? "nothing more" : reasons));
}

Handle access_to_dataset(Links links, bool* was_refused) {
    Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
    if (links == Links::refused) H5Pset_elink_cb(access.id(), refuse_to_leave, was_refused);
    return access;
}

Handle create_file(const fs::path& path, Alignment alignment, int& error) {
    const QuietErrors quiet;
    const Handle access = writing_access(error);
    prepared(H5Pset_libver_bounds(access.id(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V110), path);
    if (alignment == Alignment::large_objects)
        prepared(H5Pset_alignment(access.id(), large_object, page), path);
    Handle file(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access.id()), H5Fclose);
    check(error == 0, [&] { return system_error("create", path, error); });
    checked(file.id(), "E401", "create", path);
    return file;
}

Handle open_for_probing(const fs::path& path) {
    const QuietErrors quiet;
    const Handle access = probing_access();
    return {checked(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), "E205", "open", path),
            H5Fclose};
}

std::string file_name(const Handle& object) {
    const ssize_t size = H5Fget_name(object.id(), nullptr, 0);
    std::string name(static_cast<std::size_t>(std::max<ssize_t>(size, 0)) + 1, '\0');
    H5Fget_name(object.id(), name.data(), name.size());
    name.pop_back();
    return name;
}

std::vector<hsize_t> extent_of(const Handle& dataset) {
    const Handle space(H5Dget_space(dataset.id()), H5Sclose);
    std::array<hsize_t, H5S_MAX_RANK> size{};
    const int rank = H5Sget_simple_extent_dims(space.id(), size.data(), nullptr);
    return {size.begin(), size.begin() + std::max(rank, 0)};
}

Handle text_type(std::size_t size) {
    Handle type(prepared(H5Tcopy(H5T_C_S1), "HDF5 type"), H5Tclose);
    prepared(H5Tset_size(type.id(), std::max<std::size_t>(size, 1)), "HDF5 type");
    prepared(H5Tset_cset(type.id(), H5T_CSET_UTF8), "HDF5 type");
    return type;
}

Handle create_group(const Handle& parent, const char* name, const fs::path& path) {
    const QuietErrors quiet;
    return {written(H5Gcreate2(parent.id(), name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), path),
            H5Gclose};
}

hid_t type_of(ElementType type) {
    const hid_t types[] = {
        H5T_STD_U8LE, H5T_STD_I32LE, H5T_STD_I64LE, H5T_IEEE_F32LE, H5T_IEEE_F64LE};
    return types[static_cast<std::size_t>(type)];
}

Handle create_dataset(const Handle& parent,
                      const std::string& name,
                      hid_t type,
                      const DatasetShape& shape,
                      const fs::path& path) {
    const QuietErrors quiet;
    const Handle space = space_of(shape.size);
    const Handle properties = creation_properties(shape);
    const hid_t id = H5Dcreate2(
        parent.id(), name.c_str(), type, space.id(), H5P_DEFAULT, properties.id(), H5P_DEFAULT);
    return {written(id, path), H5Dclose};
}

void write_attribute(const Handle& object, const char* name, const std::string& value) {
    const Handle type = text_type(value.size());
    write_values(object, name, type.id(), type.id(), {}, value.c_str());
}

void write_attribute(const Handle& object, const char* name, std::uint64_t value) {
    write_values(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, {}, &value);
}

void write_attribute(const Handle& object, const char* name, const std::vector<double>& values) {
    write_values(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {values.size()}, values.data());
}

void write_attribute(const Handle& object,
                     const char* name,
                     const std::vector<std::uint64_t>& values) {
    write_values(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, {values.size()}, values.data());
}

void write_attribute(const Handle& object,
                     const char* name,
                     const std::vector<std::string>& values) {
    const std::size_t longest = std::ranges::max(values, {}, &std::string::size).size();
    const std::size_t width = std::max<std::size_t>(longest, 1);
    std::string packed(width * values.size(), '\0');
    for (std::size_t i = 0; i < values.size(); ++i)
        packed.replace(i * width, values[i].size(), values[i]);
    const Handle type = text_type(width);
    write_values(object, name, type.id(), type.id(), {values.size()}, packed.data());
}

Attribute::Attribute(const Handle& object, const char* name)
    : is_there_(H5Aexists(object.id(), name) > 0) {
    if (!is_there_) return;
    attribute_ = {H5Aopen(object.id(), name, H5P_DEFAULT), H5Aclose};
    type_ = {H5Aget_type(attribute_.id()), H5Tclose};
    space_ = {H5Aget_space(attribute_.id()), H5Sclose};
}

std::size_t Attribute::count() const {
    const hssize_t points = H5Sget_simple_extent_npoints(space_.id());
    return points < 0 ? 0 : static_cast<std::size_t>(points);
}

std::optional<std::uint64_t> Attribute::whole_number() const {
    if (kind() != H5T_INTEGER || count() != 1) return {};
    const auto read = values<std::uint64_t>(H5T_NATIVE_UINT64);
    return read.empty() ? std::nullopt : std::optional(read[0]);
}

std::optional<std::string> Attribute::fixed_text(std::size_t most) const {
    const bool is_fixed =
        kind() == H5T_STRING && H5Tis_variable_str(type_.id()) == 0 && count() == 1;
    const std::size_t size = is_fixed ? H5Tget_size(type_.id()) : 0;
    if (size == 0 || size > most) return {};
    std::string value(size, '\0');
    if (H5Aread(attribute_.id(), type_.id(), value.data()) < 0) return {};
    value.resize(std::strlen(value.c_str()));
    return value;
}

std::optional<std::string> Attribute::variable_text(std::size_t most) const {
    if (kind() != H5T_STRING || H5Tis_variable_str(type_.id()) <= 0 || count() != 1) return {};
    char* found = nullptr;
    if (H5Aread(attribute_.id(), type_.id(), &found) < 0 || found == nullptr) return {};
    std::string value(found, ::strnlen(found, most));
    H5free_memory(found);
    return value;
}

}  // namespace lockstep::h5
