// SPDX-License-Identifier: Apache-2.0
// Tested: e2e/alone_test.cpp, e2e/commands_test.cpp.
#include "loop/output_file.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/run/tensor_files.hpp"
#include "lockstep/run/text_table.hpp"
#include "lockstep/train/infer.hpp"

#include <cerrno>
#include <cstring>
#include <functional>
#include <numeric>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep {
namespace {

// The beginning of a new file at `path`, and where values begin in it. What is left there of one
// that was not finished goes.
std::uint64_t begin_file(const fs::path& path, OutputFormat format, const OutputLayout& layout) {
    if (format == OutputFormat::hdf5) {
        fs::remove(path);
        return create_dataset_file(path,
                                   "predictions",
                                   layout.element,
                                   layout.shape,
                                   {{"names", layout.row_names}, {"classes", layout.class_names}});
    }
    const auto element =
        layout.element == ElementType::f32 ? ExportedElement::f32 : ExportedElement::i64;
    const std::string header =
        format == OutputFormat::npy ? npy_header(element, layout.shape) : std::string();
    write_file_atomically(path, header);
    return header.size();
}

// "new.names.json" of "new.npy".
fs::path names_file(fs::path outputs) {
    return outputs.replace_extension(".names.json");
}

bool has_names(const OutputLayout& layout) {
    return !layout.row_names.empty() || !layout.class_names.empty();
}

template <class Number>
Number stored_number(std::span<const std::byte> row, std::size_t index) {
    Number value{};
    std::memcpy(&value, row.data() + index * sizeof value, sizeof value);
    return value;
}

// f32 with as many digits as give the same number again.
std::string csv_number(const OutputLayout& layout,
                       std::span<const std::byte> row,
                       std::size_t index) {
    if (layout.element == ElementType::f32)
        return fmt::format("{}", stored_number<float>(row, index));
    const auto number = stored_number<std::int64_t>(row, index);
    return layout.classes.empty() ? fmt::format("{}", number)
                                  : csv_cell(layout.classes.at(static_cast<std::size_t>(number)));
}

}  // namespace

OutputFormat output_format(const fs::path& path) {
    const fs::path ending = path.extension();
    if (ending == ".npy") return OutputFormat::npy;
    if (ending == ".csv") return OutputFormat::csv;
    check(ending == ".h5" || ending == ".hdf5", [&] {
        return Error("E103",
                     fmt::format("'{}' is no name of a file of outputs", path.string()),
                     "its ending says what it is: .csv, .npy for NPY, .h5 or .hdf5 for HDF5",
                     "for example --out new.csv, --out new.npy or --out new.h5");
    });
    return OutputFormat::hdf5;
}

void check_new_outputs(const fs::path& path) {
    const bool is_npy = output_format(path) == OutputFormat::npy;
    for (const fs::path& file : {path, is_npy ? names_file(path) : path})
        check(!fs::exists(file), [&] {
            return Error("E407",
                         fmt::format("'{}' exists", file.string()),
                         "nothing is overwritten",
                         "give another name, or remove it");
        });
}

std::string names_text(const fs::path& outputs, const OutputLayout& layout) {
    const OutputFormat format = output_format(outputs);
    if (!has_names(layout) || format == OutputFormat::csv) return "";
    std::vector<std::string_view> lists;
    if (!layout.row_names.empty()) lists.emplace_back("names");
    if (!layout.class_names.empty()) lists.emplace_back("classes");
    const std::string all = fmt::format("{}", fmt::join(lists, " and "));
    return format == OutputFormat::npy ? all + " in " + names_file(outputs).string()
                                       : "with " + all;
}

OutputFile::OutputFile(const Communicator& ranks, const fs::path& path, OutputLayout layout)
    : ranks_(ranks),
      path_(path),
      partial_(path.parent_path() / fmt::format(".{}.partial", path.filename().string())),
      layout_(std::move(layout)) {
    const OutputFormat format = output_format(path_);
    const std::string offset = from_root(ranks_, [&] {
        check_new_outputs(path_);
        return std::to_string(begin_file(partial_, format, layout_));
    });
    data_offset_ = std::stoull(offset);
    agree(ranks_, [&] {
        fd_ = UniqueFd(::open(partial_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
        if (!fd_) throw system_error("open", partial_, errno);
    });
}

void OutputFile::write(std::uint64_t sample, std::span<const std::byte> bytes) {
    const std::uint64_t offset = data_offset_ + sample * bytes.size();
    if (const int reason = try_write_at(fd_.value(), bytes, offset))
        throw system_error("write", partial_, reason);
}

fs::path OutputFile::written_as_csv() const {
    constexpr std::size_t most_buffered = 1 << 20;
    const auto samples = static_cast<std::uint64_t>(layout_.shape.front());
    const auto width = static_cast<std::size_t>(std::accumulate(
        layout_.shape.begin() + 1, layout_.shape.end(), std::int64_t{1}, std::multiplies<>()));
    fs::path text = partial_;
    text += ".csv";
    const UniqueFd out(::open(
        text.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
    if (!out) throw system_error("create", text, errno);
    std::string lines;
    for (std::size_t c = 0; c < layout_.columns.size(); ++c)
        lines += (c == 0 ? "" : ",") + csv_cell(layout_.columns[c]);
    lines += '\n';
    std::vector<std::byte> row(width * element_bytes(layout_.element));
    for (std::uint64_t sample = 0; sample < samples; ++sample) {
        read_at(fd_.value(), row, sample * row.size(), partial_);
        lines += layout_.row_names.empty() ? std::to_string(sample)
                                           : csv_cell(layout_.row_names.at(sample));
        for (std::size_t i = 0; i < width; ++i) lines += "," + csv_number(layout_, row, i);
        lines += '\n';
        if (lines.size() < most_buffered && sample + 1 < samples) continue;
        write_all(out.value(), std::as_bytes(std::span(lines)), text);
        lines.clear();
    }
    sync_path(text);
    fs::remove(partial_);
    return text;
}

void OutputFile::finish() {
    agree(ranks_, [&] {
        if (::fsync(fd_.value()) != 0) throw system_error("flush", partial_, errno);
    });
    from_root(ranks_, [&] {
        const OutputFormat format = output_format(path_);
        const bool is_csv = format == OutputFormat::csv;
        if (format == OutputFormat::npy && has_names(layout_)) {
            Json names = Json::object();
            if (!layout_.row_names.empty()) names["names"] = layout_.row_names;
            if (!layout_.class_names.empty()) names["classes"] = layout_.class_names;
            write_file_atomically(names_file(path_), names.dump() + '\n');
        }
        fs::rename(is_csv ? written_as_csv() : partial_, path_);
        sync_path(path_.parent_path().empty() ? fs::path(".") : path_.parent_path());
        return std::string();
    });
}

}  // namespace lockstep
