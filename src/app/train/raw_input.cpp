// SPDX-License-Identifier: Apache-2.0
// Tested: e2e/alone_test.cpp.
#include "train/raw_input.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/sources.hpp"
#include "lockstep/plan/contract.hpp"

#include "data/pack_output.hpp"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

enum class RawKind { data_set, images, table, array, text };

RawKind kind_of_input(const fs::path& path) {
    if (fs::is_directory(status_of(path))) {
        if (fs::exists(status_of(path / manifest_name))) return RawKind::data_set;
        const auto is_hdf5 = [](const fs::directory_entry& entry) {
            const fs::path ending = entry.path().extension();
            return ending == ".h5" || ending == ".hdf5" || ending == ".hdf" || ending == ".he5";
        };
        return std::ranges::any_of(fs::directory_iterator(path), is_hdf5) ? RawKind::data_set
                                                                          : RawKind::images;
    }
    const fs::path ending = path.extension();
    if (ending == ".csv" || ending == ".tsv") return RawKind::table;
    if (ending == ".npy") return RawKind::array;
    if (is_image_name(path)) return RawKind::images;
    return ending == ".txt" ? RawKind::text : RawKind::data_set;
}

// The field of the training data that is made of `input`.
Field field_for(const InferSettings& settings, const fs::path& input, RawKind kind) {
    const auto fail = [&](const std::string& why) {
        return Error(
            "E106",
            fmt::format("'{}' is not what run '{}' takes", input.string(), settings.run.string()),
            why,
            "pack a data set like the training data with 'lockstep data pack', and give "
            "--data");
    };
    std::vector<std::string> names = split(read_run_settings(settings.run).settings.inputs, ',');
    const auto kept = kept_data(settings.run);
    if (!kept) throw fail("a run of an earlier version does not know how its data were made");
    std::erase(names, "");
    if (names.size() > 1) throw fail("its model has several inputs");
    if (names.empty()) names = {"images", "features", "tokens"};
    for (const std::string& name : names)
        for (const Field& field : kept->fields()) {
            if (field.name != name) continue;
            const bool fits = kind == RawKind::images  ? field.layout == "CHW"
                              : kind == RawKind::table ? field.shape.size() == 1
                              : kind == RawKind::text  ? name == "tokens"
                                                       : true;
            if (fits) return field;
            throw fail(fmt::format("its input is '{}' [{}]", name, fmt::join(field.shape, ", ")));
        }
    throw fail("its inputs have names of their own");
}

// The sign between columns that the first line has most of.
char separator_of(const fs::path& path) {
    std::string line;
    std::getline(std::ifstream(path), line);
    constexpr char signs[] = {',', ';', '\t'};
    return *std::ranges::max_element(
        signs, {}, [&](char sign) { return std::ranges::count(line, sign); });
}

std::unique_ptr<RowSource> open_raw(const Field& field,
                                    const fs::path& path,
                                    RawKind kind,
                                    const RawTable& table) {
    CsvOptions csv{.label = {}, .type = field.type, .like = field, .row_names = table.row_names};
    switch (kind) {
        case RawKind::images:
            return open_folder(path,
                               {.content = FolderContent::images,
                                .color = field.shape[0] == 1 ? Color::gray : Color::rgb,
                                .resize = ImageSize{static_cast<std::uint32_t>(field.shape[1]),
                                                    static_cast<std::uint32_t>(field.shape[2])}});
        case RawKind::table:
            csv.separator = separator_of(path);
            // Each row has a prediction: none is left out.
            csv.missing = field.table.missing == Missing::mean ? Missing::mean : Missing::error;
            table.text.apply(csv);
            return open_csv(path, csv);
        case RawKind::text:
            return open_text({path}, static_cast<std::uint64_t>(field.shape[0]) - 1);
        default:
            return open_npy({{field.name, path.string()}});
    }
}

}  // namespace

RawInput::RawInput(InferSettings& settings,
                   const fs::path& input,
                   const RawTable& table,
                   const Communicator& ranks) {
    const RawKind kind = kind_of_input(input);
    check(!table.is_given() || kind == RawKind::table, [&] {
        return Error(
            "E106",
            fmt::format("--id, --decimal and --encoding do not go with '{}'", input.string()),
            "they are for tables: .csv and .tsv",
            "drop them");
    });
    if (kind == RawKind::data_set) {
        settings.data = input;
        return;
    }
    const Field field = field_for(settings, input, kind);
    const auto source =
        together(team_of(ranks), [&] { return open_raw(field, input, kind, table); });
    PackOptions pack{.output = settings.outputs.parent_path() /
                               fmt::format(".{}.rows", settings.outputs.filename().string()),
                     .name = "rows",
                     .shuffle_seed = {},
                     .class_names = {},
                     .leftovers = Leftovers::discard,
                     .team = team_of(ranks)};
    if (field.name == "tokens") pack.classes = field.classes();
    if (ranks.is_root()) {
        folder_ = pack.output;
        fs::remove_all(folder_);
    }
    Progress progress;
    const SignalGuard signals;
    pack_dataset(*source, pack, pack_report("reading", progress));
    settings.data = pack.output;
    settings.row_title = kind == RawKind::images   ? "file"
                         : table.row_names.empty() ? "row"
                                                   : table.row_names;
    if (!source->row_name(0).empty() && ranks.is_root())
        for (std::uint64_t row = 0; row < source->samples(); ++row)
            settings.row_names.push_back(source->row_name(row));
}

RawInput::~RawInput() {
    if (folder_.empty()) return;
    std::error_code failed;
    fs::remove_all(folder_, failed);
    fs::remove_all(folder_.parent_path() / fmt::format(".{}.partial", folder_.filename().string()),
                   failed);  // what an error left
}

}  // namespace lockstep
