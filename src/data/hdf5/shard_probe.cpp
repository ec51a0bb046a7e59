// SPDX-License-Identifier: Apache-2.0

#include "shard_probe.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"

#include "format/index_columns.hpp"
#include "look.hpp"
#include "stored_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

using namespace std::string_view_literals;

constexpr auto hdf5_signature = "\x89HDF\r\n\x1a\n"sv;

// What stands before and behind the file's name in a command that makes data of it. `is_named`: the
// name stands there at all; `made` follows NAME at the end if `is_made`.
struct KnownWay {
    FileKind kind;
    std::string_view before, behind;
    bool is_named = true, is_made = false;
};
constexpr std::string_view as_folders =
    "give a folder of folders of images, one for each class: lockstep data pack --folder FOLDER "
    "--out NAME";
constexpr auto known_ways = std::to_array<KnownWay>({
    {FileKind::zip, "unpack it into a folder NAME: python3 -m zipfile -e ", " NAME"},
    {FileKind::numpy_archive, "unpack it into a folder NAME: python3 -m zipfile -e ", " NAME"},
    {FileKind::gzip, "expand it: gunzip <", " >NAME", true, true},
    {FileKind::zstd, "expand it: unzstd <", " >NAME", true, true},
    {FileKind::numpy, "make shards of it: lockstep data pack --npy values=", " --out NAME"},
    {FileKind::hdf5, "see what it has, and how to train on it: lockstep data inspect ", ""},
    {FileKind::idx,
     "make shards of it and of its labels: lockstep data pack --labels LABELS --out NAME --images ",
     ""},
    {FileKind::png, as_folders, "", false},
    {FileKind::jpeg, as_folders, "", false},
    {FileKind::lfs_pointer,
     "fetch what it stands for, in its repository: git lfs pull --include ",
     ""},
    {FileKind::netcdf_classic, "make HDF5 of it: nccopy -k nc4 ", " NAME.h5"},
});

// A command for the file, or "".
std::string way_of(std::string_view start, const fs::path& path, std::string_view made) {
    const std::string word = shell_word(path.string()), name = path.filename().string();
    const FileKind kind = file_kind(start);
    if (kind == FileKind::text && path.extension() == ".csv")
        return "make shards of it: lockstep data pack --csv " + word + " --out NAME";
    const bool is_tar = name.ends_with(".tgz") || name.find(".tar.") != name.npos;
    if (is_tar && kind == FileKind::gzip) return "unpack it: tar xzf " + word;
    const auto way = std::ranges::find(known_ways, kind, &KnownWay::kind);
    if (way == known_ways.end()) return "";
    return fmt::format(
        "{}{}{}{}", way->before, way->is_named ? word : "", way->behind, way->is_made ? made : "");
}

// Where the superblock may lie (HDF5 File Format Specification 3.0, II.A): at the beginning, or
// behind a user block, which others may fill. Nothing if it is at none of these places.
std::optional<std::uint64_t> superblock_offset(int file,
                                               std::uint64_t bytes,
                                               const fs::path& path) {
    std::array<char, hdf5_signature.size()> found{};
    for (std::uint64_t offset = 0; offset < bytes; offset = offset == 0 ? 512 : 2 * offset) {
        const std::size_t got =
            read_at(file, std::as_writable_bytes(std::span(found)), offset, path);
        if (std::string_view(found.data(), got) == hdf5_signature) return offset;
    }
    return {};
}

constexpr std::size_t version_at = hdf5_signature.size();
constexpr unsigned newest_superblock = 3;
constexpr std::size_t superblock_bytes = 64;  // or fewer, of any version

// The end of the file by its superblock (HDF5 File Format Specification 3.0, II.A), for 8-byte
// offsets; nothing for other kinds of superblock.
std::optional<std::uint64_t> end_by_superblock(std::string_view start) {
    const auto version = static_cast<unsigned char>(start[version_at]);
    const bool is_old = version <= 1;
    const std::size_t sizes = is_old ? 13 : 9, end = version == 0 ? 40 : version == 1 ? 44 : 28;
    if (version > newest_superblock || start[sizes] != 8) return {};
    std::uint64_t value = 0;
    std::memcpy(&value, start.data() + end, sizeof value);
    return value;
}

// Of what others wrote nobody can verify more.
Error cut_short(const fs::path& path, std::uint64_t bytes, std::uint64_t expected, bool is_packed) {
    return Error(
        "E204",
        fmt::format(
            "'{}' is cut short: {} of {} bytes", path.string(), grouped(bytes), grouped(expected)),
        "its writer or a copy of it was interrupted",
        is_packed ? "copy it again from its source, then run 'lockstep data verify'"
                  : "copy it again from its source");
}

