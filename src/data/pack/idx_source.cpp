// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/row_source.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <zlib.h>

namespace lockstep {
namespace {

Error malformed(const fs::path& path, const std::string& why) {
    return Error("E214",
                 fmt::format("'{}' is not a whole IDX file", path.string()),
                 why,
                 "download it again, or check that it is the file you mean");
}

// A file read through zlib, which hands plain files through as they are. Move-only.
class Input {
  public:
    explicit Input(const fs::path& path) : path_(path) {
        UniqueFd fd = open_for_reading(path);
        file_ = gzdopen(fd.value(), "rb");
        check(file_ != nullptr, [&] { return system_error("open", path, ENOMEM); });
        fd.release();
        gzbuffer(file_, 256 * 1024);
    }
    ~Input() { gzclose(file_); }
    Input(const Input&) = delete;
    Input& operator=(const Input&) = delete;

    /// Fills `out` as far as there is content; returns the bytes read.
    std::size_t read(std::span<std::byte> out) {
        std::size_t done = 0;
        while (done < out.size()) {
            const std::size_t ask = std::min<std::size_t>(out.size() - done, 1u << 30);
            const int got = gzread(file_, out.data() + done, static_cast<unsigned>(ask));
            if (got < 0) throw failure();
            if (got == 0) break;
            done += static_cast<std::size_t>(got);
        }
        check_for_truncated_gzip();
        return done;
    }

  private:
    Error failure() {
        int code = 0;
        const char* reason = gzerror(file_, &code);
        if (code == Z_ERRNO) return system_error("read", path_, errno);
        return malformed(path_, fmt::format("decompression fails: {}", reason));
    }
    void check_for_truncated_gzip() {
        int code = Z_OK;
        gzerror(file_, &code);
        if (code == Z_BUF_ERROR) throw malformed(path_, "the compressed file is cut short");
    }

    fs::path path_;
    gzFile file_ = nullptr;
};

// An array of unsigned bytes: its sizes and its content.
struct IdxArray {
    std::vector<std::uint64_t> size;
    std::vector<std::byte> bytes;
};

std::uint32_t big_endian(std::span<const std::byte, 4> bytes) {
    std::uint32_t value = 0;
    for (const std::byte byte : bytes) value = value << 8 | std::to_integer<std::uint32_t>(byte);
    return value;
}

std::uint32_t read_word(Input& input, const fs::path& path) {
    std::array<std::byte, 4> word{};
    if (input.read(word) < word.size()) throw malformed(path, "it ends within its header");
    return big_endian(word);
}

std::vector<std::uint64_t> read_sizes(Input& input, const fs::path& path) {
    const std::uint32_t magic = read_word(input, path);
    const std::uint32_t dimensions = magic & 0xff;
    if (magic >> 8 != 8 || dimensions < 1 || dimensions > 4)
        throw malformed(path,
                        fmt::format("it begins with {:08x}; unsigned bytes in 1 to 4 dimensions "
                                    "begin with 00000801 to 00000804",
                                    magic));
    std::vector<std::uint64_t> sizes;
    std::uint64_t total = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
        sizes.push_back(read_word(input, path));
        if (sizes.back() == 0 || sizes.back() > (std::uint64_t{1} << 46) / total)
            throw malformed(path,
                            fmt::format("its sizes are impossible: {}", fmt::join(sizes, " x ")));
        total *= sizes.back();
    }
    return sizes;
}

// Grows with what is really there, so that a lying header costs no memory.
std::vector<std::byte> read_content(Input& input, std::uint64_t expected) {
    constexpr std::size_t piece = std::size_t{4} << 20;
    std::vector<std::byte> bytes;
    while (bytes.size() <= expected) {
        const std::size_t before = bytes.size();
        const std::size_t ask = std::min<std::uint64_t>(piece, expected + 1 - before);
        bytes.resize(before + ask);
        const std::size_t got = input.read(std::span(bytes).subspan(before));
        bytes.resize(before + got);
        if (got < ask) break;
    }
    return bytes;
}

IdxArray read_idx(const fs::path& path) {
    Input input(path);
    IdxArray array{read_sizes(input, path), {}};
    std::uint64_t expected = 1;
    for (const std::uint64_t size : array.size) expected *= size;
    array.bytes = read_content(input, expected);
    if (array.bytes.size() != expected)
        throw malformed(
            path,
            fmt::format("{} need {} bytes; it has {}{}",
                        fmt::join(array.size, " x "),
                        grouped(expected),
                        array.bytes.size() > expected ? "more than " : "",
                        grouped(std::min<std::uint64_t>(array.bytes.size(), expected))));
    return array;
}

class IdxSource : public RowSource {
  public:
    IdxSource(const fs::path& images, const fs::path& labels) {
        IdxArray pixels = read_idx(images), classes = read_idx(labels);
        check_shapes(images, pixels, labels, classes);
        describe(pixels.size);
        images_ = std::move(pixels.bytes);
        labels_.resize(classes.bytes.size());
        std::ranges::transform(classes.bytes, labels_.begin(), [](std::byte label) {
            return std::to_integer<std::int64_t>(label);
        });
    }

    std::uint64_t samples() const override { return labels_.size(); }
    const std::vector<Field>& fields() const override { return fields_; }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        const auto all = field == 1 ? std::as_bytes(std::span(labels_)) : std::span(images_);
        std::ranges::copy(all.subspan(row * out.size(), out.size()), out.begin());
    }

    Hash128 fingerprint() const override {
        Hasher128 hasher;
        hasher.add(images_);
        hasher.add(std::as_bytes(std::span(labels_)));
        return hasher.value();
    }

  private:
    static void check_shapes(const fs::path& images,
                             const IdxArray& pixels,
                             const fs::path& labels,
                             const IdxArray& classes) {
        if (pixels.size.size() < 3)
            throw malformed(images,
                            fmt::format("it has {} dimensions; images have 3 or 4 (are these the "
                                        "labels?)",
                                        pixels.size.size()));
        if (classes.size.size() != 1)
            throw malformed(labels,
                            fmt::format("it has {} dimensions; labels have 1 (are these the "
                                        "images?)",
                                        classes.size.size()));
        check(pixels.size[0] == classes.size[0], [&] {
            return Error(
                "E209",
                fmt::format(
                    "{} images but {} labels", grouped(pixels.size[0]), grouped(classes.size[0])),
                fmt::format("in '{}' and '{}'", images.string(), labels.string()),
                "give the two files of the same split");
        });
    }

    void describe(const std::vector<std::uint64_t>& size) {
        Field images, labels;
        images.name = "images";
        images.layout = "CHW";
        if (size.size() == 3) images.shape.push_back(1);
        for (std::size_t i = 1; i < size.size(); ++i)
            images.shape.push_back(static_cast<std::int64_t>(size[i]));
        labels.name = "labels";
        labels.type = ElementType::i64;
        fields_ = {std::move(images), std::move(labels)};
    }

    std::vector<Field> fields_;
    std::vector<std::byte> images_;
    std::vector<std::int64_t> labels_;
};

}  // namespace

std::unique_ptr<RowSource> open_idx(const std::filesystem::path& images,
                                    const std::filesystem::path& labels) {
    return std::make_unique<IdxSource>(images, labels);
}

}  // namespace lockstep
