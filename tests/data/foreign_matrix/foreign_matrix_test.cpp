// SPDX-License-Identifier: Apache-2.0
// Files that h5py, PyTables and netCDF4 wrote, streamed and packed: numpy's values in every field,
// or a refusal with its code, whose advice is tried by running it.
#include "lockstep/core/process.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/check.hpp"
#include "lockstep/data/content.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/sources.hpp"

#include "data/samples.hpp"
#include "support/unit.hpp"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <regex>
#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Debian's own: these packages are not in other Pythons.

/// What the advice of a refusal is.
enum class WayOut { none, command, fields, shown };

/// A line of make_files: what is expected of one set of files.
struct Case {
    std::string name;
    std::vector<fs::path> files;
    std::vector<FieldMapping> fields;
    std::vector<std::string> types;
    std::string stream, pack;  ///< "=", or the code of the refusal
    WayOut way = WayOut::none;
    std::vector<FieldMapping> fields_after;  ///< of what the advice writes
    fs::path folder;
};

WayOut way_of(const std::string& word) {
    using enum WayOut;
    const std::map<std::string, WayOut> words{
        {"-", none}, {"command", command}, {"fields", fields}, {"shown", shown}};
    return words.at(word);
}

Case case_of(const std::string& line, const fs::path& root) {
    const std::vector<std::string> words = split(line, '\t');
    Case made{.name = words.at(0),
              .fields = parse_field_mappings(words.at(2)),
              .types = split(words.at(3), ','),
              .stream = words.at(4),
              .pack = words.at(5),
              .way = way_of(words.at(6)),
              .folder = root / words.at(0)};
    for (const std::string& file : split(words[1], ',')) made.files.push_back(made.folder / file);
    made.fields_after = words.at(7) == "-" ? made.fields : parse_field_mappings(words[7]);
    return made;
}

// How many of the cases ended how; printed at the end.
struct Counts {
    int streamed = 0, packed = 0, ways_that_work = 0, ways_not_tried = 0, no_way = 0;
};

class ForeignMatrix : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        root_ = std::make_unique<TempDir>();
        // Another h5py's Python, and which axes it writes.
        const ProcessResult made =
            run_process({"/bin/sh",
                         "-c",
                         "exec ${MATRIX_PYTHON-} \"$0\" \"$1\" ${MATRIX_AXES-} 2>\"$1/errors\"",
                         LOCKSTEP_MAKE_FILES,
                         root_->path()},
                        {{"PYTHONDONTWRITEBYTECODE", "1"}});
        EXPECT_EQ(made.exit_code, 0) << content_of(*root_ / "errors");
        std::istringstream lines(made.output);
        for (std::string line; std::getline(lines, line);)
            cases_.push_back(case_of(line, root_->path()));
    }
    static void TearDownTestSuite() {
        std::cout << fmt::format(
            "{} sets of files: {} streamed equal, {} packed equal; refusals: {} with a command "
            "that worked, {} with one that needs another h5py, {} with none\n",
            cases_.size(),
            counts_.streamed,
            counts_.packed,
            counts_.ways_that_work,
            counts_.ways_not_tried,
            counts_.no_way);
        cases_.clear();
        root_.reset();
    }
    void SetUp() override {
        ASSERT_FALSE(cases_.empty())
            << "no files were made; scripts/setup test gets what makes them";
    }

    static int& count_of(WayOut way) {
        if (way == WayOut::none) return counts_.no_way;
        return way == WayOut::shown ? counts_.ways_not_tried : counts_.ways_that_work;
    }

    static inline std::unique_ptr<TempDir> root_;
    static inline std::vector<Case> cases_;
    static inline Counts counts_;
};

void expect_streams(const Case& matrix_case,
                    const std::vector<fs::path>& files,
                    const std::vector<FieldMapping>& fields) {
    const DatasetIndex index = DatasetIndex::open_foreign(files, fields);
    for (std::size_t f = 0; f < fields.size(); ++f) {
        const std::string wanted = content_of(matrix_case.folder / (fields[f].name + ".bin"));
        EXPECT_TRUE(std::ranges::equal(test::streamed(index, f), bytes_of(wanted)))
            << fields[f].name;
        EXPECT_TRUE(fields[f].layout == RowLayout::label ||
                    element_name(index.fields()[f].type) == matrix_case.types[f]);
    }
}