// What one data set in a shard should be, and where errors about it belong.
struct Expected {
    const fs::path& path;
    const Manifest& manifest;
    const Shard& shard;
    std::uint32_t number;
};

Error wrong_shard(const Expected& expected, const std::string& why) {
    return Error("E208",
                 fmt::format("'{}' does not belong to data set '{}'",
                             expected.path.string(),
                             expected.manifest.name),
                 why,
                 "put back the shard that was packed with this manifest");
}

void check_number(const std::optional<std::uint64_t>& found,
                  const char* name,
                  std::uint64_t value,
                  const Expected& expected) {
    if (!found) throw wrong_shard(expected, fmt::format("it has no number '{}'", name));
    if (*found != value)
        throw wrong_shard(
            expected, fmt::format("its {} is {}, not {}", name, grouped(*found), grouped(value)));
}

void check_identity(const FileFacts& facts, const Expected& expected) {
    if (!facts.uuid) throw wrong_shard(expected, "it was not made by 'lockstep data pack'");
    if (*facts.uuid != expected.manifest.uuid)
        throw wrong_shard(expected, "it is a shard of another data set");
    check_number(facts.shard_index, "shard_index", expected.number, expected);
    check_number(facts.samples, "n_samples", expected.shard.samples, expected);
    check_number(facts.first_sample, "first_sample", expected.shard.first_sample, expected);
}

void check_shape(const DatasetFacts& facts, const Field& field, const Expected& expected) {
    check(facts.layout != StorageLayout::missing,
          "E207",
          fmt::format("'{}' has no field '{}'", expected.path.string(), field.name),
          "the manifest names it",
          "put back the shard that was packed with this manifest");
    std::vector<std::uint64_t> wanted{expected.shard.samples};
    wanted.insert(wanted.end(), field.shape.begin(), field.shape.end());
    if (facts.size != wanted)
        throw wrong_shard(expected,
                          fmt::format("field '{}' is [{}], not [{}]",
                                      field.name,
                                      fmt::join(facts.size, ", "),
                                      fmt::join(wanted, ", ")));
    if (facts.type != field.type)
        throw wrong_shard(
            expected, fmt::format("field '{}' is not {}", field.name, element_name(field.type)));
}

// 0 unless /index/<field> is a contiguous table of four numbers per block.
std::uint64_t index_offset_of(const DatasetFacts& table, std::size_t blocks) {
    const bool is_table = table.layout == StorageLayout::contiguous &&
                          table.size == std::vector<std::uint64_t>{blocks, 4} &&
                          table.offset != DatasetFacts::nowhere;
    return is_table ? table.offset : 0;
}

FileRequest request_for(const fs::path& path, const Manifest& manifest) {
    FileRequest request{.path = path};
    for (const Field& field : manifest.fields) {
        request.datasets.push_back("/data/" + field.name);
        request.datasets.push_back("/index/" + field.name);
    }
    return request;
}

ShardBlocks judged(const FileFacts& facts, const Expected& expected) {
    check_identity(facts, expected);
    ShardBlocks probed;
    for (std::size_t f = 0; f < expected.manifest.fields.size(); ++f) {
        const Field& field = expected.manifest.fields[f];
        const DatasetFacts& data = facts.datasets[2 * f];
        check_shape(data, field, expected);
        FoundBlocks found = blocks_of(data,
                                      {.first_sample = expected.shard.first_sample,
                                       .samples = expected.shard.samples,
                                       .row_bytes = field.bytes_per_sample(),
                                       .file_bytes = fs::file_size(expected.path),
                                       .shard = expected.number,
                                       .contiguous_rows = expected.manifest.block_rows},
                                      probed.forms);
        check(found.fault.empty(),
              "E212",
              fmt::format("field '{}' of '{}' is stored in a way that cannot be streamed",
                          field.name,
                          expected.path.string()),
              found.fault,
              "pack the data again, or undo what rewrote the shard");
        probed.tables.push_back(index_offset_of(facts.datasets[2 * f + 1], found.blocks.size()));
        probed.blocks.push_back(std::move(found.blocks));
    }
    return probed;
}

// A manifest may announce anything.
constexpr std::uint64_t most_reserved = std::uint64_t{1} << 24;

std::string rewritten(const Shard& shard) {
    return fmt::format(
        "shard '{}' was rewritten after it was packed: its blocks were found again, but they have "
        "no hashes, so damage to it will go unnoticed; restore it, or pack the data again",
        shard.name);
}

// By the index that was packed; nothing if the file is another one.
std::optional<ShardBlocks> blocks_as_packed(const fs::path& path,
                                            const Manifest& manifest,
                                            std::size_t number) {
    check_is_whole_hdf5(path, manifest.shards[number].bytes);
    if (fs::file_size(path) != manifest.shards[number].bytes) return {};
    ShardBlocks shard;
    for (std::size_t f = 0; f < manifest.fields.size(); ++f) {
        auto blocks = read_index_rows(path, manifest, number, f);
        if (!blocks) return {};
        shard.blocks.push_back(std::move(*blocks));
    }
    return shard;
}

}  // namespace

