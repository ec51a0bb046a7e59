// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "field_plan.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

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
    std::vector<std::string> names;
    std::string name;
    for (const char sign : read_file(path, 64 * 1024) + "\n") {
        if (sign != '\n' && sign != '\r') {
            name += sign;
        } else if (!name.empty()) {
            names.push_back(std::move(name));
            name.clear();
        }
    }
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
