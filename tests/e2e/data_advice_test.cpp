// SPDX-License-Identifier: Apache-2.0
// What the program advises about data is done as it says: each command is copied and run.
#include "program.hpp"

#include <algorithm>
#include <iomanip>
#include <regex>
#include <sstream>

namespace lockstep::test {
namespace {

class DataAdvice : public RunsTest {};

// From the first word of a command to the end of the line.
std::string command_in(const std::string& output) {
    const std::string fix = output.substr(std::min(output.find("  fix: "), output.size()));
    std::size_t begin = fix.npos;
    for (const char* word : {"python3 -", "for f in ", "lockstep data ", "mkdir ", "sed "})
        begin = std::min(begin, fix.find(word));
    return begin == fix.npos ? "" : fix.substr(begin, fix.find('\n', begin) - begin);
}

// From `begin` on to the end of the word.
std::string option_in(const std::string& output, const std::string& begin) {
    const std::size_t at = output.find(begin, output.find("  fix: "));
    EXPECT_NE(at, output.npos) << output;
    return output.substr(std::min(at, output.size()),
                         output.find_first_of(" ,;\n", at + begin.size()) - at);
}

// A mistake, and what works once the advice about it was followed: its command was run, or the
// option that begins so is added. The line has both, as "common {mistaken|right} common".
struct Advised {
    std::string code, name, option, python, line;

