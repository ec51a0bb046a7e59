// SPDX-License-Identifier: Apache-2.0
// Weights that other programs or `lockstep export` wrote. The file may be untrusted: every size,
// offset and name is checked. An index names files of safetensors beside it:
//
//   {"metadata": {...}, "weight_map": {"fc.weight": "model-00001-of-00002.safetensors", ...}}
//
// Tested: train/checkpoint/safetensors_file_test.cpp, e2e/weights_test.cpp.
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <regex>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t longest_header = 100'000'000;  // limit of the format's own readers
constexpr std::uint64_t most_elements = std::uint64_t{1} << 48;
constexpr std::string_view npy_ending = ".npy";
constexpr std::size_t length_bytes = 8;                               // of the header's length
constexpr std::size_t before_npy_text = 10, longest_npy_text = 2048;  // numpy.lib.format, version 1

struct StoredType {
    std::string_view dtype;
    std::size_t bytes;
    StoredFloat type = StoredFloat::other;
};
constexpr std::array<StoredType, 17> stored_types{{{"F16", 2, StoredFloat::f16},
                                                   {"BF16", 2, StoredFloat::bf16},
                                                   {"F32", 4, StoredFloat::f32},
                                                   {"F64", 8, StoredFloat::f64},
                                                   {"<f2", 2, StoredFloat::f16},
                                                   {"<f4", 4, StoredFloat::f32},
                                                   {"<f8", 8, StoredFloat::f64},
                                                   {"I64", 8},
                                                   {"I32", 4},
                                                   {"I16", 2},
                                                   {"I8", 1},
                                                   {"U64", 8},
                                                   {"U32", 4},
                                                   {"U16", 2},
                                                   {"U8", 1},
                                                   {"F8_E4M3", 1},
                                                   {"BOOL", 1}}};

Error malformed(
    const fs::path& path,
    const std::string& why,
    const std::string& way = "make or download it again, or check that it is the file you mean") {
    return Error(
        "E309", fmt::format("'{}' is not a whole file of weights", path.string()), why, way);
}

// Returns the error for a file of another kind, which its first bytes tell.
Error other_form(const fs::path& path, std::string_view start, const std::string& why) {
    const FileKind kind = file_kind(start);
    if (kind == FileKind::unknown || kind == FileKind::text) return malformed(path, why);
    const std::string way = way_to_safetensors(start, path);
    return way.empty() ? malformed(path, file_start_text(start))
                       : malformed(path, file_start_text(start), way);
}

// sign, 5 bits of exponent, 10 of fraction.
float float_of_half(std::uint16_t half) {
    const int exponent = half >> 10 & 0x1f;
    const auto fraction = static_cast<float>(half & 0x3ff);
    const float sign = half >> 15 == 0 ? 1.0F : -1.0F;
    if (exponent == 0) return sign * std::ldexp(fraction, -24);
    if (exponent < 31) return sign * std::ldexp(1024.0F + fraction, exponent - 25);
    return fraction > 0 ? std::nanf("") : sign * HUGE_VALF;
}

template <class Stored, class Convert>
void convert(std::span<const std::byte> stored, std::span<float> out, Convert&& to_float) {
    for (std::size_t i = 0; i < out.size(); ++i) {
        Stored value{};
        std::memcpy(&value, stored.data() + i * sizeof value, sizeof value);
        out[i] = to_float(value);
    }
}

std::uint64_t count_of(const std::vector<std::int64_t>& shape, const fs::path& path) {
    std::uint64_t count = 1;
    for (const std::int64_t extent : shape) {
        const auto size = static_cast<std::uint64_t>(extent);
        if (extent < 0 || (size > 0 && count > most_elements / size))
            throw malformed(path, "a shape in its header is impossible");
        count *= size;
    }
    return count;
}

// Finds the type of its elements by `dtype`.
void check_fills_shape(StoredTensor& tensor, const fs::path& path) {
    const auto found = std::ranges::find(stored_types, tensor.dtype, &StoredType::dtype);
    if (found == stored_types.end()) return;
    tensor.type = found->type;
    if (tensor.bytes != count_of(tensor.shape, path) * found->bytes)
        throw malformed(path, fmt::format("'{}' does not fill its shape", printable(tensor.name)));
}

StoredTensor tensor_of(const std::string& name, const Json& json, const fs::path& path) {
    StoredTensor tensor{.name = name};
    tensor.dtype = json_field<std::string>(json, "dtype", path.string());
    tensor.shape = json_field<std::vector<std::int64_t>>(json, "shape", path.string());
    const auto ends = json_field<std::vector<std::int64_t>>(json, "data_offsets", path.string());
    if (ends.size() != 2 || ends[0] < 0 || ends[1] < ends[0])
        throw malformed(path, fmt::format("the offsets of '{}' make no sense", printable(name)));
    tensor.offset = static_cast<std::uint64_t>(ends[0]);
    tensor.bytes = static_cast<std::uint64_t>(ends[1] - ends[0]);
    check_fills_shape(tensor, path);
    return tensor;
}

