// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/file_start.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

using namespace std::string_view_literals;

struct KnownStart {
    std::string_view bytes;
    FileKind kind;
};
constexpr auto known_starts = std::to_array<KnownStart>({
    {"PK\x03\x04"sv, FileKind::zip},
    {"\x80\x02"sv, FileKind::pickle},
    {"\x80\x03"sv, FileKind::pickle},
    {"\x80\x04"sv, FileKind::pickle},
    {"\x80\x05"sv, FileKind::pickle},
    {"{"sv, FileKind::json},
    {"\x89HDF\r\n\x1a\n"sv, FileKind::hdf5},
    {"\x1f\x8b"sv, FileKind::gzip},
    {"\x28\xb5\x2f\xfd"sv, FileKind::zstd},
    {"\x93NUMPY"sv, FileKind::numpy},
    {"\x89PNG"sv, FileKind::png},
    {"\xff\xd8\xff"sv, FileKind::jpeg},
    {"\x7f"
     "ELF"sv,
     FileKind::program},
    {"<!DOCTYPE"sv, FileKind::web_page},
    {"<!doctype"sv, FileKind::web_page},
    {"<html"sv, FileKind::web_page},
    {"version https://git-lfs"sv, FileKind::lfs_pointer},
    {"CDF"sv, FileKind::netcdf_classic},
    {"\0\0\x08\x03"sv, FileKind::idx},
    {"\0\0\0\0\0\0\0\0"sv, FileKind::zeros},
});

// Returns the first name in a zip archive, as far as it is in `start`: a header of 30 bytes has its
// length at byte 26 (PKWARE, APPNOTE.TXT, 4.3.7).
std::string_view first_name(std::string_view start) {
    constexpr std::size_t header = 30, length_at = 26;
    if (start.size() < header) return "";
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(start[at]); };
    return start.substr(header, byte(length_at) | std::size_t{byte(length_at + 1)} << 8);
}

// Tells archives apart by the first entry that each library writes.
FileKind archive_kind(std::string_view start) {
    const std::string_view name = first_name(start);
    if (name.ends_with(".npy")) return FileKind::numpy_archive;
    if (name.ends_with("/data.pkl")) return FileKind::torch_save;
    return name.find("/code/") != name.npos || name.ends_with("/data/0") ? FileKind::torch_script
                                                                         : FileKind::zip;
}

struct KindMeaning {
    FileKind kind;
    std::string_view meaning;
};
constexpr auto meanings = std::to_array<KindMeaning>({
    {FileKind::zip, "a zip archive"},
    {FileKind::numpy_archive, "NumPy's .npz, a zip archive of arrays"},
    {FileKind::torch_save, "a file of torch.save()"},
    {FileKind::torch_script, "a file of torch.jit.save()"},
    {FileKind::pickle, "Python's pickle, as torch.save() once wrote it"},
    {FileKind::json, "JSON"},
    {FileKind::hdf5, "HDF5"},
    {FileKind::gzip, "gzip"},
    {FileKind::zstd, "zstd"},
    {FileKind::numpy, "NumPy's .npy"},
    {FileKind::png, "a PNG image"},
    {FileKind::jpeg, "a JPEG image"},
    {FileKind::program, "a program"},
    {FileKind::web_page, "a web page"},
    {FileKind::lfs_pointer, "a Git LFS pointer"},
    {FileKind::netcdf_classic, "NetCDF classic"},
    {FileKind::idx, "IDX, as MNIST has it"},
    {FileKind::text, "text"},
    {FileKind::zeros, "zeros: it was never written"},
});

bool is_text(std::string_view start) {
    return std::ranges::all_of(start, [](unsigned char letter) {
        return letter >= 0x20 || letter == '\t' || letter == '\n' || letter == '\r';
    });
}

}  // namespace

FileKind file_kind(std::string_view start) {
    if (start.empty()) return FileKind::empty;
    const auto found = std::ranges::find_if(
        known_starts, [&](const KnownStart& known) { return start.starts_with(known.bytes); });
    if (found == known_starts.end()) return is_text(start) ? FileKind::text : FileKind::unknown;
    return found->kind == FileKind::zip ? archive_kind(start) : found->kind;
}

std::string file_start_text(std::string_view start) {
    if (start.empty()) return "it is empty";
    const auto known = std::ranges::find(meanings, file_kind(start), &KindMeaning::kind);
    if (known != meanings.end()) return fmt::format("it begins like {}", known->meaning);
    std::string hex;
    for (const char byte : start.substr(0, 8))
        hex += fmt::format("{}{:02x}", hex.empty() ? "" : " ", static_cast<unsigned char>(byte));
    return fmt::format("it begins with the bytes {}", hex);
}

}  // namespace lockstep
