// SPDX-License-Identifier: Apache-2.0

#include "column.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/data/manifest.hpp"

#include "format/labels.hpp"
#include "format/manifest_fields.hpp"
#include "hdf5/row_layout.hpp"
#include "hdf5/shard_probe.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

std::uint64_t rows_of(const Column& column) {
    std::uint64_t rows = 0;
    for (const FileRows& run : column.runs) rows += run.rows;
    return rows;
}

// Not every file system has nameless files; then the name goes at once.
UniqueFd nameless_file(const fs::path& folder) {
    UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (fd) return fd;
    std::string name = folder / ".lockstep-XXXXXX";
    fd = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
    const int reason = errno;
    check(static_cast<bool>(fd), [&] {
        return Error("E401",
                     fmt::format("cannot make a temporary file in '{}'", folder.string()),
                     system_error("create", folder, reason).what(),
                     "set TMPDIR to a folder with room for the input's rows");
    });
    ::unlink(name.c_str());
    return fd;
}

fs::path spool_folder() {
    std::error_code failed;
    const fs::path usual = fs::temp_directory_path(failed);
    return failed ? fs::path("/tmp") : usual;
}

// [pixels, channels] to [channels, pixels], elements of `bytes` bytes.
RowTransform channels_first(std::size_t channels, std::size_t bytes) {
    return [=](std::span<const std::byte> stored, std::span<std::byte> out) {
        const std::size_t pixels = stored.size() / channels / bytes;
        for (std::size_t p = 0; p < pixels; ++p)
            for (std::size_t c = 0; c < channels; ++c)
                std::memcpy(out.data() + (c * pixels + p) * bytes,
                            stored.data() + (p * channels + c) * bytes,
                            bytes);
    };
}

// Two or three dimensions of what has fewer or more; "" where nothing is likely.
std::string image_numbers(const std::vector<std::int64_t>& shape) {
    if (shape.size() > 3) {
        const auto kept = shape.end() - 2;
        const std::int64_t first =
            std::accumulate(shape.begin(), kept, std::int64_t{1}, std::multiplies<>());
        return fmt::format("x.reshape(len(x), {}, {})", first, fmt::join(kept, shape.end(), ", "));
    }
    const std::int64_t pixels = shape.size() == 1 ? shape[0] : 0;
    const auto side_of = [](std::int64_t square) {
        const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(square)));
        return side * side == square ? side : 0;
    };
    if (const std::int64_t side = side_of(pixels); side > 1)
        return fmt::format("x.reshape(len(x), {0}, {0})", side);
    const std::int64_t side = pixels % 3 == 0 ? side_of(pixels / 3) : 0;
    return side > 1 ? fmt::format("x.reshape(len(x), 3, {0}, {0})", side) : "";
}

std::string way_to_images(const std::vector<std::int64_t>& shape, const FieldWays& ways) {
    if (!ways.given) return "";
    const std::string numbers = image_numbers(shape), other = ways.given("features", false);
    if (numbers.empty()) return "call them otherwise: " + other;
    return (shape.size() > 3 ? "" : "call them otherwise, " + other + "; or ") +
           "give them such dimensions: " + ways.rewritten(numbers);
}

FieldPlan plan_images(Field field,
                      ImageLayout layout,
                      const fs::path& origin,
                      const FieldWays& ways) {
    auto& shape = field.shape;
    const bool is_flat = shape.size() == 2;
    if (is_flat) shape.insert(shape.begin(), 1);
    check(shape.size() == 3, [&] {
        return malformed_input(
            origin,
            "a file of images",
            fmt::format("a sample has {} dimensions; images have 2 or 3", field.shape.size()),
            way_to_images(field.shape, ways));
    });
    field.layout = "CHW";
    check(is_flat || layout != ImageLayout::unstated || !may_have_channels_last(shape),
          "E106",
          fmt::format("images of '{}' are {}, which looks like height x width x channels",
                      origin.string(),
                      fmt::join(shape, " x ")),
          "data sets have channels first; images are only converted with --layout hwc",
          "give --layout hwc, or --layout chw if the first number counts channels");
    if (is_flat || layout != ImageLayout::hwc) return {std::move(field), {}};
    std::rotate(shape.begin(), shape.begin() + 2, shape.end());
    const auto channels = static_cast<std::size_t>(shape[0]);
    RowTransform transform = channels_first(channels, element_bytes(field.type));
    return {std::move(field), std::move(transform)};
}