    std::string mistaken() const { return chosen("$1"); }
    std::string right() const { return chosen("$2"); }
    std::string chosen(const char* one) const {
        return std::regex_replace(line, std::regex("\\{([^|]*)\\|([^}]*)\\}"), one);
    }
};

void PrintTo(const Advised& advised, std::ostream* out) {
    *out << advised.name;
}

class DataAdviceWorks : public DataAdvice, public testing::WithParamInterface<Advised> {};

TEST_P(DataAdviceWorks, AsItIsPrinted) {
    const Advised& advised = GetParam();
    python(advised.python);
    const std::string refused = output_of(shell(advised.mistaken()), testing::Ne(0));
    EXPECT_THAT(refused, has("error " + advised.code + ": "));
    if (!advised.option.empty()) {
        const std::string option = option_in(refused, advised.option);
        EXPECT_THAT(shell(advised.right() + " " + option), ends(0)) << option << '\n';
        return;
    }
    const std::string command = command_in(refused);
    ASSERT_NE(command, "") << refused;
    ASSERT_THAT(shell(command), ends(0)) << command << '\n';
    EXPECT_THAT(shell(advised.right()), ends(0)) << refused;
}

// Each is "# CODE NAME" or "# CODE NAME "OPTION"", the Python that makes its files, where they are
// not those of the mistake before, and its line after "$ ". `inspect` opens fields as `train` does.
constexpr const char* advised_mistakes = R"(
# E207 LabelsInASecondFile
for i in 1, 2:
  h5py.File(f'x{i}.h5', 'w').update({'x': n.zeros((12, 8, 8, 3), 'u1')})
  h5py.File(f'y{i}.h5', 'w').update({'y': n.arange(12) % 2})
$ lockstep data inspect {x1.h5 x2.h5 y1.h5 y2.h5|NAME.h5} --field images=/x:HWC
$ --field labels=/y:label
# E209 SamplesLast
f = h5py.File('m.mat', 'w'); f['x'] = n.zeros((8, 8, 3, 12)); f['y'] = n.arange(12)[None] % 2
$ lockstep data inspect {m.mat|NAME} --field images=/x:HWC --field labels=/y:label
# E209 SamplesLastToPack
$ lockstep data pack --out P --hdf5 {m.mat|NAME} --field images=/x:HWC --field labels=/y:label
# E234 OneLabelAFile
import os; os.mkdir('s')
for i in range(6):
  h5py.File(f's/{i}.h5', 'w').update({'x': n.zeros((8, 8, 3), 'u1'), 'y': n.int64(i % 2)})
$ lockstep data inspect {'s/*.h5' --field labels=/y --field images=/x:HWC|NAME}
# E235 OneSampleAFile
import os; os.mkdir('s')
for i in range(6):
  h5py.File(f's/{i}.h5', 'w').update({'x': n.zeros((16, 16, 3), 'u1'), 'm': n.eye(16, dtype='u1')})
$ lockstep train --run R --data {s --field images=/x:HWC --field masks=/m|NAME --model unet
$ --width 4 --batch 2 --max-steps 1}
# E234 EncodedImages
f = h5py.File('e.h5', 'w'); f['y'] = n.arange(12) % 2
d = f.create_dataset('x', (12,), dtype=h5py.vlen_dtype('u1'))
for i in range(12): d[i] = n.frombuffer(b'P6 8 8 255 ' + bytes([9 * i]) * 192, 'u1')
$ lockstep train --run R --data {e.h5 --field images=/x --field labels=/y|NAME --model mlp
$ --batch 4 --max-steps 1}
# E207 ADataSetASample
f = h5py.File('g.h5', 'w')
for i in range(12): f[f'x/{i}.jpg'] = n.full((8, 8, 3), i, 'u1')
f['y'] = n.arange(12)
$ lockstep data inspect {g.h5|NAME} --field images=/x:HWC --field labels=/y:label
# E217 Volumes
x, y = n.zeros((12, 1, 4, 4, 4), 'f4'), n.arange(12) % 2
h5py.File('v.h5', 'w').update({'x': x, 'y': y}); n.save('x.npy', x); n.save('y.npy', y)
$ lockstep train --run R --batch 4 --max-steps 1 --data {v.h5|NAME} --field images=/x{|:CHW}
$ --field labels=/y
# E214 VolumesToPack
$ lockstep data pack --out P --hdf5 {v.h5|NAME} --field images=/x{|:CHW} --field labels=/y
# E214 VolumesOfNumPyToPack
$ lockstep data pack --out P --npy images={x|NAME}.npy --npy labels=y.npy{| --layout chw}
# E216 ArraysInAZipToTrain
n.savez('m.npz', x=n.zeros((12, 4, 4), 'u1'), y=n.arange(12) % 2)
$ lockstep {train --run R --data m.npz|data pack --out P --npy images=NAME/x.npy
$ --npy labels=NAME/y.npy}
# E209 SamplesLastOfNumPy
n.save('x.npy', n.zeros((12, 4, 4), 'u1')); n.save('y.npy', n.ones((1, 12), 'i8'))
$ lockstep data pack --out P --npy images=x.npy --npy labels={y|NAME}.npy
# E214 TextsAsObjectsOfNumPy
n.save('x.npy', n.zeros((12, 4))); n.save('y.npy', n.array(['a', 'b'] * 6, object))
$ lockstep data pack --out P --npy features=x.npy --npy labels={y|NAME}.npy
# E214 FortranOrderInAnArchive
n.savez_compressed('m.npz', **{'a b': n.asfortranarray(n.zeros((12, 4))), 'y': n.ones(12)})
$ lockstep data pack --out P --npy {'features=m.npz:a b'|features=NAME.npy}
# E214 AnotherArrayOfAnArchiveInFortranOrder "--npy features=m.npz:"
n.savez('m.npz', x=n.asfortranarray(n.zeros((12, 4))), good=n.zeros((12, 4)))
$ lockstep data pack --out P {--npy features=m.npz:goof|}
# E214 FortranOrder
n.save('x.npy', n.asfortranarray(n.zeros((12, 4))))
$ lockstep data pack --out P --npy features={x|NAME}.npy
# E214 TextsOfNumPy
n.save('x.npy', n.zeros((12, 4))); n.save('y.npy', n.array(['a', 'b'] * 6))
$ lockstep data pack --out P --npy features=x.npy --npy labels={y|NAME}.npy
# E214 FloatLabelsOfNumPy
n.save('x.npy', n.zeros((12, 4))); n.save('y.npy', n.arange(12.) % 2)
$ lockstep data pack --out P --npy features=x.npy --npy labels={y|NAME}.npy
# E239 CellsWithoutAValue
open('t.csv', 'w').write('a,b,kind\n1,2,u\n,2,v\nNA,3,u\n4,4,v\n')
$ lockstep data pack --out P --csv {t|NAME}.csv --label kind
# E239 TargetsWithText
open('t.csv', 'w').write('a,y\n1,2\n2,"it\'s"\n3,4\n')
$ lockstep data pack --out P --csv {t|NAME}.csv --target y
# E214 CifarForPython
import os, pickle; os.mkdir('c'); batch = {b'labels': [1, 2], b'data': n.zeros((2, 3072), 'u1')}
for i in range(1, 6): pickle.dump(batch, open(f'c/data_batch_{i}', 'wb'))
$ lockstep data pack --out P --cifar10 c
# E214 AFlatFolderOfImages
import os; os.mkdir('d'); open('d/a.pgm', 'wb').write(b'P5 4 4 255 ' + bytes(16))
$ lockstep data pack --out P --folder {d|NAME}
# E216 TwoPackedDataSets
n.save('x.npy', n.zeros((12, 4, 4), 'u1')); n.save('y.npy', n.arange(12) % 2)
$ {lockstep data pack --npy images=x.npy --npy labels=y.npy --out A >o &&
$ lockstep data pack --npy images=x.npy --npy labels=y.npy --out B >o &&
$ |}lockstep data inspect {A B|NAME}
# E210 LabelsBelowZero
h5py.File('f.h5', 'w').update({'x': n.zeros((12, 8, 8, 3), 'u1'), 'y': n.arange(12) % 3 - 1})
$ lockstep data inspect {f.h5|NAME} --field images=/x:HWC --field labels=/y:label
# E210 EmptyTexts
h5py.File('f.h5', 'w').update({'x': n.zeros((12, 8, 8, 3), 'u1'), 'y': n.array([b'a', b''] * 6)})
$ lockstep data inspect f.h5 --field images=/x:HWC --field labels=/y:label
# E208 FilesOfTwoTypes
for k in 'f4', 'f8': h5py.File(k + '.h5', 'w').update({'v': n.zeros((5, 3), k)})
$ lockstep data inspect f4.h5 {|NAME/}f8.h5 --field values=/v
# E214 UnknownKinds
h5py.File('f.h5', 'w').update({'x': n.zeros((12, 4, 4, 3), 'u1'), 'y': n.arange(12.) % 2})
$ lockstep data {pack --out P --csv|inspect} f.h5
# E217 FloatsAsClasses "--field labels=/y"
f = h5py.File('f.h5', 'w'); f['x'] = n.zeros((12, 4, 4, 3), 'u1'); f['y'] = n.arange(12.) % 2
f['m'] = n.zeros((12, 4, 4)); f['m'][0] = 1; f['k'] = n.eye(3, dtype='i8')[n.arange(12) % 3] * 3
$ lockstep train --run R --batch 4 --max-steps 1 --model mlp --data f.h5 --field images=/x:HWC
$ {--field labels=/y|}
# E217 FloatsAsTargets "--field targets=/y"
$ lockstep train --run R --batch 4 --max-steps 1 --model mlp --data f.h5 --field images=/x:HWC
$ {--field labels=/y|}
# E214 FloatsAsClassesToPack "--field labels=/y"
$ lockstep data pack --out P --hdf5 f.h5 {--field labels=/y|}
# E217 MasksAsLabels "--field masks=/m"
$ {lockstep train --run R --batch 4 --max-steps 1 --model mlp --data f.h5 --field images=/x:HWC
$ --field labels=/m|lockstep data inspect f.h5 --field images=/x:HWC}
# E210 NumbersAsFlags "--field targets=/k"
$ {|rm -r R && }lockstep train --run R --batch 4 --max-steps 1 --model mlp --data f.h5
$ --field images=/x:HWC {--field labels=/k|}
# E207 ANearName "--field labels=/y"
$ lockstep train --run R --batch 4 --max-steps 1 --model mlp --data f.h5 --field images=/x:HWC
$ {--field labels=/yy|--task regression --field targets=/y}
# E217 MasksOfAPlaneForEachClass
x, m = n.zeros((12, 16, 16), 'u1'), n.tile(n.eye(16, dtype='u1'), (12, 1, 1))
h5py.File('f.h5', 'w').update({'x': x, 'm': n.stack([1 - m, m], 1), 'c': m[..., None]})
$ lockstep train --run R --batch 4 --max-steps 1 --model unet --width 4 --data {f.h5|NAME}
$ --field images=/x --field masks=/m
# E217 MasksWithADimensionOfOne
$ lockstep train --run R --batch 4 --max-steps 1 --model unet --width 4 --data {f.h5|NAME}
$ --field images=/x --field masks=/c{:HWC|}
# E214 AnArrayOfAnArchive "--npy images=m.npz:"
n.savez_compressed('m.npz', x=n.zeros((12, 4, 4), 'u1'), y=n.arange(12) % 2)
$ lockstep data pack --out P {--npy images=m.npz |}--npy labels=m.npz:y
# E214 AnArrayOfAnArchiveAsImages "--npy images=m.npz:"
n.savez('m.npz', x=n.zeros((12, 4, 4), 'u1'), y=n.arange(12) % 2)
$ lockstep data pack --out P {--images m.npz --labels |--npy labels=}m.npz:y
# E216 FieldsToPredict "--field images="
x = r.integers(0, 256, (12, 3, 8, 8)).astype('u1'); h5py.File('f.h5', 'w')['scan'] = x
n.save('x.npy', x); n.save('y.npy', n.arange(12) % 2)
$ {lockstep data pack --out P --npy images=x.npy --npy labels=y.npy >o &&
$ lockstep train --data P --run R --model mlp --batch 4 --max-steps 1 >o &&
$ |}lockstep predict R --data f.h5 --out o.csv
# E239 DecimalsOfTheOtherTable "--decimal "
open('t.csv', 'w').write('a;kind\n0,5;u\n1,5;v\n'); open('u.csv', 'w').write('a\n0.5\n')
$ {lockstep data pack --csv t.csv --label kind --separator semicolon --decimal comma --out A >o &&
$ |}lockstep data pack --out P --csv u.csv --like A
# E106 AnotherSeparator "--separator "
open('t.csv', 'w').write('a;kind\n0.5;u\n1.5;v\n')
$ lockstep data pack --out P --csv t.csv --label kind
# E239 AnotherSeparatorWithoutALabel "--separator "
open('t.csv', 'w').write('a;b\n0.5;1\n1.5;2\n')
$ lockstep data pack --out P --csv t.csv
)";

std::vector<Advised> advised() {
    std::vector<Advised> found;
    std::istringstream lines(advised_mistakes);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("# ")) {
            std::istringstream words(line.substr(2));
            Advised& begun = found.emplace_back();
            words >> begun.code >> begun.name >> std::quoted(begun.option);
        } else if (line.starts_with("$ ")) {
            found.back().line += line.substr(1);
        } else if (!line.empty()) {
            found.back().python += line + "\n";
        }
    }
    for (std::size_t i = 1; i < found.size(); ++i)
        if (found[i].python.empty()) found[i].python = found[i - 1].python;
    return found;
}

