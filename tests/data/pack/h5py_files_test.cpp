// SPDX-License-Identifier: Apache-2.0
// Labels of h5py's files and numpy's own, streamed and packed: what numpy holds is what comes out.
// All other files of h5py: data/foreign_matrix.
#include "lockstep/core/process.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/sources.hpp"

#include "data/hdf5/streamed.hpp"
#include "data/samples.hpp"
#include "rows.hpp"

#include <sstream>

#include <gmock/gmock.h>

namespace lockstep {
namespace {

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

class H5pyFiles : public testing::Test {
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
    test::TempDir folder_;
};

TEST_F(H5pyFiles, LabelsInAllFormsAreTheirClassesStreamedAndPacked) {
    std::istringstream cases(run(labeller));
    const fs::path file = folder_ / "labels.h5";
    std::size_t count = 0;
    for (std::string each; cases >> each; ++count) {
        SCOPED_TRACE(each);
        const std::string name = each.substr(0, each.find('='));
        const std::string wanted = test::content_of(folder_ / (name + ".bin"));
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
                testing::ElementsAre("cat",
                                     "dog",
                                     "m\xc3\xbc"
                                     "cke"));
}

TEST_F(H5pyFiles, NpyOfAnyNumberTypeHoldsWhatNumpyHolds) {
    std::istringstream names(run(numpy_writer));
    std::size_t count = 0;
    for (std::string name; names >> name; ++count) {
        const std::string wanted = test::content_of(folder_ / (name + ".bin"));
        const auto source = open_npy({{"values", folder_ / (name + ".npy")}});
        EXPECT_TRUE(std::ranges::equal(test::rows_of(*source), bytes_of(wanted))) << name;
    }
    EXPECT_EQ(count, 19u);
    const std::string labels = folder_ / "labels.npy";
    const auto source = open_npy({{"labels", labels}});
    EXPECT_TRUE(std::ranges::equal(test::rows_of(*source),
                                   bytes_of(test::content_of(folder_ / "labels.bin"))));
    const Error error = test::error_of([&] { open_npy({{"values", labels}}); });
    EXPECT_EQ(error.code(), "E214");
    EXPECT_THAT(error.why(), testing::HasSubstr("for labels only"));
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
    EXPECT_THAT(lost.text(), testing::HasSubstr("'nowhere.h5' is missing"));
}

}  // namespace
}  // namespace lockstep