std::string way_to_labels(const Field& field, const FieldWays& ways) {
    if (!ways.given) return "";
    const std::size_t dimensions = field.shape.size();
    if (dimensions == 2)
        return "if each pixel has a class: " + ways.given("masks", !is_whole(field.type));
    if (dimensions > 2)
        return "give each sample one row: " + ways.rewritten("x.reshape(len(x), -1)");
    return fmt::format("to predict these numbers: {}; if they are classes: {}",
                       ways.given("targets", false),
                       ways.given(field.name, true));
}

FieldPlan plan_labels(Field field, const fs::path& origin, const FieldWays& ways) {
    const bool is_one = std::ranges::count(field.shape, 1) == std::ssize(field.shape);
    const bool is_several = field.shape.size() == 1 && !is_one;
    if (is_several) return {std::move(field), {}};
    check(is_one && is_whole(field.type), [&] {
        return malformed_input(
            origin,
            "a file of labels",
            fmt::format("a sample is {} [{}]; '{}' are one whole number each, or a number from 0 "
                        "to 1 for each class",
                        element_name(field.type),
                        fmt::join(field.shape, ", "),
                        field.name),
            way_to_labels(field, ways));
    });
    RowTransform transform = widening(field.type);
    field.shape.clear();
    field.type = ElementType::i64;
    return {std::move(field), std::move(transform)};
}

}  // namespace

Error malformed_input(const fs::path& path,
                      const std::string& kind,
                      const std::string& why,
                      const std::string& fix) {
    return Error(
        "E214",
        fmt::format("'{}' is not {}", path.string(), kind),
        why,
        fix.empty() ? "make or download it again, or check that it is the file you mean" : fix);
}

Error other_kind(const fs::path& path,
                 const std::string& kind,
                 const std::string& why,
                 std::string_view made) {
    const FileGuess found = guess_of_file(path, made);
    return malformed_input(path, kind, found.is_known ? found.meaning : why, found.way);
}

InputFile::InputFile(const fs::path& path) : InputFile(open_for_reading(path), path) {}

InputFile::InputFile(UniqueFd fd, fs::path path) : fd_(std::move(fd)), path_(std::move(path)) {
    struct stat facts {};
    if (::fstat(fd_.value(), &facts) != 0) throw system_error("look at", path_, errno);
    if (S_ISDIR(facts.st_mode)) throw system_error("read", path_, EISDIR);
    bytes_ = static_cast<std::uint64_t>(facts.st_size);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
    const std::size_t got = read_at(fd_.value(), out, offset, path_);
    check(got == out.size(), [&] {
        return malformed_input(path_,
                               "whole",
                               fmt::format("it ends at byte {}; {} more are needed there",
                                           grouped(offset + got),
                                           grouped(out.size() - got)));
    });
}

bool InputFile::begins_with(std::string_view bytes) const {
    std::string head(bytes.size(), '\0');
    if (bytes_ < head.size()) return false;
    read(0, std::as_writable_bytes(std::span(head)));
    return head == bytes;
}

ColumnSource::ColumnSource(std::vector<Field> fields, std::vector<Column> columns)
    : RowSource(rows_of(columns.at(0)), std::move(fields)), columns_(std::move(columns)) {
    expect(fields_.size() == columns_.size(), "each field has a column");
    for (const Column& column : columns_)
        expect(rows_of(column) == samples_, "each column has all samples");
}

void ColumnSource::read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const {
    const Column& column = columns_[field];
    const FileRows* run = column.runs.data();
    while (row >= run->rows) row -= (run++)->rows;
    const std::uint64_t offset = run->offset + row * run->stride;
    if (!column.transform) return run->file->read(offset, out);
    std::vector<std::byte> stored(column.stored_bytes);
    run->file->read(offset, stored);
    column.transform(stored, out);
}