INSTANTIATE_TEST_SUITE_P(Data, DataAdviceWorks, testing::ValuesIn(advised()), [](const auto& of) {
    return of.param.name;
});

// The same bits as of one file, and the same rows in packed data.
TEST_F(DataAdvice, LabelsInASecondFileAreNamedWithTheirField) {
    python(R"(
x = r.integers(0, 256, (24, 8, 8, 3)).astype('u1'); y = n.arange(24) % 2
h5py.File('x.h5', 'w')['x'] = x; h5py.File('y.h5', 'w')['y'] = y.reshape(24, 1, 1, 1)
f = h5py.File('one.h5', 'w'); f['x'] = x; f['y'] = y[None])");
    const std::string train = "lockstep train --model mlp --batch 8 --max-steps 3 ";
    const std::string fields = "--field images=/x:HWC --field labels=/y:label";
    const ProcessResult refused = shell(train + "--run R --data x.h5 --data y.h5 " + fields);
    ASSERT_THAT(refused, says("error E207: "));
    const std::string begin = " with their fields: ";
    const std::string advised = line_from(refused.output, begin).substr(begin.size());
    EXPECT_THAT(shell(fmt::format(R"(
{train} --run R --data x.h5 {advised} | grep ^param >r
{train} --run Q --data one.h5 {fields} | grep ^param >q
cat r
cmp r q && mkdir away && cd away && lockstep train --resume ../R --max-steps 4 --accept-data &&
lockstep eval ../R --data ../one.h5 {fields} && cd .. &&
lockstep data pack --hdf5 x.h5 --out P {advised} &&
lockstep data pack --hdf5 one.h5 --out Q1 {fields} &&
lockstep data export P --out p && lockstep data export Q1 --out q1 &&
cmp p/labels.npy q1/labels.npy)",
                                  fmt::arg("train", train),
                                  fmt::arg("fields", fields),
                                  fmt::arg("advised", advised))),
                ends(0, "param"))
        << refused.output;
    // Each fix that has no command leads to the command above.
    const std::string inspect = "lockstep data inspect x.h5 --field ";
    EXPECT_THAT(shell(inspect + "images=x.h5:/x:HWC --field labels=y.h5:/y"), says("labels"));
    EXPECT_THAT(shell(inspect + "images=one.h5:/x:HWC --field labels=y.h5:/y"),
                says("error E235: each field has a file of its own"));
    EXPECT_THAT(shell("cp x.h5 z.h5; lockstep data inspect x.h5 z.h5 --field images=/x:HWC --field "
                      "labels=x.h5:/x"),
                says("error E235: "));
    EXPECT_THAT(
        shell("lockstep data inspect x.h5 z.h5 --field images=/x:HWC --field labels=y.h5:/y "
              "&& exit 1; lockstep data inspect y.h5"),
        says("error E209: "));
    EXPECT_THAT(shell(train + "--run S --data one.h5 --field images=/x:HWC --field "
                              "labels=y.h5:/y --test-data x.h5 --test-field images=/x:HWC"),
                says("error E105: where is field 'labels'"));
}

