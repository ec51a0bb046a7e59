// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/safetensors.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/pages.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace lockstep {
namespace {

// What is hashed is still in the cache when it is written.
constexpr std::size_t cached_bytes = 256u << 10;

class NewTensorFile {
  public:
    NewTensorFile(const fs::path& path, FileAccess access)
        : path_(path),
          file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)) {
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

std::string framed_header(const Json& header) {
    std::string text = header.dump();
    text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');  // data begins on a 64-byte line
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
    return length + text;
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