// Packed rows lie in another order, unless they were kept.
void expect_packed(const Case& matrix_case,
                   const fs::path& folder,
                   std::optional<std::uint64_t> seed) {
    const DatasetIndex index = DatasetIndex::open(folder);
    const auto order = test::packed_order(index.samples(), {.shuffle_seed = seed});
    ASSERT_EQ(index.fields().size(), matrix_case.fields_after.size());
    for (std::size_t f = 0; f < index.fields().size(); ++f) {
        const fs::path place = matrix_case.folder / index.fields()[f].name;
        const fs::path other = place.string() + ".packed";
        const std::string wanted =
            content_of(fs::exists(other) ? other : fs::path(place.string() + ".bin"));
        const std::size_t bytes = index.fields()[f].bytes_per_sample();
        ASSERT_EQ(wanted.size(), bytes * index.samples()) << index.fields()[f].name;
        std::string moved;
        for (const std::uint64_t row : order) moved += wanted.substr(row * bytes, bytes);
        EXPECT_TRUE(std::ranges::equal(test::streamed(index, f), bytes_of(moved)))
            << index.fields()[f].name;
    }
}

TEST_F(ForeignMatrix, StreamsWhatNumpyHolds) {
    for (const Case& each : cases_) {
        if (each.stream != "=") continue;
        SCOPED_TRACE(each.name);
        EXPECT_EQ(caught_text([&] { expect_streams(each, each.files, each.fields); }), "");
        ++counts_.streamed;
    }
    EXPECT_GT(cases_.size(), std::getenv("MATRIX_AXES") != nullptr ? 15u : 120u);
}

TEST_F(ForeignMatrix, PacksWhatNumpyHolds) {
    for (const Case& each : cases_) {
        if (each.pack != "=") continue;
        SCOPED_TRACE(each.name);
        const PackOptions options{.output = each.folder / "packed", .shuffle_seed = {}};
        const std::string refusal = caught_text([&] {
            pack_dataset(*open_hdf5(each.files, each.fields), options);
            expect_packed(each, options.output, {});
        });
        EXPECT_EQ(refusal, "");
        ++counts_.packed;
    }
}

// What somebody would copy: from the first word of a command, or of options, to the end.
std::string command_in(const std::string& advice) {
    std::size_t begin = advice.npos;
    for (const char* word : {"HDF5_PLUGIN_PATH=",
                             "lockstep data pack ",
                             "python3 -c ",
                             "for f in ",
                             "ptrepack ",
                             "nccopy ",
                             "--field "})
        begin = std::min(begin, advice.find(word));
    return begin == advice.npos ? "" : advice.substr(begin);
}

ProcessResult run_by_shell(const fs::path& folder, const std::string& command) {
    const char* const python = std::getenv("MATRIX_PYTHON");
    const std::string path =
        fmt::format("{}:{}/usr/bin:/bin",
                    LOCKSTEP_PROGRAMS,
                    python == nullptr ? "" : fs::path(python).parent_path().string() + ":");
    return run_process({"/bin/sh", "-c", "cd \"$0\" && " + command, folder},
                       {{"PATH", path}, {"PYTHONPATH", folder}});
}

// The advice as a user follows it, then what came of it: shards or files.
void follow(const Case& matrix_case, const std::string& command) {
    const fs::path& folder = matrix_case.folder;
    const ProcessResult result = run_by_shell(folder, command);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    if (fs::exists(folder / "NAME/manifest.json"))
        expect_packed(matrix_case, folder / "NAME", 0);
    else
        expect_streams(matrix_case,
                       foreign_files(folder / (fs::exists(folder / "NAME") ? "NAME" : "NAME.h5")),
                       matrix_case.fields_after);
    for (const char* made : {"NAME", "NAME.h5"}) fs::remove_all(folder / made);
}

// Other data sets of the file, as options.
void follow_fields(const Case& matrix_case, const std::string& options) {
    const std::string file = matrix_case.files[0].string();
    const ProcessResult result =
        run_by_shell(matrix_case.folder, "lockstep data inspect '" + file + "' " + options);
    EXPECT_EQ(result.exit_code, 0) << result.output;
}