// The last command that is shown for files of public data is run.
TEST_F(DataAdvice, InspectKnowsSamplesOfTheirOwnFilesAndColumnsAcross) {
    python(R"(
import os; [os.mkdir(k) for k in 'spg']
for i in range(8):
  h5py.File(f's/{i}.h5', 'w').update({'full': r.normal(size=(4, 4, 2)), 'target': 1.0 * i})
  h5py.File(f'p/{i}.h5', 'w').update({'x': n.zeros((16, 16, 4), 'f4'), 'y': n.eye(16, dtype='u1')})
h5py.File('m.mat', 'w').update({'X': r.normal(size=(24, 8, 8)), 'Y': n.arange(24.)[None] % 2})
f = h5py.File('e.h5', 'w'); f['y'] = n.arange(12) % 2; g = h5py.File('g/g.h5', 'w')
d = f.create_dataset('x', (12,), dtype=h5py.vlen_dtype('u1'))
for i in range(12):
  d[i] = n.frombuffer(b'P6 8 8 255 ' + bytes([9 * i]) * 192, 'u1')
  g[f'all/{i}'] = n.zeros(192 + i, 'u1')
h5py.File('x.h5', 'w')['x'] = n.zeros((12, 4, 4, 3), 'u1')
h5py.File('y.h5', 'w')['y'] = n.arange(12).reshape(12, 1, 1) % 2
h5py.File('v.h5', 'w').update({'x': n.zeros((12, 1, 4, 4, 4), 'f4'), 'y': n.arange(12) % 2})
x, m = n.zeros((12, 16, 16), 'u1'), n.tile(n.eye(16, dtype='u1'), (12, 1, 1))
h5py.File('c.h5', 'w').update({'x': n.zeros((3, 8, 8, 12), 'u1'), 'y': n.arange(12) % 2})
h5py.File('k.h5', 'w').update({'image': x, 'mask': m[..., None]})
h5py.File('o.h5', 'w').update({'image': x, 'mask': n.stack([1 - m, m], 1)})
h5py.File('r.h5', 'w').update({'t2m': x, 'rain': n.arange(12.) / 8}))");
    const char* const then_inspect = " && lockstep data inspect NAME && rm -r NAME";
    const std::pair<const char*, const char*> files[]{
        {"'s/*.h5'", " --out S && lockstep train --data S --model mlp --batch 4"},
        {"'p/*.h5'", " --out P && lockstep train --data P --model unet --width 4 --batch 2"},
        {"m.mat", ""},
        {"e.h5", " --out E && lockstep train --data E --batch 4"},
        {"x.h5 y.h5", ""},
        {"y.h5 x.h5", ""},
        {"v.h5", then_inspect},
        {"c.h5", then_inspect},
        {"k.h5", then_inspect},
        {"o.h5", then_inspect},
        {"r.h5", ""}};
    for (const auto& [file, then] : files) {
        const std::string shown = shell(std::string("lockstep data inspect ") + file).output;
        std::size_t at = shown.rfind("lockstep ");
        if (const std::size_t python = shown.rfind("python3 -"); python != shown.npos) at = python;
        ASSERT_NE(at, shown.npos) << shown;
        std::string command = shown.substr(at, shown.find('\n', at) - at);
        if (const std::size_t out = command.find(" --out NAME"); out != command.npos)
            command = command.substr(0, out) + then + " --run runs/new";
        else
            command += then;
        const bool trains = command.find("lockstep train") != command.npos;
        if (trains) command += " --max-steps 1 && rm -r runs";
        const ProcessResult worked = shell(command);
        EXPECT_EQ(worked.exit_code, 0) << shown << command << worked.output;
        EXPECT_TRUE(trains || worked.output.find("\n  lockstep train --data") != command.npos)
            << shown << command << worked.output;
    }
    EXPECT_THAT(shell("lockstep data inspect g"),
                says("no command to train on it: '/all' is a group of data sets"));
    EXPECT_THAT(shell("lockstep train --data v.h5 --run V"),
                says("such as --field features=/x --field labels=/y"));
}