void ColumnSource::add_run(std::size_t field, const FileRows& run, Hasher128& hasher) const {
    const Column& column = columns_[field];
    const std::uint64_t most = std::max<std::size_t>(piece_bytes / run.stride, 1);
    std::vector<std::byte> piece, row(fields_[field].bytes_per_sample());
    for (std::uint64_t first = 0; first < run.rows; first += most) {
        const std::uint64_t rows = std::min(most, run.rows - first);
        piece.resize((rows - 1) * run.stride + column.stored_bytes);
        run.file->read(run.offset + first * run.stride, piece);
        for (std::uint64_t i = 0; i < rows; ++i) {
            const auto stored = std::span(piece).subspan(i * run.stride, column.stored_bytes);
            if (column.transform) column.transform(stored, row);
            hasher.add(column.transform ? std::span<const std::byte>(row) : stored);
        }
    }
}

Hash128 ColumnSource::fingerprint() const {
    Hasher128 hasher;
    for (std::size_t field = 0; field < fields_.size(); ++field)
        for (const FileRows& run : columns_[field].runs) add_run(field, run, hasher);
    return hasher.value();
}

Spool::Spool()
    : path_(spool_folder() / "(temporary rows)"), fd_(nameless_file(path_.parent_path())) {
    buffer_.reserve(piece_bytes);
}

void Spool::append(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > piece_bytes) flush();
    if (bytes.size() >= piece_bytes) {
        write_all(fd_.value(), bytes, path_);
        written_ += bytes.size();
        return;
    }
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void Spool::flush() {
    write_all(fd_.value(), buffer_, path_);
    written_ += buffer_.size();
    buffer_.clear();
}

std::shared_ptr<const InputFile> Spool::finish(const fs::path& name) {
    flush();
    return std::make_shared<const InputFile>(std::move(fd_), name);
}

NamedInput parse_named_input(const std::string& option, std::string_view text) {
    const auto cut = text.find('=');
    const std::string_view name = text.substr(0, cut);
    const bool is_whole =
        cut != std::string_view::npos && is_field_name(name) && cut + 1 < text.size();
    check(is_whole,
          "E103",
          fmt::format("--{} is '{}'", option, text),
          "it must be NAME=PLACE, with a name of letters, digits, '_' and '-'",
          fmt::format(
              "for example --{} images={}", option, option == "npy" ? "images.npy" : "/x/images"));
    return {std::string(name), std::string(text.substr(cut + 1))};
}

RowTransform widening(ElementType from) {
    if (from == ElementType::i64) return {};
    return [from](std::span<const std::byte> stored, std::span<std::byte> out) {
        const std::int64_t wide = label_at(from, stored, 0);
        std::memcpy(out.data(), &wide, sizeof wide);
    };
}

FieldPlan plan_field(const std::string& name,
                     ElementType type,
                     std::vector<std::int64_t> shape,
                     ImageLayout layout,
                     const fs::path& origin,
                     const FieldWays& ways) {
    Field field{.name = name, .type = type, .shape = std::move(shape)};
    if (name == "images") return plan_images(std::move(field), layout, origin, ways);
    if (is_label_name(name)) return plan_labels(std::move(field), origin, ways);
    if (name == "masks" && field.shape.size() == 3 && is_whole(type)) {
        if (field.shape.back() == 1)
            field.shape.pop_back();
        else if (field.shape.front() == 1)
            field.shape.erase(field.shape.begin());
    }
    if (name == "masks" && field.shape.size() == 2) field.layout = "HW";
    return {std::move(field), {}};
}

void check_has_channels(const NamedInput& images,
                        ImageLayout layout,
                        std::uint64_t count,
                        const std::vector<std::int64_t>& shape,
                        const std::string& one_each) {
    const bool may_be_flat = images.field != "images" || layout == ImageLayout::unstated;
    check(may_be_flat || shape.size() != 2, [&] {
        return misfit(row_layout(layout),
                      {.field = images.field,
                       .place = fmt::format("'{}'", images.place),
                       .count = count,
                       .shape = shape,
                       .one_each = one_each,
                       .otherwise = "leave --layout away"});
    });
}

void check_inputs(const std::string& option,
                  const std::vector<NamedInput>& inputs,
                  ImageLayout layout) {
    std::set<std::string> names;
    for (const NamedInput& input : inputs)
        check(names.insert(input.field).second,
              "E103",
              fmt::format("--{} gives the field '{}' twice", option, input.field),
              "",
              "drop one of them");
    check(names.contains("images") || layout == ImageLayout::unstated,
          "E106",
          "--layout is given, and no field is called 'images'",
          "it is the layout of images, and other fields are not converted",
          "drop it, or name the field of images 'images'");
}

}  // namespace lockstep
