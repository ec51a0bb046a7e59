// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/process.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/sources.hpp"

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "rows.hpp"
#include "support/unit.hpp"

#include <sstream>

namespace lockstep {
namespace {

using test::encoded;
using test::ForeignDataset;
using test::values_of;

// Whole numbers from 0 on, stored as `type`.
ForeignDataset numbers(const char* path, std::vector<hsize_t> size, hid_t type = H5T_STD_I32LE) {
    std::vector<std::int32_t> values(
        std::accumulate(size.begin(), size.end(), std::size_t{1}, std::multiplies<>()));
    std::iota(values.begin(), values.end(), 0);
    return {.path = path,
            .type = type,
            .memory = H5T_NATIVE_INT32,
            .size = std::move(size),
            .bytes = encoded(values)};
}

class Hdf5Source : public InFolder {
  protected:
    fs::path write(const std::vector<ForeignDataset>& datasets, const char* name = "a.h5") {
        return test::write_foreign(folder_ / name, datasets);
    }
    static Error error_of(const std::vector<fs::path>& files,
                          const std::vector<FieldMapping>& fields,
                          ImageLayout layout = ImageLayout::unstated) {
        return test::error_of([&] { open_hdf5(files, fields, layout); });
    }
    // The error of opening a file of one data set.
    Error error_of_one(const ForeignDataset& data) {
        return error_of({write({data}, "one.h5")}, {{"x", data.path}});
    }
};

TEST_F(Hdf5Source, ReadsAnyChunksAndFilters) {
    std::vector<float> values(101 * 7 * 5);
    std::iota(values.begin(), values.end(), 0.5f);
    const fs::path path = write({{.path = "deep/x",
                                  .type = H5T_IEEE_F32LE,
                                  .size = {101, 7, 5},
                                  .chunk = {13, 4, 5},
                                  .bytes = encoded(values),
                                  .filters = {{H5Z_FILTER_SHUFFLE, {4}},
                                              {H5Z_FILTER_DEFLATE, {6}},
                                              {H5Z_FILTER_FLETCHER32, {}}}},
                                 numbers("y", {101}, H5T_STD_I16BE)});
    std::uint64_t read = 0, total = 1;
    const auto source = open_hdf5({path},
                                  {{"features", "/deep/x"}, {"labels", "y"}},
                                  ImageLayout::unstated,
                                  {[&](std::uint64_t done, std::uint64_t all) {
                                      read = done;
                                      total = all;
                                  }});
    EXPECT_EQ(read, total);
    EXPECT_EQ(source->samples(), 101u);
    EXPECT_THAT(source->fields()[0].shape, ElementsAre(7, 5));
    for (std::uint64_t row = 0; row < 101; ++row) {
        const auto first = values.begin() + static_cast<std::ptrdiff_t>(row * 35);
        EXPECT_EQ(values_of<float>(*source, 0, row), std::vector<float>(first, first + 35));
        EXPECT_EQ(test::label_of(*source, 1, row), static_cast<std::int64_t>(row));
    }
}

TEST_F(Hdf5Source, ConvertsTypes) {
    const fs::path path = write({{.path = "f64",
                                  .type = H5T_IEEE_F64BE,
                                  .size = {2},
                                  .bytes = encoded<double>({-1.5, 2.25}, std::endian::big)},
                                 numbers("i8", {2}, H5T_STD_I8LE),
                                 numbers("u16", {2}, H5T_STD_U16BE),
                                 numbers("u32", {2}, H5T_STD_U32LE),
                                 numbers("u8", {2}, H5T_STD_U8LE)});
    const auto source =
        open_hdf5({path}, {{"a", "f64"}, {"b", "i8"}, {"c", "u16"}, {"d", "u32"}, {"e", "u8"}});
    using enum ElementType;
    std::vector<ElementType> types;
    for (const Field& field : source->fields()) types.push_back(field.type);
    EXPECT_THAT(types, ElementsAre(f64, i32, i32, i64, u8));
    EXPECT_THAT(values_of<double>(*source, 0, 1), ElementsAre(2.25));
    EXPECT_THAT(values_of<std::int32_t>(*source, 2, 1), ElementsAre(1));
    EXPECT_THAT(values_of<std::int64_t>(*source, 3, 1), ElementsAre(1));
    EXPECT_THAT(error_of_one(numbers("x", {2}, H5T_STD_U64LE)).why(),
                HasSubstr("only labels of it are read"));
}

TEST_F(Hdf5Source, TakesLabelsOfU64) {
    const fs::path path =
        write({{.path = "y",
                .type = H5T_STD_U64BE,
                .size = {2},
                .bytes = encoded<std::uint64_t>({3, ~std::uint64_t{0}}, std::endian::big)}});
    const auto source = open_hdf5({path}, {{"labels", "y"}});
    EXPECT_EQ(test::label_of(*source, 0, 0), 3);
    const std::int64_t beyond = test::label_of(*source, 0, 1);
    EXPECT_TRUE(beyond < 0 || beyond > 1'000'000) << beyond << ", which packing must refuse";
}

TEST_F(Hdf5Source, TakesLayoutsThatGoWithNames) {
    const fs::path path = write(
        {numbers("x", {2, 4, 5, 3}, H5T_IEEE_F32LE),
         {.path = "y", .type = H5T_IEEE_F32LE, .size = {2}, .bytes = encoded<float>({1, 0.5})}});
    const auto layouts_of = [&](const char* field) {
        const auto source = open_hdf5({path}, {parse_field_mapping(field)});
        return source->fields()[0].layout + std::to_string(source->fields()[0].shape[0]);
    };
    EXPECT_EQ(layouts_of("images=/x:HWC"), "CHW3") << "images are converted";
    EXPECT_EQ(layouts_of("images=/x:CHW"), "CHW4");
    EXPECT_EQ(layouts_of("values=/x:hwc"), "HWC4") << "others are said to be so";
    for (const char* bad :
         {"values=/x:label", "labels=/y:value", "values=/x:HW", "x=/y:onehot", "labels=/y:onehot"})
        EXPECT_EQ(error_of({path}, {parse_field_mapping(bad)}).code(), "E235") << bad;
    const auto labels = open_hdf5({path}, {parse_field_mapping("labels=/y:label")});
    EXPECT_EQ(test::label_of(*labels, 0, 0), 1);
    EXPECT_LT(test::label_of(*labels, 0, 1), 0) << "0.5 is no class, which packing says";
}

// What training says of the same files.
TEST_F(Hdf5Source, RefusesALayoutThatRowsDoNotFitAsTrainingDoes) {
    const fs::path one = write({numbers("picture", {12, 11, 3}, H5T_STD_U8LE),
                                numbers("channels", {3, 12, 11}, H5T_STD_U8LE),
                                numbers("gray", {12, 11, 11}, H5T_STD_U8LE),
                                numbers("rows", {12})});
    const auto refused = [&](const char* field) {
        const std::vector<FieldMapping> fields{parse_field_mapping(field)};
        const Error packed = error_of({one}, fields);
        const Error streamed = test::error_of_opening({one}, fields);
        EXPECT_EQ(packed.code(), "E235") << field;
        EXPECT_EQ(packed.text(), streamed.text());
        return packed.text();
    };
    for (const char* field : {"images=/picture:HWC", "images=/channels:CHW", "masks=/rows:HW"}) {
        const bool is_one = field != std::string("masks=/rows:HW");
        EXPECT_EQ(refused(field).find("a file holds one sample") != std::string::npos, is_one);
        EXPECT_EQ(refused(field).find("--sample-a-file") != std::string::npos, is_one) << field;
    }
    EXPECT_THAT(refused("images=/gray:HWC"), HasSubstr("if a file holds one sample"));
    EXPECT_THAT(refused("images=/gray:HWC"), HasSubstr("else write --field images=/gray:HW"));
    EXPECT_THAT(refused("labels=/rows:CHW"), HasSubstr("fix: write --field labels=/rows"));
    EXPECT_THAT(refused("images=/rows:HW"), HasSubstr("fix: write --field features=/rows"));
    EXPECT_EQ(open_hdf5({one}, {parse_field_mapping("images=/gray:HW")})->samples(), 12U);
    EXPECT_EQ(error_of({one}, {{"images", "/picture"}}, ImageLayout::hwc).code(), "E235");
    EXPECT_EQ(error_of({one}, {{"pictures", "/picture"}}, ImageLayout::hwc).code(), "E106");
    const std::vector<FieldMapping> fields{parse_field_mapping("images=/picture:HWC"),
                                           parse_field_mapping("masks=/gray")};
    const auto whole = open_hdf5({one, one}, fields, {}, {.is_sample_a_file = true});
    EXPECT_EQ(whole->samples(), 2U) << "one of each file";
    EXPECT_THAT(whole->fields()[0].shape, ElementsAre(3, 12, 11));
    EXPECT_THAT(whole->fields()[1].shape, ElementsAre(12, 11, 11));
}

TEST_F(Hdf5Source, ReadsFilesOneAfterAnother) {
    const fs::path a = write({numbers("x", {3, 2})}), b = write({numbers("x", {2, 2})}, "b.h5"),
                   c = write({numbers("x", {2, 3})}, "c.h5");
    const auto source = open_hdf5({a, b}, {{"x", "x"}});
    EXPECT_EQ(source->samples(), 5u);
    EXPECT_THAT(values_of<std::int32_t>(*source, 0, 2), ElementsAre(4, 5));
    EXPECT_THAT(values_of<std::int32_t>(*source, 0, 3), ElementsAre(0, 1));
    EXPECT_EQ(error_of({a, c}, {{"x", "x"}}).code(), "E208");
}

TEST_F(Hdf5Source, NamesWhatIsWrong) {
    const fs::path path = write({numbers("x", {3}), numbers("y", {2}), numbers("scalar", {})});
    const Error counts = error_of({path}, {{"x", "x"}, {"y", "y"}});
    EXPECT_EQ(counts.code(), "E209");
    EXPECT_THAT(counts.what(), HasSubstr("a.h5' has 3 rows of 'x' and 2 of 'y'"));
    EXPECT_THAT(counts.fix(), HasSubstr("lockstep data inspect "));
    EXPECT_EQ(error_of({path}, {{"x", "none"}}).code(), "E207");
    EXPECT_THAT(error_of({path}, {{"x", "scalar"}}).why(), HasSubstr("no dimensions"));
    EXPECT_THAT(
        error_of_one({.path = "x", .type = H5T_C_S1, .size = {2}, .bytes = encoded<char>({0, 0})})
            .why(),
        HasSubstr("text is read as labels only"));
    EXPECT_EQ(error_of({folder_ / "none"}, {{"x", "x"}}).code(), "E201");
    const auto text = folder_.file("text", std::string(4096, 'x'));
    EXPECT_EQ(error_of({text}, {{"x", "x"}}).code(), "E203");
    fs::resize_file(path, fs::file_size(path) / 2);
    EXPECT_EQ(error_of({path}, {{"x", "x"}}).code(), "E204");
}

TEST_F(Hdf5Source, NoticesChunksThatAreDamaged) {
    const fs::path path = write({{.path = "x",
                                  .size = {16384},
                                  .chunk = {16384},
                                  .bytes = test::random_bytes(16384, 1),
                                  .filters = {{H5Z_FILTER_FLETCHER32, {}}}}});
    test::overwrite(path, fs::file_size(path) / 2, "\x55\xaa\x55\xaa");
    const Error error = error_of({path}, {{"x", "x"}});
    EXPECT_EQ(error.code(), "E213");
    EXPECT_THAT(error.what(), HasSubstr("a.h5' is damaged: field 'x'"));
}

// Labels of h5py's files and numpy's own, streamed and packed: what numpy holds is what comes out.
// All other files of h5py: data/foreign_matrix.

// Debian's own: h5py is not in other Pythons.
constexpr const char* python = "/usr/bin/python3";

// Writes NAME.npy and NAME.bin, as it is to be read; prints the names but that of labels.
constexpr const char* numpy_writer = R"(
import numpy as np, sys
folder = sys.argv[1]
rng = np.random.default_rng(2)
for order in '<>':
    for kind, kept in dict(i1='i4', i2='i4', u2='i4', i4='i4', u4='i8', i8='i8', f2='f4', f4='f4', f8='f8').items():
        values = rng.integers(0, 100, (30, 3, 2)) if kind[0] == 'u' else rng.integers(-99, 100, (30, 3, 2))
        name = kind + ('_little' if order == '<' else '_big')
        np.save(f'{folder}/{name}.npy', (values / (4 if kind[0] == 'f' else 1)).astype(order + kind))
        np.load(f'{folder}/{name}.npy').astype('<' + kept).tofile(f'{folder}/{name}.bin')
        print(name)
truth = rng.integers(0, 2, (30, 3, 2)) > 0
np.save(folder + '/truth.npy', truth)
truth.tofile(folder + '/truth.bin')
print('truth')
labels = rng.integers(0, 9, 30)
np.save(folder + '/labels.npy', labels.astype('>u8'))
labels.astype('<i8').tofile(folder + '/labels.bin')
)";

// A virtual data set of a file that is not there.
constexpr const char* lost_part = R"(
import h5py, sys
lost = h5py.VirtualLayout((100, 6), 'i4')
lost[:] = h5py.VirtualSource('nowhere.h5', 'x', (100, 6))
with h5py.File(sys.argv[1] + '/lost.h5', 'w') as file:
    file.create_virtual_dataset('lost', lost)
)";

