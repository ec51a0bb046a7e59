// SPDX-License-Identifier: Apache-2.0
// IDX and CIFAR: files of bytes whose records all have one size.
// Tested: data/pack/array_sources_test.cpp.
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <zlib.h>

namespace lockstep {
namespace {

constexpr const char* idx_kind = "a whole IDX file";

Error malformed_idx(const fs::path& path, const std::string& why, const std::string& fix = "") {
    return malformed_input(path, idx_kind, why, fix);
}

// A gzip file, expanded from its beginning. Move-only.
class Gzip {
  public:
    explicit Gzip(const fs::path& path) : path_(path) {
        UniqueFd fd = open_for_reading(path);
        file_ = gzdopen(fd.value(), "rb");
        check(file_ != nullptr, [&] { return system_error("open", path, ENOMEM); });
        fd.release();
        gzbuffer(file_, 256 * 1024);
    }
    ~Gzip() { gzclose(file_); }
    Gzip& operator=(Gzip&&) = delete;

    /// Fills `out` as far as there is content; returns the bytes read.
    std::size_t read(std::span<std::byte> out) {
        const int got = gzread(file_, out.data(), static_cast<unsigned>(out.size()));
        int code = Z_OK;
        const char* reason = gzerror(file_, &code);
        if (got < 0 && code == Z_ERRNO) throw system_error("read", path_, errno);
        if (got < 0) throw malformed_idx(path_, fmt::format("decompression fails: {}", reason));
        if (code == Z_BUF_ERROR) throw malformed_idx(path_, "the compressed file is cut short");
        return static_cast<std::size_t>(got);
    }

    /// Bytes of the compressed file that were used.
    std::uint64_t used() { return static_cast<std::uint64_t>(gzoffset(file_)); }

  private:
    fs::path path_;
    gzFile file_ = nullptr;
};

// An array of unsigned bytes in a file: its sizes, and where its content begins.
struct IdxArray {
    fs::path path;
    std::vector<std::uint64_t> size;
    std::shared_ptr<const InputFile> file;

    std::uint64_t offset() const { return 4 + 4 * size.size(); }
    std::uint64_t expected_bytes() const {
        std::uint64_t bytes = 1;
        for (const std::uint64_t extent : size) bytes *= extent;
        return bytes;
    }
};

std::uint32_t big_endian(std::span<const std::byte> bytes) {
    std::uint32_t value = 0;
    for (const std::byte byte : bytes.first(4))
        value = value << 8 | std::to_integer<std::uint32_t>(byte);
    return value;
}

// The sizes in a header of which `head` is what there is (all of it, if the file is long enough).
std::vector<std::uint64_t> parse_sizes(std::span<const std::byte> head, const fs::path& path) {
    if (head.size() < 4) throw malformed_idx(path, "it ends within its header");
    const std::uint32_t magic = big_endian(head), dimensions = magic & 0xff;
    if (magic >> 8 != 8 || dimensions < 1 || dimensions > 4)
        throw other_kind(path,
                         idx_kind,
                         fmt::format("it begins with {:08x}; unsigned bytes in 1 to 4 dimensions "
                                     "begin with 00000801 to 00000804",
                                     magic));
    if (head.size() < 4 + 4 * dimensions) throw malformed_idx(path, "it ends within its header");
    std::vector<std::uint64_t> sizes;
    std::uint64_t total = 1;
    for (std::uint32_t i = 1; i <= dimensions; ++i) {
        sizes.push_back(big_endian(head.subspan(4 * i)));
        if (sizes.back() == 0 || sizes.back() > (std::uint64_t{1} << 46) / total)
            throw malformed_idx(
                path, fmt::format("its sizes are impossible: {}", fmt::join(sizes, " x ")));
        total *= sizes.back();
    }
    return sizes;
}

constexpr std::size_t longest_idx_header = 20;

IdxArray plain_idx(const fs::path& path) {
    IdxArray array{path, {}, std::make_shared<const InputFile>(path)};
    std::array<std::byte, longest_idx_header> head{};
    const auto there = std::span(head).first(std::min(array.file->bytes(), longest_idx_header));
    array.file->read(0, there);
    array.size = parse_sizes(there, path);
    return array;
}

// Stops a little after what the header promises: a lying header costs nothing.
IdxArray gzip_idx(const fs::path& path, const SourceOptions& options) {
    Gzip input(path);
    Spool spool;
    const std::uint64_t whole = fs::file_size(path);
    IdxArray array{path, {}, {}};
    std::vector<std::byte> piece(std::size_t{1} << 20);
    for (std::uint64_t wanted = longest_idx_header; spool.bytes() < wanted;) {
        const std::size_t ask = std::min<std::uint64_t>(piece.size(), wanted - spool.bytes());
        const auto got = std::span(piece).first(input.read(std::span(piece).first(ask)));
        if (array.size.empty()) {
            array.size = parse_sizes(got, path);
            wanted = std::max<std::uint64_t>(wanted, array.offset() + array.expected_bytes() + 1);
        }
        spool.append(got);
        if (options.report) options.report(std::min(input.used(), whole), whole);
        if (got.size() < ask) break;
    }
    array.file = spool.finish();
    return array;
}

IdxArray read_idx(const fs::path& path, const SourceOptions& options) {
    const bool is_gzip = InputFile(path).begins_with("\x1f\x8b");
    IdxArray array = is_gzip ? gzip_idx(path, options) : plain_idx(path);
    const std::uint64_t expected = array.expected_bytes();
    const std::uint64_t bytes = array.file->bytes() - array.offset();
    if (bytes != expected)
        throw malformed_idx(path,
                            fmt::format("{} need {} bytes; it has {}{}",
                                        fmt::join(array.size, " x "),
                                        grouped(expected),
                                        bytes > expected ? "more than " : "",
                                        grouped(std::min(bytes, expected))));
    return array;
}

void check_shapes(const IdxArray& pixels, const IdxArray& classes) {
    const std::string swapped = pixels.size.size() == 1 && classes.size.size() > 2
                                    ? fmt::format("give --images {} --labels {}",
                                                  shell_word(classes.path.string()),
                                                  shell_word(pixels.path.string()))
                                    : "give a file of images, and the file of their labels";
    if (pixels.size.size() < 3)
        throw malformed_idx(
            pixels.path,
            fmt::format("it has {} dimensions; images have 3 or 4", pixels.size.size()),
            swapped);
    if (classes.size.size() != 1)
        throw malformed_idx(classes.path,
                            fmt::format("it has {} dimensions; labels have 1", classes.size.size()),
                            swapped);
    check(pixels.size[0] == classes.size[0],
          "E209",
          fmt::format("{} images but {} labels", grouped(pixels.size[0]), grouped(classes.size[0])),
          fmt::format("in '{}' and '{}'", pixels.path.string(), classes.path.string()),
          "give the two files of the same split");
}

Column column_of(const IdxArray& array, RowTransform transform) {
    const auto row = static_cast<std::size_t>(array.expected_bytes() / array.size[0]);
    return {{{array.file, array.offset(), array.size[0], row}}, row, std::move(transform)};
}

constexpr std::size_t pixel_bytes = 3 * 32 * 32;

// One byte before a record's pixels.
struct CifarLabel {
    std::string field;
    int classes = 0;
    std::string names_file;
};

// CIFAR-10 or -100: its labels in the order of a record, and which file has which split.
struct CifarKind {
    std::string name, folder;
    std::vector<CifarLabel> labels;
    std::vector<std::string> train, test;