// '--sample-a-file' would pack the first group alone.
TEST_F(DataAdvice, InspectStacksGroupsThatAreSamples) {
    python(R"(
f = h5py.File('g.h5', 'w'); f['about'] = n.arange(3); f['info/x'] = n.arange(4)
for i in range(24): f[f's{i}/image'] = n.full((8, 8, 3), i, 'u1'); f[f's{i}/label'] = i % 2
f = h5py.File('m.h5', 'w')
for i in range(3):
  f[f'{i}/image'] = n.zeros((64, 64, 3), 'u1'); f[f'{i}/mask'] = n.eye(64, dtype='u1'))");
    const std::string shown = output_of(shell("lockstep data inspect g.h5"));
    EXPECT_THAT(shown, has("if each group is a sample"));
    ASSERT_THAT(shell(command_in(shown)), ends(0)) << shown;
    python(
        "f=h5py.File('NAME/g.h5'); "
        "assert [int(x[0,0,0]) for x in f['image']]==list(range(24)) and f['label'][3]==1");
    EXPECT_THAT(shell("lockstep data inspect m.h5"), ends(0, "  if each group is a sample"));
    const std::string line =
        line_from(output_of(shell("lockstep data inspect NAME")), "lockstep train");
    EXPECT_THAT(shell(line + " --max-steps 1"), ends(0));
}