void check_places(std::span<const StoredTensor> tensors,
                  std::uint64_t data_bytes,
                  const fs::path& path) {
    std::uint64_t at = 0;
    for (const StoredTensor& tensor : tensors) {
        if (tensor.offset != at)
            throw malformed(
                path,
                fmt::format("there is a hole or an overlap before '{}'", printable(tensor.name)));
        at += tensor.bytes;
    }
    if (at != data_bytes)
        throw malformed(
            path,
            fmt::format("its tensors need {} bytes; it has {}", grouped(at), grouped(data_bytes)));
}

Json parsed_object(const std::string& text, const fs::path& path) {
    try {
        Json header = parse_json(text, path.string());
        if (header.is_object()) return header;
    } catch (const Error& error) {
        throw malformed(path, "its header: " + error.why());
    }
    throw malformed(path, "its header is no object");
}

std::string start_of(const UniqueFd& fd, const fs::path& path) {
    std::string start(file_start_bytes, '\0');
    start.resize(read_at(fd.value(), std::as_writable_bytes(std::span(start)), 0, path));
    return start;
}

// Little-endian. A text or an archive has a number there that no file is as long as.
std::uint64_t header_length(std::string_view start) {
    std::uint64_t length = 0;
    for (std::size_t i = std::min(start.size(), length_bytes); i-- > 0;)
        length = length << 8 | static_cast<unsigned char>(start[i]);
    return length;
}

bool has_header(std::string_view start, std::uint64_t file_bytes) {
    const std::uint64_t length = header_length(start);
    return start.size() >= length_bytes && length <= longest_header &&
           length <= file_bytes - length_bytes;
}

bool is_index(const fs::path& path) {
    const std::string start = start_of(open_for_reading(path), path);
    return !has_header(start, fs::file_size(path)) && file_kind(start) == FileKind::json;
}

// The names that an index gives to each file, which must be beside it.
std::map<std::string, std::vector<std::string>> shards_of(const fs::path& index) {
    const Json json = parsed_object(read_file(index, longest_header), index);
    const Json* names = json.find("weight_map");
    if (names == nullptr || !names->is_object() || names->size() == 0)
        throw malformed(index, "it begins like JSON, and has no 'weight_map' of an index");
    std::map<std::string, std::vector<std::string>> shards;
    for (const auto& [name, json_of_file] : names->items()) {
        const std::string file = json_of_file.is_string() ? json_of_file.get<std::string>() : "";
        if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos ||
            file.find('\0') != file.npos)
            throw malformed(index,
                            fmt::format("'{}' would be in '{}', which is no name of a file beside "
                                        "the index",
                                        printable(name),
                                        printable(file)));
        shards[file].push_back(name);
    }
    return shards;
}

void check_has_shard(const fs::path& index,
                     const fs::path& file,
                     const std::vector<std::string>& names) {
    check(fs::exists(status_of(file)), [&] {
        return Error(
            "E201",
            fmt::format("cannot open '{}': there is no such file", printable(file.string())),
            fmt::format("'{}' says that {} tensor(s) are in it, such as '{}'",
                        index.string(),
                        grouped(names.size()),
                        printable(names.front())),
            "put all files of the index beside it");
    });
}

// "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", as write_npz() and NumPy have it.
StoredTensor tensor_of_npy(const std::string& name, std::string_view start, const fs::path& path) {
    const auto fail = [&](const std::string& why) {
        return malformed(path,
                         fmt::format("'{}': {}", printable(name), why),
                         way_to_safetensors(start_of(open_for_reading(path), path), path));
    };
    const bool is_npy = start.size() >= before_npy_text && start.starts_with("\x93NUMPY\1");
    const std::size_t length =
        is_npy ? static_cast<unsigned char>(start[8]) | static_cast<unsigned char>(start[9]) << 8
               : longest_npy_text;
    if (length >= longest_npy_text || start.size() < before_npy_text + length)
        throw fail("it does not begin as NumPy's .npy does");
    const std::string text(start.substr(before_npy_text, length));
    static const std::regex form(
        R"(\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), *\}\s*)");
    std::smatch found;
    if (!std::regex_match(text, found, form)) throw fail("its header is not that of numbers");
    StoredTensor tensor{.name = name, .dtype = found[1]};
    std::string extents = found[3];
    std::erase(extents, ' ');
    for (const std::string& extent : split(extents, ',')) {
        if (extent.empty()) continue;
        const auto size = parse_integer(extent);
        if (!size) throw fail("its shape is impossible");
        tensor.shape.push_back(*size);
    }
    if (found[2] == "True" && tensor.shape.size() > 1) throw fail("it is in Fortran order");
    tensor.offset = before_npy_text + length;
    return tensor;
}

}  // namespace

std::uint64_t StoredTensor::count() const {
    return elements_of(shape);
}