// Labels in all forms, the class of each sample as i8, and then names of classes.
constexpr const char* labeller = R"(
import h5py, numpy as np, sys
folder = sys.argv[1]
rng = np.random.default_rng(3)
y = rng.integers(0, 3, 2000)
text = np.array(['cat', 'dog', 'm\u00fccke'])
enum = h5py.enum_dtype({'cat': 0, 'dog': 1, 'm\u00fccke': 2}, basetype='>i2')
text8 = np.array([name.encode() for name in text])
cases = {
    'variable=/variable': (text[y].astype(object), dict(dtype=h5py.string_dtype())),
    'ascii=/ascii': (np.array(['a', 'b', 'c'])[y].astype(object), dict(dtype=h5py.string_dtype('ascii'))),
    'gzip=/gzip': (text[y].astype(object), dict(dtype=h5py.string_dtype(), compression='gzip', chunks=(99,))),
    'fixed=/fixed': (text8[y], dict(chunks=(77,), compression='gzip')),
    'column=/column': (text8[y][:, None], {}),
    'enum=/enum': (y, dict(dtype=enum, chunks=(64,), compression='gzip')),
    'bool=/bool': (y > 0, {}),
    'hot=/hot:onehot': (np.eye(3)[y], dict(chunks=True, compression='gzip')),
    'flags=/flags:onehot': (np.eye(3, dtype=bool)[y], {}),
    'reals=/reals:label': (y.astype('>f4'), dict(chunks=(100,))),
    'wide=/wide': (y.astype('>u8')[:, None], {}),
}
with h5py.File(folder + '/labels.h5', 'w') as file:
    for name, (values, options) in cases.items():
        name = name.split('=')[0]
        file.create_dataset(name, data=values, **options)
        ((y > 0) if name == 'bool' else y).astype('i8').tofile(f'{folder}/{name}.bin')