// A number in place of a missing target would be learned.
TEST_F(DataAdvice, InspectLeavesOutSamplesWithoutATarget) {
    python(
        "y=n.arange(24.)/2; y[5]=n.nan; "
        "h5py.File('f.h5','w').update({'x':n.arange(96.).reshape(24,4),'y':y})");
    const std::string fields = " --field features=/x --field targets=/y";
    const std::string shown = output_of(shell("lockstep data inspect f.h5" + fields));
    EXPECT_THAT(shown, has("no command to train on it: some numbers of 'targets' are not"));
    ASSERT_THAT(shell(command_in(shown)), ends(0)) << shown;
    python(
        "f=h5py.File('NAME/f.h5'); x,y=f['x'][()],f['y'][()]; "
        "assert len(y)==23 and (y==x[:,0]/8).all() and 2.5 not in y");
    EXPECT_THAT(shell("lockstep data inspect NAME" + fields), ends(0, "\n  lockstep train --data"));
}

// Each line trains, and what stands beneath it is true of the file.
TEST_F(DataAdvice, InspectFollowsAttributesAndSaysWhatIsNotLearned) {
    python(R"(
def packed(name, hole, **more):
  x = r.integers(-99, 99, (24, 8, 8)).astype('i2'); x[3, 2] = hole
  f = h5py.File(name, 'w'); f.update({'t2m': x, **more})
  f['t2m'].attrs.update(scale_factor=0.01, add_offset=273.15, _FillValue=n.int16(-999)); f.close()
packed('whole.nc', 0, labels=n.arange(24) % 3)
packed('holes.nc', -999, y=n.arange(24).astype('i2'))
h5py.File('holes.nc', 'a')['y'].attrs['scale_factor'] = 0.5
x = r.normal(size=(24, 8, 6))
h5py.File('same.h5', 'w').update({'x': x, 'targets': n.full(24, 3.5)})
h5py.File('steps.h5', 'w').update({'x': x, 'labels': r.integers(0, 4, (24, 8))})
h5py.File('v.h5', 'w').update({'x': r.normal(size=(24, 8, 6, 6)), 'labels': n.arange(24) % 3})
h5py.File('one.h5', 'w').update({'x': x, 'labels': n.arange(24) % 3})
h5py.File('one.h5', 'a')['labels'].attrs['scale_factor'] = 1.0
for k in (0, 1): h5py.File(f'part{k}.h5', 'w').update({'x': x, 'targets': n.full(24, float(k))})
x[0, 0, 0] = n.nan; f = h5py.File('nan.h5', 'w'); f.update({'x': x, 'targets': n.arange(24.)})
f['x'].attrs['valid_range'] = [-9., 9.]; f.close())");
    const std::tuple<const char*, const char*, const char*> files[]{
        {"whole.nc",
         "images=/t2m:cf ",
         " i16 by :cf [24, 8, 8]  contiguous  272.2 .. 274.1, mean 273.2"},
        {"holes.nc", "images=/t2m:cf=273.2 --field targets=/y:cf ", "count as 273.2, the me"},
        {"same.h5", "targets=/targets ", "are 3.5: there is nothing to learn"},
        {"steps.h5", "targets=/labels ", "predicts 8 numbers; no built-in task learns a class"},
        {"v.h5", "images=/x:CHW ", "takes the 8 slices of a sample for channels; "},
        {"one.h5", "labels=/labels ", "train on it"},
        {"'part*.h5'", "targets=/targets ", "as their name says; if these are classes, "}};
    for (const auto& [file, fields, beneath] : files) {
        const std::string shown = output_of(shell(std::string("lockstep data inspect ") + file));
        EXPECT_THAT(shown, has(fields, beneath));
        EXPECT_THAT(shell(line_from(shown, "lockstep train") + " --max-steps 1"), ends(0)) << shown;
    }
    EXPECT_THAT(output_of(shell("lockstep data inspect nan.h5")),
                has("no command to train on it: some numbers of 'images' are not finite"));
    EXPECT_THAT(output_of(shell("lockstep data inspect holes.nc --field images=/t2m:cf=nan --field "
                                "targets=/y:cf")),
                has("no command to train on it: ", "in their place: --field images=/t2m:cf=0\n"));
    EXPECT_THAT(output_of(shell("lockstep data inspect holes.nc --field images=/t2m:cf --field "
                                "targets=/y:cf")),
                has("'images' cannot be read: E236: ", "such as --field images=/t2m:cf=0\n"));
    const std::string volumes = line_from(output_of(shell("lockstep data inspect v.h5")), "python");
    EXPECT_THAT(shell(volumes + " && lockstep data inspect NAME"),
                ends(0, "one of your own takes them: --model FILE --field features=/x "));
}

