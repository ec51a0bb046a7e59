// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/tensor_files.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/pages.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

// ZIP's fields have 32 bits, the number of files 16 (APPNOTE.TXT 6.3.10, 4.3.7 and 4.3.12).
constexpr std::uint64_t most_zip_bytes = 0xffff'ffff, most_zip_files = 0xffff;
constexpr std::string_view descriptor_mark = "PK\7\10";
constexpr std::size_t crc_in_row = 16, crc_in_header = 14;
constexpr std::uint16_t zip_version = 20, zip_first_day = 0x21;  // 1980-01-01

struct ElementForm {
    const char *safetensors, *numpy;  // "": none
    std::uint64_t bytes;
};

const ElementForm& form_of(ExportedElement element) {
    static constexpr std::array<ElementForm, 11> forms = {{{"F32", "<f4", 4},
                                                           {"I64", "<i8", 8},
                                                           {"F64", "<f8", 8},
                                                           {"F16", "<f2", 2},
                                                           {"BF16", "", 2},
                                                           {"I32", "<i4", 4},
                                                           {"I16", "<i2", 2},
                                                           {"I8", "|i1", 1},
                                                           {"U8", "|u1", 1},
                                                           {"BOOL", "|b1", 1},
                                                           {"C64", "<c8", 8}}};
    return forms.at(static_cast<std::size_t>(element));
}

class LittleEndian {
  public:
    LittleEndian& u16(std::uint64_t value) { return add(value, 2); }
    LittleEndian& u32(std::uint64_t value) { return add(value, 4); }
    LittleEndian& u64(std::uint64_t value) { return add(value, 8); }
    LittleEndian& text(const std::string& text) {
        bytes_ += text;
        return *this;
    }
    const std::string& bytes() const { return bytes_; }

  private:
    LittleEndian& add(std::uint64_t value, int count) {
        for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> (8 * i));
        return *this;
    }
    std::string bytes_;
};

std::string framed_header(const Json& header) {
    std::string text = header.dump();
    text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');  // data begins on a 64-byte line
    return LittleEndian().u64(text.size()).text(text).bytes();
}

// One file of the archive.
struct NewEntry {
    std::string name;
    std::uint32_t crc = 0;
    std::uint64_t bytes = 0, offset = 0;

    // Writes the common part of local header and directory; stored, not compressed.
    void describe(LittleEndian& out) const {
        out.u16(zip_version).u16(0).u16(0).u16(0).u16(zip_first_day);
        out.u32(crc).u32(bytes).u32(bytes).u16(name.size()).u16(0);
    }
};

std::string directory_of(std::span<const NewEntry> entries) {
    LittleEndian out;
    for (const NewEntry& entry : entries) {
        entry.describe(out.u32(0x02014b50).u16(zip_version));
        out.u16(0).u16(0).u16(0).u32(0).u32(entry.offset).text(entry.name);
    }
    return out.bytes();
}

void check_zip_fits(std::span<const ExportedTensor> tensors) {
    constexpr std::uint64_t overhead = 1024;  // bytes for each file, with its name twice
    std::uint64_t bytes = 0;
    for (const ExportedTensor& tensor : tensors) {
        bytes += tensor.bytes() + 2 * tensor.name.size() + overhead;
        check(*form_of(tensor.element).numpy != '\0', [&] {
            return Error("E106",
                         fmt::format("--format npz does not go with '{}'", tensor.name),
                         "it is bf16, which numpy has not",
                         "use --format safetensors");
        });
    }
    check(bytes <= most_zip_bytes && tensors.size() <= most_zip_files, [&] {
        return Error(
            "E106",
            fmt::format(
                "--format npz of {} tensors, {}", grouped(tensors.size()), bytes_text(bytes)),
            "a plain ZIP archive has up to 4 GiB and 65,535 files",
            "use --format safetensors");
    });
}

// What is hashed is still in the cache when it is written.
constexpr std::size_t cached_bytes = 256u << 10;

class NewTensorFile {
  public:
    NewTensorFile(const fs::path& path, FileAccess access)
        : path_(path), file_(open_for_writing(path, O_WRONLY | O_CREAT | O_EXCL)) {
        if (!file_) throw system_error("create", path, errno);
        if (access == FileAccess::direct && ::fcntl(file_.value(), F_SETFL, O_DIRECT) == 0)
            block_ = Pages(1u << 20);
    }