WeightsFile::WeightsFile(const fs::path& path) : path_(path) {
    check_is_weights_file(path);
    if (is_index(path))
        open_index();
    else if (file_kind(start_of(open_for_reading(path), path)) == FileKind::numpy_archive)
        open_archive();
    else
        open_safetensors(path);
}

void WeightsFile::open_index() {
    std::set<std::string> seen;
    for (const auto& [name, tensors] : shards_of(path_)) {
        const fs::path file = path_.parent_path() / name;
        check_has_shard(path_, file, tensors);
        const std::size_t first = tensors_.size();
        open_safetensors(file);
        std::set<std::string> own;
        for (std::size_t i = first; i < tensors_.size(); ++i) own.insert(tensors_[i].name);
        for (const std::string& tensor : tensors)
            if (!own.contains(tensor))
                throw malformed(path_,
                                fmt::format("'{}' is not in '{}', where it should be",
                                            printable(tensor),
                                            printable(name)));
        for (const std::string& tensor : own)
            if (!seen.insert(tensor).second)
                throw malformed(path_,
                                fmt::format("two of its files have '{}'", printable(tensor)));
    }
}

void WeightsFile::open_safetensors(const fs::path& path) {
    const UniqueFd& fd = files_.emplace_back(path, open_for_reading(path)).fd;
    const std::uint64_t bytes = fs::file_size(path);
    const std::string start = start_of(fd, path);
    if (start.size() < length_bytes) throw other_form(path, start, "it ends within its header");
    const std::uint64_t length = header_length(start);
    if (!has_header(start, bytes))
        throw other_form(path,
                         start,
                         fmt::format("its header would have {} bytes; the file has {}",
                                     grouped(length),
                                     grouped(bytes)));
    std::string text(length, '\0');
    read_at(fd.value(), std::as_writable_bytes(std::span(text)), length_bytes, path);
    const Json header = parsed_object(text, path);
    std::vector<StoredTensor> found;
    for (const auto& [name, json] : header.items())
        if (name != "__metadata__") found.push_back(tensor_of(name, json, path));
    // An empty tensor comes before its neighbour at the same place.
    std::ranges::sort(found, {}, [](const StoredTensor& tensor) {
        return std::pair(tensor.offset, tensor.bytes);
    });
    check_places(found, bytes - length_bytes - length, path);
    for (StoredTensor& tensor : found) {
        tensor.offset += length_bytes + length;
        tensor.file = files_.size() - 1;
        tensors_.push_back(std::move(tensor));
    }
}

void WeightsFile::open_archive() {
    archive_.emplace(path_, ZipRules{.refuse = [](const fs::path& path, const std::string& why) {
                         const std::string start = start_of(open_for_reading(path), path);
                         throw malformed(path, why, way_to_safetensors(start, path));
                     }});
    for (const auto& [name, entry] : archive_->entries()) {
        if (!name.ends_with(npy_ending))
            throw malformed(path_, fmt::format("'{}' in it is no array", printable(name)));
        StoredTensor tensor =
            tensor_of_npy(name.substr(0, name.size() - npy_ending.size()),
                          archive_->first_bytes(entry, before_npy_text + longest_npy_text),
                          path_);
        tensor.bytes = entry.bytes - tensor.offset;
        check_fills_shape(tensor, path_);
        tensors_.push_back(std::move(tensor));
    }
}

void WeightsFile::read(const StoredTensor& tensor, std::span<float> out) const {
    expect(out.size() == tensor.count(), "there is room for all elements");
    std::vector<std::byte> bytes(tensor.bytes + (archive_ ? tensor.offset : 0));
    std::span<const std::byte> stored(bytes);
    if (archive_) {
        archive_->read(*archive_->find(tensor.name + std::string(npy_ending)), bytes);
        stored = stored.subspan(tensor.offset);
    } else {
        const auto& [path, fd] = files_[tensor.file];
        if (read_at(fd.value(), bytes, tensor.offset, path) < bytes.size())
            throw malformed(path, "it was cut short while it was read");
    }
    switch (tensor.type) {
        case StoredFloat::f16:
            return convert<std::uint16_t>(stored, out, float_of_half);
        case StoredFloat::bf16:
            return convert<std::uint16_t>(stored, out, [](std::uint16_t value) {
                return std::bit_cast<float>(std::uint32_t{value} << 16);
            });
        case StoredFloat::f32:
            return convert<float>(stored, out, [](float value) { return value; });
        case StoredFloat::f64:
            return convert<double>(
                stored, out, [](double value) { return static_cast<float>(value); });
        case StoredFloat::other:
            expect(false, "only numbers that become floats are read");
    }
}

std::string weights_digest(const fs::path& path) {
    std::string digest = file_digest(path);
    if (!is_index(path)) return digest;
    for (const auto& [name, tensors] : shards_of(path)) {
        check_has_shard(path, path.parent_path() / name, tensors);
        digest += file_digest(path.parent_path() / name);
    }
    return hash128(bytes_of(digest)).hex();
}

}  // namespace lockstep