print(*cases)
)";

class H5pyFiles : public InFolder {
  protected:
    void SetUp() override {
        if (!fs::exists(python) || run_process({python, "-c", "import h5py"}).exit_code != 0)
            GTEST_SKIP() << "python3-h5py is not installed";
    }
    // What the script prints, which is given the folder.
    std::string run(const char* script) {
        const ProcessResult result = run_process({python, "-c", script, folder_.path().string()});
        EXPECT_EQ(result.exit_code, 0) << result.output;
        return result.output;
    }
};

TEST_F(H5pyFiles, LabelsInAllFormsAreTheirClassesStreamedAndPacked) {
    std::istringstream cases(run(labeller));
    const fs::path file = folder_ / "labels.h5";
    std::size_t count = 0;
    for (std::string each; cases >> each; ++count) {
        SCOPED_TRACE(each);
        const std::string name = each.substr(0, each.find('='));
        const std::string wanted = content_of(folder_ / (name + ".bin"));
        FieldMapping field = parse_field_mapping(each);
        field.name = "labels";
        const auto source = open_hdf5({file}, {field});
        EXPECT_TRUE(std::ranges::equal(test::rows_of(*source), bytes_of(wanted)));
        const auto index = DatasetIndex::open_foreign({file}, {field});
        const Field& streamed = index.fields()[0];
        EXPECT_EQ(streamed.class_names, source->fields()[0].class_names);
        EXPECT_EQ(streamed.classes(), name == "bool" ? 2 : 3);
        const std::vector<std::byte> rows = test::streamed(index, 0);
        std::vector<std::int64_t> classes(index.samples());
        for (std::size_t i = 0; i < classes.size(); ++i)
            std::memcpy(&classes[i],
                        rows.data() + i * streamed.bytes_per_sample(),
                        streamed.bytes_per_sample());
        EXPECT_EQ(test::bytes_in(classes), wanted);
    }
    EXPECT_EQ(count, 11u);
    const auto text = DatasetIndex::open_foreign({file}, {{"labels", "/variable"}});
    EXPECT_THAT(text.fields()[0].class_names,
                ElementsAre("cat",
                            "dog",
                            "m\xc3\xbc"
                            "cke"));
}