    void write(std::span<const std::byte> bytes) {
        if (block_.bytes().empty()) return write_all(file_.value(), bytes, path_);
        const auto room = block_.bytes().subspan(filled_);
        const auto now = bytes.first(std::min(bytes.size(), room.size()));
        std::memcpy(room.data(), now.data(), now.size());
        filled_ += now.size();
        if (now.size() == room.size()) pass_block_on();
        if (now.size() < bytes.size()) write(bytes.subspan(now.size()));
    }

    void flush() {
        if (filled_ > 0) pass_block_on();
        if (::fsync(file_.value()) != 0) throw system_error("flush", path_, errno);
    }

  private:
    // Around the cache go only whole blocks, until the system takes less than one, or refuses.
    void pass_block_on() {
        std::span<const std::byte> rest = block_.bytes().first(std::exchange(filled_, 0));
        if (rest.size() == block_.bytes().size()) {
            const ssize_t done = ::write(file_.value(), rest.data(), rest.size());
            rest = rest.subspan(static_cast<std::size_t>(std::max<ssize_t>(done, 0)));
            if (rest.empty()) return;
        }
        ::fcntl(file_.value(), F_SETFL, 0);
        write_all(file_.value(), rest, path_);
        block_ = {};
    }

    const fs::path& path_;
    UniqueFd file_;
    Pages block_;
    std::size_t filled_ = 0;
};

}  // namespace

std::uint64_t elements_of(const std::vector<std::int64_t>& shape) {
    std::uint64_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::uint64_t>(extent);
    return count;
}

NewFile::NewFile(const fs::path& path, Existing existing)
    : path_(path),
      partial_(path.parent_path() / fmt::format(".{}.partial", path.filename().string())) {
    check(existing == Existing::replaced || !fs::exists(path), [&] {
        return Error("E407",
                     fmt::format("'{}' exists", path.string()),
                     "nothing is overwritten",
                     "give another name, or remove it");
    });
    fd_ = open_for_writing(partial_, O_WRONLY | O_CREAT | O_TRUNC);
    if (!fd_) throw system_error("create", partial_, errno);
}

NewFile::~NewFile() {
    if (!is_finished_) ::unlink(partial_.c_str());
}

void NewFile::write(std::span<const std::byte> bytes) {
    write_all(fd_.value(), bytes, partial_);
    bytes_ += bytes.size();
    if (wrote_) wrote_(bytes_);
}

void NewFile::finish() {
    if (::fsync(fd_.value()) != 0) throw system_error("flush", partial_, errno);
    if (::rename(partial_.c_str(), path_.c_str()) != 0) throw system_error("create", path_, errno);
    is_finished_ = true;
    sync_path(path_.parent_path().empty() ? fs::path(".") : path_.parent_path());
}

std::string npy_header(ExportedElement element, const std::vector<std::int64_t>& shape) {
    std::string sizes;
    for (const std::int64_t size : shape) sizes += fmt::format("{},", size);
    std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   form_of(element).numpy,
                                   sizes);
    constexpr std::size_t fixed = 10, alignment = 64;
    text.append((alignment - (fixed + text.size() + 1) % alignment) % alignment, ' ').append("\n");
    LittleEndian out;
    out.text("\x93NUMPY").u16(1).u16(text.size()).text(text);
    return out.bytes();
}

std::uint64_t ExportedTensor::bytes() const {
    return elements_of(shape) * form_of(element).bytes;
}

void write_safetensors(NewFile& file, std::span<const ExportedTensor> tensors) {
    Json header;
    header["__metadata__"] = {{"format", "pt"}};
    std::uint64_t at = 0;
    for (const ExportedTensor& tensor : tensors) {
        const std::uint64_t end = at + tensor.bytes();
        header[tensor.name] = {{"dtype", form_of(tensor.element).safetensors},
                               {"shape", tensor.shape},
                               {"data_offsets", {at, end}}};
        at = end;
    }
    file.write(bytes_of(framed_header(header)));
    for (const ExportedTensor& tensor : tensors) file.write(tensor.values());
}