    std::size_t record_bytes() const { return labels.size() + pixel_bytes; }
};

// Its authors give three versions; that for Python has the same names without an ending.
void check_is_binary(const CifarKind& kind, const fs::path& folder) {
    std::vector<std::string> pickles;
    for (const auto* names : {&kind.train, &kind.test})
        for (const std::string& name : *names) {
            if (fs::exists(folder / name)) return;
            const fs::path pickle = folder / fs::path(name).stem();
            if (fs::exists(pickle)) pickles.push_back(shell_word(pickle.string()));
        }
    check(pickles.empty(), [&] {
        return malformed_input(
            folder,
            fmt::format("the binary version of {}", kind.name),
            "it is the version for Python",
            fmt::format(
                "if you trust these files, write binary ones beside them: python3 -c 'import "
                "pickle,sys,numpy as n; [n.c_[n.array([d[k] for k in "
                "(b\"coarse_labels\",b\"fine_labels\",b\"labels\") if k in d],\"u1\").T,"
                "d[b\"data\"]].tofile(f+\".bin\") for f in sys.argv[1:] for d in "
                "[pickle.load(open(f,\"rb\"),encoding=\"bytes\")]]' {}",
                fmt::join(pickles, " ")));
    });
}

std::vector<fs::path> files_of(const CifarKind& kind,
                               const std::vector<fs::path>& inputs,
                               const std::string& split) {
    std::vector<fs::path> files;
    for (const fs::path& input : inputs) {
        if (!fs::is_directory(input)) {
            files.push_back(input);
            continue;
        }
        const fs::path folder = fs::is_directory(input / kind.folder) ? input / kind.folder : input;
        check_is_binary(kind, folder);
        for (const std::string& name : split == "test" ? kind.test : kind.train)
            files.push_back(folder / name);
    }
    return files;
}

// Names one per line; none if the file is missing or has another number of them.
std::vector<std::string> class_names(const fs::path& path, int classes) {
    if (!fs::exists(path)) return {};
    std::string text = read_file(path, 64 * 1024);
    std::ranges::replace(text, '\r', '\n');
    std::vector<std::string> names = split(text, '\n');
    std::erase(names, "");
    check(names.size() == static_cast<std::size_t>(classes), [&] {
        return malformed_input(path,
                               fmt::format("a list of {} class names", classes),
                               fmt::format("it has {} lines", names.size()));
    });
    return names;
}

void check_labels(const CifarKind& kind, const InputFile& file, std::uint64_t records) {
    const std::size_t most = std::max<std::size_t>((std::size_t{1} << 20) / kind.record_bytes(), 1);
    std::vector<unsigned char> piece;
    for (std::uint64_t first = 0; first < records; first += most) {
        const std::uint64_t count = std::min<std::uint64_t>(most, records - first);
        piece.resize(count * kind.record_bytes());
        file.read(first * kind.record_bytes(), std::as_writable_bytes(std::span(piece)));
        for (std::uint64_t i = 0; i < count; ++i)
            for (std::size_t l = 0; l < kind.labels.size(); ++l) {
                const int label = piece[i * kind.record_bytes() + l];
                if (label >= kind.labels[l].classes)
                    throw malformed_input(file.path(),
                                          fmt::format("a binary file of {}", kind.name),
                                          fmt::format("record {} has the {} {}; there are {}",
                                                      grouped(first + i),
                                                      kind.labels[l].field,
                                                      label,
                                                      kind.labels[l].classes));
            }
    }
}

FileRows records_of(const CifarKind& kind, const fs::path& path) {
    const auto file = std::make_shared<const InputFile>(path);
    const std::uint64_t records = file->bytes() / kind.record_bytes();
    check(records > 0 && file->bytes() % kind.record_bytes() == 0, [&] {
        return other_kind(path,
                          fmt::format("a binary file of {}", kind.name),
                          fmt::format("its {} bytes are no multiple of {}",
                                      grouped(file->bytes()),
                                      grouped(kind.record_bytes())));
    });
    check_labels(kind, *file, records);
    return {file, 0, records, kind.record_bytes()};
}

Column shifted(const std::vector<FileRows>& records, std::size_t by, std::size_t bytes) {
    Column column{records, bytes};
    for (FileRows& run : column.runs) run.offset += by;
    return column;
}

std::unique_ptr<RowSource> open_cifar(const CifarKind& kind,
                                      const std::vector<fs::path>& inputs,
                                      const std::string& split) {
    const std::vector<fs::path> files = files_of(kind, inputs, split);
    expect(!files.empty(), "there are inputs");
    std::vector<FileRows> records;
    for (const fs::path& path : files) records.push_back(records_of(kind, path));
    std::vector<Field> fields{{.name = "images", .shape = {3, 32, 32}, .layout = "CHW"}};
    std::vector<Column> columns{shifted(records, kind.labels.size(), pixel_bytes)};
    for (std::size_t l = kind.labels.size(); l-- > 0;) {
        const CifarLabel& label = kind.labels[l];
        fields.push_back(
            {.name = label.field,
             .type = ElementType::i64,
             .class_names = class_names(files[0].parent_path() / label.names_file, label.classes)});
        columns.push_back(shifted(records, l, 1));
        columns.back().transform = widening(ElementType::u8);
    }
    return std::make_unique<ColumnSource>(std::move(fields), std::move(columns));
}

}  // namespace

std::unique_ptr<RowSource> open_idx(const fs::path& images,
                                    const fs::path& labels,
                                    const SourceOptions& options,
                                    ImageLayout layout) {
    const IdxArray pixels = read_idx(images, options), classes = read_idx(labels, options);
    check_shapes(pixels, classes);
    const std::vector<std::int64_t> shape(pixels.size.begin() + 1, pixels.size.end());
    check_has_channels({"images", images.string()}, layout, pixels.size[0], shape, "");
    const ImageLayout usual = layout == ImageLayout::unstated ? ImageLayout::chw : layout;
    FieldPlan plan = plan_field("images", ElementType::u8, shape, usual, images);
    return std::make_unique<ColumnSource>(
        std::vector<Field>{std::move(plan.field), {.name = "labels", .type = ElementType::i64}},
        std::vector<Column>{column_of(pixels, std::move(plan.transform)),
                            column_of(classes, widening(ElementType::u8))});
}

std::unique_ptr<RowSource> open_cifar10(const std::vector<fs::path>& inputs,
                                        const std::string& split) {
    return open_cifar({.name = "CIFAR-10",
                       .folder = "cifar-10-batches-bin",
                       .labels = {{"labels", 10, "batches.meta.txt"}},
                       .train = {"data_batch_1.bin",
                                 "data_batch_2.bin",
                                 "data_batch_3.bin",
                                 "data_batch_4.bin",
                                 "data_batch_5.bin"},
                       .test = {"test_batch.bin"}},
                      inputs,
                      split);
}

std::unique_ptr<RowSource> open_cifar100(const std::vector<fs::path>& inputs,
                                         const std::string& split) {
    return open_cifar({.name = "CIFAR-100",
                       .folder = "cifar-100-binary",
                       .labels = {{"coarse_labels", 20, "coarse_label_names.txt"},
                                  {"labels", 100, "fine_label_names.txt"}},
                       .train = {"train.bin"},
                       .test = {"test.bin"}},
                      inputs,
                      split);
}

}  // namespace lockstep