TEST_F(DataAdvice, InspectSaysHowTargetsAreClasses) {
    python(
        "h5py.File('c.h5','w').update({'data':n.arange(96.).reshape(24,4),'target':n.arange(24)%3}"
        ")");
    EXPECT_THAT(output_of(shell("lockstep data inspect c.h5")),
                has("--field targets=/target ", "classes, write --field labels=/target:label\n"));
    EXPECT_THAT(shell("lockstep train --data c.h5 --field features=/data --field "
                      "labels=/target:label --model mlp --batch 8 --max-steps 1 --run c"),
                ends(0));
}

TEST_F(DataAdvice, InspectMakesClassesOfLabelsBelow0) {
    python(
        "for t,y in ('a',n.arange(24)%3-1),('b',n.arange(24.)%2*2-1): "
        "h5py.File(t+'.h5','w').update({'x':n.arange(96.).reshape(24,4),'labels':y})");
    for (const std::string file : {"a.h5", "b.h5"}) {
        const std::string shown = output_of(shell("lockstep data inspect " + file));
        EXPECT_THAT(shown,
                    has("--field targets=/labels ", "classes are numbered from 0; if these are"));
        const std::string command = line_from(shown, "python3 -c");
        ASSERT_THAT(shell(command + " && mv NAME " + file + "s"), ends(0)) << shown;
        const std::string again = output_of(shell("lockstep data inspect " + file + "s"));
        EXPECT_THAT(again, has("--field labels=/labels ", Not(has("if these are classes"))));
        EXPECT_THAT(shell(line_from(again, "lockstep train") + " --max-steps 1"), ends(0));
    }
}

// What NumPy deflates, and what it stores, are the same rows; so are two data sets, and both.
TEST_F(DataAdvice, ArchivesAndSeveralDataSetsTrain) {
    python(
        "x=r.integers(0,256,(40,8,8)).astype('u1'); y=n.arange(40)%3; k=dict(x=x,y=y[:,None])\n"
        "n.savez('s.npz',**k); n.savez_compressed('d.npz',**k)");
    const std::string train =
        "train() { lockstep train --model mlp --virtual-ranks 2 --batch 8 --max-steps 3 \"$@\"; }";
    EXPECT_THAT(shell(train + R"(
for k in s d; do
  lockstep data pack --npy images=$k.npz:x --npy labels=$k.npz:y --out $k &&
  lockstep data export $k --out $k.npy
done &&
cmp s.npy/images.npy d.npy/images.npy && cmp s.npy/labels.npy d.npy/labels.npy &&
lockstep data pack --npy images=s.npz:x --npy labels=s.npz:y --seed 2 --out t &&
train --data s --data t --run one --np 1 >o && grep joined o && grep ^param o >1 &&
train --data s --data t --run two --np 2 | grep ^param >2 && cmp 1 2 &&
lockstep eval one --data s)"),
                ends(0, "2 packed data sets are joined: 80 samples"));
    EXPECT_THAT(
        shell(train + "\nlockstep data pack --npy features=s.npz:x --npy labels=s.npz:y --out u && "
                      "train --run three --data s --data u || lockstep data inspect u"),
        ends(0, "error E208: "));
}