void expect_refused(const Case& each, const Error& error, const std::string& code) {
    ASSERT_EQ(error.code(), code) << error.text();
    SCOPED_TRACE(error.text());
    const std::string command = command_in(error.fix());
    ASSERT_EQ(command.empty(), each.way == WayOut::none);
    if (each.way == WayOut::command) follow(each, command);
    if (each.way == WayOut::fields) follow_fields(each, command);
}

TEST_F(ForeignMatrix, RefusesWithACommandThatWorks) {
    for (const Case& each : cases_) {
        SCOPED_TRACE(each.name);
        const auto expect = [&](const std::string& code, const auto& open) {
            if (code == "=") return;
            expect_refused(each, test::error_of(open), code);
            ++count_of(each.way);
        };
        expect(each.stream, [&] { DatasetIndex::open_foreign(each.files, each.fields); });
        expect(each.pack, [&] { open_hdf5(each.files, each.fields); });
    }
}

// What inspecting prints for a set of files, or for what its advice made of them.
struct Inspected {
    std::string line, obstacle, fix;  ///< `line` trains, or else `fix` helps
};

std::string behind(const std::string& text, const std::string& mark) {
    const std::size_t begin = text.find(mark);
    if (begin == text.npos) return "";
    return text.substr(begin + mark.size(),
                       text.find('\n', begin + mark.size()) - begin - mark.size());
}

Inspected found_in(const std::string& text) {
    Inspected found{behind(text, "\ntrain on it:\n  "),
                    behind(text, "\nno command to train on it: "),
                    behind(text, "\n  fix: ")};
    EXPECT_NE(found.line.empty(), found.fix.empty()) << text;
    return found;
}

Inspected inspected(const fs::path& where) {
    return found_in(inspect_data(where));
}

// All commands, each in its folder, two at a time; says what failed.
void expect_train(const std::vector<std::pair<fs::path, std::string>>& commands) {
    const TempDir scripts;
    for (const auto& [folder, command] : commands)
        scripts.file(std::to_string(std::hash<std::string>{}(folder.string() + command)),
                     fmt::format("cd '{}' && {} --max-steps 1 >train.out 2>&1 || "
                                 "{{ echo '{}'; cat train.out; exit 1; }}",
                                 folder.string(),
                                 command,
                                 command));
    const ProcessResult trained = run_by_shell(scripts.path(), "ls | xargs -P 2 -n 1 sh");
    EXPECT_EQ(trained.exit_code, 0) << trained.output;
}

// What an advice is, whatever the names and numbers in it.
std::string kind_of_advice(const Inspected& found) {
    static const std::regex names("'[^']*'|/[^ ]*|[0-9]+");
    return std::regex_replace(found.obstacle, names, "_").substr(0, 60) + ": " +
           found.fix.substr(0, 24);
}

// What the advice takes from beside a file: a number or a row of them for each sample.
constexpr const char* saved_beside =
    "python3 -c 'import h5py,sys,numpy as n; f,d,k=sys.argv[1:]; r=len(h5py.File(f)[d]); "
    "n.save(f+\".npy\",n.arange(r)%2 if k==\"labels\" else n.ones((r,3)))' ";

// The source that only its owner has.
constexpr const char* made_source =
    "python3 -c 'import numpy as n; n.save(\"X.npy\",n.zeros((8,1,16,16),\"u1\")); "
    "n.save(\"Y.npy\",n.arange(8)%2)' && ";