void write_npz(NewFile& file, std::span<const ExportedTensor> tensors) {
    check_zip_fits(tensors);
    std::vector<NewEntry> entries;
    for (const ExportedTensor& tensor : tensors) {
        const std::string header = npy_header(tensor.element, tensor.shape);
        const std::vector<std::byte> values = tensor.values();
        const NewEntry entry{.name = tensor.name + ".npy",
                             .crc = zip_crc(values, zip_crc(bytes_of(header), 0)),
                             .bytes = header.size() + values.size(),
                             .offset = file.bytes()};
        LittleEndian local;
        entry.describe(local.u32(0x04034b50));
        file.write(bytes_of(local.text(entry.name).bytes()));
        file.write(bytes_of(header));
        file.write(values);
        entries.push_back(entry);
    }
    const std::uint64_t begin = file.bytes();
    const std::string directory = directory_of(entries);
    file.write(bytes_of(directory));
    LittleEndian end;
    end.u32(0x06054b50).u16(0).u16(0).u16(entries.size()).u16(entries.size());
    end.u32(directory.size()).u32(begin).u16(0);
    file.write(bytes_of(end.bytes()));
}

void copy_zip(const ZipFile& archive,
              const std::map<std::uint64_t, ReplacedEntry>& replaced,
              NewFile& out) {
    constexpr std::uint64_t most_at_once = 1u << 20;
    std::uint64_t at = 0;
    const auto copy_to = [&](std::uint64_t end) {
        archive.require(at <= end, [&] { return "its entries overlap"; });
        while (at < end) {
            const std::uint64_t count = std::min(end - at, most_at_once);
            out.write(bytes_of(archive.bytes_at(at, count)));
            at += count;
        }
    };
    const auto put = [&](std::uint64_t place, std::span<const std::byte> bytes) {
        copy_to(place);
        out.write(bytes);
        at += bytes.size();
    };
    std::map<std::uint64_t, std::uint32_t> rows;
    for (const auto& [offset, one] : replaced) {
        const ZipEntry& entry = one.entry;
        const std::vector<std::byte> bytes = one.bytes();
        expect(bytes.size() == entry.bytes, "an entry keeps its length");
        const std::uint32_t crc = rows[entry.row + crc_in_row] = zip_crc(bytes);
        const auto crc_bytes = std::as_bytes(std::span(&crc, 1));
        if (!entry.has_descriptor) put(entry.local + crc_in_header, crc_bytes);
        put(offset, bytes);
        if (!entry.has_descriptor) continue;
        const bool has_mark = archive.bytes_at(at, descriptor_mark.size()) == descriptor_mark;
        put(at + (has_mark ? descriptor_mark.size() : 0), crc_bytes);
    }
    for (const auto& [place, crc] : rows) put(place, std::as_bytes(std::span(&crc, 1)));
    copy_to(archive.file_bytes());
}

std::string safetensors_header(std::span<const SafetensorsEntry> entries) {
    Json header;
    header["__metadata__"] = {{"format", "lockstep"}};
    std::uint64_t at = 0;
    for (const SafetensorsEntry& entry : entries) {
        const std::uint64_t end = at + elements_of(entry.shape) * sizeof(float);
        header[entry.name] = {
            {"dtype", "F32"}, {"shape", entry.shape}, {"data_offsets", {at, end}}};
        at = end;
    }
    return framed_header(header);
}

void write_safetensors(const fs::path& path,
                       std::span<SafetensorsEntry> entries,
                       const std::function<void(std::uint64_t)>& wrote,
                       FileAccess access) {
    NewTensorFile file(path, access);
    const std::string header = safetensors_header(entries);
    file.write(bytes_of(header));
    std::uint64_t at = header.size();
    for (SafetensorsEntry& entry : entries) {
        const auto bytes = std::as_bytes(entry.values);
        expect(entry.values.size() == elements_of(entry.shape), "values fill their shape");
        entry.offset = at;
        Hasher128 hasher;
        for (std::size_t begin = 0; begin < bytes.size(); begin += cached_bytes) {
            const auto part = bytes.subspan(begin, std::min(cached_bytes, bytes.size() - begin));
            hasher.add(part);
            file.write(part);
            at += part.size();
            if (wrote) wrote(at - header.size());
        }
        entry.hash = hasher.value();
    }
    file.flush();
}

}  // namespace lockstep