FileGuess guess_of_file(const fs::path& path, std::string_view made) {
    const UniqueFd fd = open_for_reading(path);
    std::array<char, file_start_bytes> buffer{};
    const std::size_t got = read_at(fd.value(), std::as_writable_bytes(std::span(buffer)), 0, path);
    const std::string_view start(buffer.data(), got);
    const std::string way = way_of(start, path, made);
    const FileKind kind = file_kind(start);
    const bool may_be_any = kind == FileKind::unknown || kind == FileKind::empty ||
                            kind == FileKind::text || kind == FileKind::zeros ||
                            kind == FileKind::json || kind == FileKind::pickle;
    return {!may_be_any,
            file_start_text(start),
            way.empty() ? "make or download it again, or check that it is the file you mean" : way};
}

bool is_hdf5(const fs::path& path) {
    const UniqueFd fd = open_for_reading(path);
    return superblock_offset(fd.value(), fs::file_size(path), path).has_value();
}

std::optional<unsigned> newer_superblock(const fs::path& path) {
    const UniqueFd fd = open_for_reading(path);
    const auto superblock = superblock_offset(fd.value(), fs::file_size(path), path);
    std::array<std::byte, 1> version{};
    if (!superblock || read_at(fd.value(), version, *superblock + version_at, path) == 0) return {};
    const auto number = std::to_integer<unsigned>(version[0]);
    return number > newest_superblock ? std::optional(number) : std::nullopt;
}

void check_is_whole_hdf5(const fs::path& path, std::uint64_t expected_bytes) {
    const UniqueFd fd = open_for_reading(path);
    const std::uint64_t bytes = fs::file_size(path);
    if (bytes == 0 && expected_bytes > 0) throw cut_short(path, 0, expected_bytes, true);
    const auto superblock = superblock_offset(fd.value(), bytes, path);
    std::array<char, file_start_bytes> buffer{};
    const std::size_t got = read_at(
        fd.value(), std::as_writable_bytes(std::span(buffer)), superblock.value_or(0), path);
    const std::string_view start(buffer.data(), got);
    check(superblock.has_value(), [&] {
        const std::string way = way_of(expected_bytes > 0 ? "" : start, path, ".h5");
        return Error("E203",
                     fmt::format("'{}' is not HDF5", path.string()),
                     file_start_text(start),
                     way.empty() ? "copy it again from its source, or give the right folder" : way);
    });
    if (got < superblock_bytes) throw cut_short(path, bytes, expected_bytes, expected_bytes > 0);
    const auto end = end_by_superblock(start);
    if (end ? bytes < *end : bytes < expected_bytes)
        throw cut_short(path, bytes, std::max(end.value_or(0), expected_bytes), expected_bytes > 0);
}

ShardBlocks probe_shard(const fs::path& path,
                        const Manifest& manifest,
                        std::size_t number,
                        Sandbox* sandbox) {
    const Expected expected{
        path, manifest, manifest.shards[number], static_cast<std::uint32_t>(number)};
    check_is_whole_hdf5(path, expected.shard.bytes);
    const FileRequest request = request_for(path, manifest);
    return judged(sandbox ? sandbox->look(request) : look_at_file(request), expected);
}

DatasetIndex DatasetIndex::open(const fs::path& folder) {
    DatasetIndex index = of_blocks(folder, read_manifest_text(folder), {});
    index.stored_.resize(index.fields().size());
    for (std::size_t f = 0; f < index.fields().size(); ++f) {
        std::uint64_t blocks = 0;
        for (const Shard& shard : index.shards()) blocks += shard.index[f].blocks;
        index.stored_[f].reserve(std::min(blocks, most_reserved));
    }
    Sandbox sandbox;  // whose child is only started if a shard is not what was packed
    for (std::size_t number = 0; number < index.shards().size(); ++number) {
        const fs::path path = path_beneath(folder, index.shards()[number].name);
        index.stamps_.push_back(file_stamp(path));
        auto shard = blocks_as_packed(path, index.manifest_, number);
        if (!shard) {
            shard = probe_shard(path, index.manifest_, number, &sandbox);
            index.warnings_.push_back(rewritten(index.shards()[number]));
        }
        for (std::size_t f = 0; f < shard->blocks.size(); ++f)
            index.append(f, shard->blocks[f], shard->forms);
    }
    index.check_blocks();
    for (const std::string& warning : index.warnings_) once(Level::warn, "{}", warning);
    return index;
}

}  // namespace lockstep