// Follows the advice until a command trains on what it made; each kind of advice once.
std::vector<std::pair<fs::path, std::string>> follow_advice(const Case& each,
                                                            Inspected found,
                                                            std::set<std::string>& kinds) {
    fs::path made = each.folder;
    while (found.line.empty() && kinds.insert(kind_of_advice(found)).second) {
        if (const std::string shows = behind(found.fix + "\n", "say so: "); !shows.empty()) {
            const ProcessResult shown = run_by_shell(made, shows);
            EXPECT_EQ(shown.exit_code, 0) << found.fix << '\n' << shown.output;
            found = found_in(shown.output);
            continue;
        }
        const std::string command = command_in(found.fix);
        // What a plug-in or another h5py would read is not here.
        const bool is_elsewhere =
            command.starts_with("HDF5_PLUGIN_PATH") || found.fix.starts_with("copy it again");
        if (command.empty() || is_elsewhere) return {};
        SCOPED_TRACE(found.obstacle + "\n" + found.fix);
        const fs::path folder = made / "followed";
        fs::create_directory(folder);
        std::string before;
        if (const std::size_t names = command.rfind(" NAME "); found.fix.starts_with("save "))
            before = saved_beside + command.substr(names + 6) +
                     (found.fix.starts_with("save the labels") ? " labels && " : " inputs && ");
        if (found.fix.starts_with("pack the source again")) before = made_source;
        const ProcessResult result = run_by_shell(folder, before + command);
        EXPECT_EQ(result.exit_code, 0) << before + command << '\n' << result.output;
        if (result.exit_code != 0) return {};
        made = folder;
        found = inspected(folder / (fs::exists(folder / "NAME") ? "NAME" : "NAME.h5"));
    }
    if (found.line.empty()) return {};
    return {{made, found.line}};
}

TEST_F(ForeignMatrix, IsInspectedWithACommandThatTrainsOrAdviceThatHelps) {
    std::vector<std::pair<fs::path, std::string>> commands;
    std::set<std::string> kinds;
    std::size_t lines = 0;
    for (const Case& each : cases_) {
        SCOPED_TRACE(each.name);
        std::vector<std::string> files;
        for (const fs::path& file : each.files) files.push_back(file.string());
        if (each.stream == "E203") continue;  // whose command is in that error
        const Inspected found = inspected(fmt::format("{}", fmt::join(files, ",")));
        if (!found.line.empty()) {
            commands.emplace_back(each.folder, found.line);
            ++lines;
            continue;
        }
        const auto followed = follow_advice(each, found, kinds);
        commands.insert(commands.end(), followed.begin(), followed.end());
    }
    expect_train(commands);
    EXPECT_GE(lines, 15u);
    EXPECT_GE(kinds.size(), 10u);
    std::cout << fmt::format(
        "{} sets of files have a command that trains; {} kinds of advice, {} "
        "of which end in one\n",
        lines,
        kinds.size(),
        commands.size() - lines);
}

// The word that packing has, too; what is not put together of whole data sets is left to that.
TEST_F(ForeignMatrix, StreamsThroughLinksThatMayBeFollowed) {
    int streamed = 0, refused = 0;
    for (const Case& each : cases_) {
        const bool is_elsewhere = each.name.starts_with("link_external") ||
                                  each.name.starts_with("layout_virtual") ||
                                  each.name.starts_with("layout_external");
        if (!is_elsewhere) continue;
        const bool is_apart = each.name.find("_apart") != std::string::npos;
        SCOPED_TRACE(each.name);
        std::vector<FieldMapping> fields = each.fields;
        for (FieldMapping& field : fields) field.links = Links::followed;
        const Error error = test::error_of([&] { expect_streams(each, each.files, fields); });
        ++(is_apart ? refused : streamed);
        if (is_apart)
            expect_refused(each, error, "E234");
        else
            EXPECT_EQ(error.code(), "none") << error.text();
    }
    EXPECT_EQ(streamed, 9);
    EXPECT_EQ(refused, 5);
}

TEST_F(ForeignMatrix, WatchesAndKnowsWhatLinksLeadTo) {
    const Case& each = *std::ranges::find(cases_, "link_external_each", &Case::name);
    std::vector<FieldMapping> fields = each.fields;
    for (FieldMapping& field : fields) field.links = Links::followed;
    const auto open = [&] { return DatasetIndex::open_foreign(each.files, fields); };
    const auto index = std::make_shared<const DatasetIndex>(open());
    EXPECT_EQ(index->shards().size(), 4u);
    EXPECT_EQ(DatasetIndex::deserialize(index->serialize()), *index);
    const FileWatch watch(index);
    watch.check();
    const fs::path linked = each.folder / "data-1.h5";
    const auto time = fs::last_write_time(linked);
    fs::last_write_time(linked, time + std::chrono::seconds(1));
    EXPECT_EQ(caught([&] { watch.check(); })->code(), "E251");
    EXPECT_NE(open().digest(), index->digest());
    fs::last_write_time(linked, time);
    EXPECT_EQ(open().digest(), index->digest());
}