TEST_F(H5pyFiles, NpyOfAnyNumberTypeHoldsWhatNumpyHolds) {
    std::istringstream names(run(numpy_writer));
    std::size_t count = 0;
    for (std::string name; names >> name; ++count) {
        const std::string wanted = content_of(folder_ / (name + ".bin"));
        const auto source = open_npy({{"values", folder_ / (name + ".npy")}});
        EXPECT_TRUE(std::ranges::equal(test::rows_of(*source), bytes_of(wanted))) << name;
    }
    EXPECT_EQ(count, 19u);
    const std::string labels = folder_ / "labels.npy";
    const auto source = open_npy({{"labels", labels}});
    EXPECT_TRUE(
        std::ranges::equal(test::rows_of(*source), bytes_of(content_of(folder_ / "labels.bin"))));
    const Error error = test::error_of([&] { open_npy({{"values", labels}}); });
    EXPECT_EQ(error.code(), "E214");
    EXPECT_THAT(error.why(), HasSubstr("for labels only"));
}

TEST_F(H5pyFiles, NameAFileTheyLeadToThatIsMissing) {
    run(lost_part);
    const auto open = [&] {
        return open_hdf5({folder_ / "lost.h5"},
                         {{"values", "lost"}},
                         ImageLayout::unstated,
                         {.links = Links::followed});
    };
    const Error lost = test::error_of([&] { test::rows_of(*open()); });
    EXPECT_EQ(lost.code(), "E213");
    EXPECT_THAT(lost.text(), HasSubstr("'nowhere.h5' is missing"));
}

}  // namespace
}  // namespace lockstep