// The same bits with any ranks, and for whoever uses the run; another way to normalise is told.
TEST_F(DataAdvice, StatisticsOfForeignFilesAreFoundByOnePass) {
    python(R"(
x = r.integers(900, 60000, (600, 1, 8, 8)).astype('u2'); y = n.arange(600) % 3
for k, v in ('x', x), ('z', x // 2), ('f', x.astype('f4') / 7), ('g', (x[:, 0] * 9).astype('u1')):
  h5py.File(k + '.h5', 'w').update({'images': v, 'labels': y}))");
    const std::string fields = "fields='--field images=/images --field labels=/labels'\n";
    for (const std::string name : {"x", "f"})
        EXPECT_THAT(shell(fields + "d=" + name + R"(
train() {
  lockstep train --model mlp --virtual-ranks 4 --batch 32 --max-steps 4 --data $d.h5 $fields "$@"
}
for k in 1 3; do
  train --normalise dataset --run $d$k --np $k --oversubscribe >o || exit 1
  grep -h 'input images' o; grep ^param o >${d}p$k
  cmp ${d}p1 ${d}p$k && cmp ${d}1/data.json $d$k/data.json || exit 1
done
train --normalise ${d}1 --run ${d}5 | grep ^param >p && cmp p ${d}p1 &&
lockstep train --resume ${d}1 --max-steps 5 && lockstep eval ${d}1 --data $d.h5 &&
lockstep predict ${d}1 --data $d.h5 --out $d.csv)"),
                    ends(0, "8, normalised by mean and deviation"));
    const std::string train = fields + R"(
train() {
  lockstep train --model mlp --batch 32 --max-steps 4 --data x.h5 $fields "$@"
}
)";
    EXPECT_THAT(shell(train + "train --run x3 --normalise none"), says("E306"));
    EXPECT_THAT(shell(train + "train --run n --normalise f1"), says("E217: 'f1' has no mean"));
    // A file may go, and another one is told; a run that begins with its weights has them, too.
    EXPECT_THAT(shell(train + R"(
cp x1/data.json s.json && train --run s --normalise s.json &&
lockstep train --resume s --max-steps 5 && rm s.json && lockstep train --resume s --max-steps 6 &&
lockstep train --from s --run s2 --max-steps 1 && lockstep predict s --data x.h5 --out s.csv)"),
                ends(0));
    EXPECT_THAT(shell(fields + R"(lockstep data pack --hdf5 z.h5 $fields --out Z >o
lockstep train --resume s --max-steps 7 --normalise Z)"),
                says("error E306: run 's' was made with other"));
    for (const std::string wrong : {"nowhere", "never", "3/2"})
        EXPECT_THAT(shell(train + "train --run n --normalise " + wrong), says("E103"));
    // Packing finds the same of whole numbers, whatever their order.
    EXPECT_THAT(shell(fields + "lockstep data pack --hdf5 x.h5 $fields --out P"), ends(0));
    python(R"(
import json, math
a, b = [[f for f in json.load(open(p))['fields'] if f['name'] == 'images'][0]
        for p in ('P/manifest.json', 'x1/data.json')]
assert all(math.isclose(a[k][0], b[k][0], rel_tol=1e-9) for k in ('mean', 'std')))");
    // Grey images without a dimension for their channel have one mean, too.
    EXPECT_THAT(shell(fields + "lockstep train --model mlp --batch 32 --max-steps 1 --data g.h5 "
                               "$fields --normalise dataset --run g"),
                ends(0, "W 8, divided by 255, normalised by mean and deviation\n"));
    python(R"(
import json
g = json.load(open('g/data.json'))['fields'][0]; x = h5py.File('g.h5')['images'][()] / 255
assert n.allclose(g['mean'] + g['std'], [x.mean(), x.std()], 1e-9) and len(g['mean']) == 1)");
}

}  // namespace
}  // namespace lockstep::test