// Chunks are expanded whole, here or by libhdf5: what that takes is bounded before it is taken.
TEST_F(ForeignMatrix, PacksWithinItsMemory) {
    for (const char* name : {"memory_gzip", "memory_scale_offset"}) {
        const Case& each = *std::ranges::find(cases_, name, &Case::name);
        SourceOptions options{.memory_bytes = 16 << 20};
        const Error error =
            test::error_of([&] { open_hdf5(each.files, each.fields, {}, options); });
        ASSERT_EQ(error.code(), "E106") << name;
        EXPECT_THAT(error.what(), HasSubstr("at a time; 16 MiB are allowed"));
        const std::string advice = error.fix().substr(0, error.fix().find("MiB"));
        options.memory_bytes = std::stoull(advice.substr(advice.find("--memory ") + 9)) << 20;
        EXPECT_FALSE(caught([&] { open_hdf5(each.files, each.fields, {}, options); }));
    }
}

// Nothing is guessed in the place of a value that is none.
TEST_F(ForeignMatrix, RefusesMissingValuesByRow) {
    const Case& each = *std::ranges::find(cases_, "cf_fill_value", &Case::name);
    const std::vector<FieldMapping> fields = parse_field_mappings("values=/v:value:cf");
    const std::string what = "sample 3 has a missing value: row 3 of '/v' in '" +
                             fs::canonical(each.files[0]).string() + "'";
    const auto stream = [&] { test::streamed(DatasetIndex::open_foreign(each.files, fields), 0); };
    const auto pack = [&] { open_hdf5(each.files, fields); };
    for (const Error& error : {test::error_of(stream), test::error_of(pack)}) {
        EXPECT_EQ(error.code(), "E236");
        EXPECT_EQ(error.what(), what);
        EXPECT_THAT(error.fix(), EndsWith("--field values=/v:value:cf=0"));
        follow_fields(each, command_in(error.fix()));
    }
    const std::vector<Finding> findings = verify_data(each.files[0], fields);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].code, "E236");
}

TEST_F(ForeignMatrix, WarnsOfNumbersThatStandForOthers) {
    const Case& each = *std::ranges::find(cases_, "cf_scale", &Case::name);
    const auto open = [&](const std::string& field) {
        return DatasetIndex::open_foreign(each.files, parse_field_mappings(field));
    };
    const DatasetIndex plain = open("values=/v"), asked = open("values=/v:cf");
    EXPECT_THAT(
        plain.warnings(),
        Contains(AllOf(HasSubstr("'/v' has scale_factor"), EndsWith("--field values=/v:cf"))));
    EXPECT_THAT(asked.warnings(), Not(Contains(HasSubstr("scale"))));
    EXPECT_NE(plain.digest(), asked.digest());
    EXPECT_NE(open("values=/v:cf=0").digest(), asked.digest());
    EXPECT_EQ(DatasetIndex::deserialize(asked.serialize()), asked);
}

// What 'pip install hdf5plugin' brings is a module that knows the folder.
TEST_F(ForeignMatrix, SaysWhereAMissingPluginIs) {
    const fs::path plugins = "/usr/lib/x86_64-linux-gnu/hdf5/serial/plugins";
    ASSERT_TRUE(fs::exists(plugins / "libh5bz2.so")) << "scripts/setup test gets it";
    const Case& each = *std::ranges::find(cases_, "filter_bzip2", &Case::name);
    std::ofstream(each.folder / "hdf5plugin.py") << "PLUGIN_PATH = " << plugins;
    ::setenv("HDF5_PLUGIN_PATH", "/nonexistent", 1);
    const Error error = test::error_of_opening(each.files, each.fields);
    expect_refused(each, error, "E212");
    ::unsetenv("HDF5_PLUGIN_PATH");
    EXPECT_THAT(error.fix(),
                has("it cannot be packed either (HDF5 says: ", "pip install hdf5plugin"));
}

}  // namespace
}  // namespace lockstep
