// SPDX-License-Identifier: Apache-2.0
// A run as a thing of its own: resumed without other words, used without its data and in another
// folder, on photos and tables as they are, and as the beginning of another run.
#include "program.hpp"

#include <algorithm>

namespace lockstep::test {
namespace {

ProcessResult in_folder(const fs::path& folder, const std::string& line) {
    return in_shell(folder, "lockstep " + line);
}

// 20 steps of 2 epochs, given with relative paths; the rate falls to 0.
class Alone : public RunsTest {
  protected:
    static void SetUpTestSuite() {
        home_ = std::make_unique<TempDir>();
        fs::copy(train_data(), *home_ / "train", fs::copy_options::recursive);
        fs::create_directory_symlink(test_data(), *home_ / "test");
        EXPECT_THAT(in_folder(home_->path(),
                              "train --data train --test-data test --run a --model mlp "
                              "--channels 8 --batch 60 --virtual-ranks 4 --epochs 2 --schedule "
                              "cosine --keep-best loss --checkpoint-every 5steps --keep last=9 "
                              "--skip-checks all"),
                    ends(0));
        fs::remove_all(*home_ / "train");
    }
    static void TearDownTestSuite() { home_.reset(); }

    /// A copy of the run.
    fs::path copied(const std::string& name) const {
        fs::copy(*home_ / "a", folder_ / name, fs::copy_options::recursive);
        return folder_ / name;
    }
    ProcessResult from_root(const std::string& line) const { return in_folder("/", line); }

    static std::unique_ptr<TempDir> home_;
    const std::string test_ = test_data();
};
std::unique_ptr<TempDir> Alone::home_;

TEST_F(Alone, IsResumedWithoutOtherWords) {
    const fs::path run = copied("run");
    fs::create_directory_symlink(train_data(), *home_ / "train");
    for (const std::int64_t step : {15, 20}) fs::remove_all(checkpoint_of(run, step));
    fs::remove(run / "state.json");  // as if it had been killed after step 10
    const std::string resumed = output_of(from_root("train --resume " + run.string()));
    EXPECT_THAT(resumed, has("resumed from step 10"));
    EXPECT_EQ(state_of(run), "complete, step 20, exit 0");
    EXPECT_EQ(printed_hash(resumed),
              printed_hash(from_root("train --resume " + (*home_ / "a").string()).output));

    const std::string again = fmt::format("train --resume {} ", run.string());
    EXPECT_THAT(
        from_root(again + "--max-steps 5"),
        says("E106: --max-steps 5 ends run '" + run.string() + "' at step 5, and it has done 20"));
    EXPECT_THAT(from_root(again + "--lr 0.5"), says("lr is 0.001 in the run, now 0.5"));
    EXPECT_THAT(from_root(again + "--run b"), says("E106: --resume and --run"));
    EXPECT_EQ(state_of(run), "complete, step 20, exit 0");

    EXPECT_THAT(from_root(again + "--epochs 3"),
                ends(0,
                     "the run was complete after 20 steps and goes on to 30: --schedule cosine "
                     "spans all of them, so the learning rate is 0.00025 now"));
    EXPECT_EQ(state_of(run), "complete, step 30, exit 0");
    EXPECT_THAT(from_root(again), says("the run is complete: 30 of 30 steps"));
    const auto settings_of = [&](const fs::path& of) {
        return from_root("config show --resume " + of.string()).output;
    };
    EXPECT_THAT(settings_of(run), has("\nepochs = 3\n"));
    // As a configuration file they give the whole run once more, bit for bit.
    const fs::path file = folder_.file("a.toml", settings_of(*home_ / "a"));
    const std::string anew = output_of(from_root(
        fmt::format("train --config {} --run {}", file.string(), (folder_ / "anew").string())));
    EXPECT_EQ(printed_hash(anew), printed_hash(resumed));
    fs::remove(*home_ / "train");
}

TEST_F(Alone, IsUsedWithoutItsDataWhereverItIs) {
    const fs::path run = copied("moved");
    const auto evaluated = [&](const std::string& more) {
        return from_root(fmt::format("eval {} --data {} {}", run.string(), test_, more));
    };
    const auto figures = [&](const std::string& more) { return output_of(evaluated(more)); };
    const std::string newest = figures("");
    EXPECT_THAT(newest, has("weights       step 20\n"));
    EXPECT_THAT(figures("--np 2 --oversubscribe"), EndsWith(newest.substr(newest.find("samples"))));
    EXPECT_THAT(figures("--step 5"), has("weights       step 5\n"));
    const auto is_evaluated = testing::AnyOf(has("step 10"), has("step 20"));
    EXPECT_THAT(figures("--step best"), is_evaluated);
    EXPECT_THAT(evaluated("--step 7"), says("E301: there is no checkpoint of step 7"));
    EXPECT_THAT(evaluated("--step last"), says("E103: 'last' is no checkpoint of a run"));
    EXPECT_THAT(evaluated("--step last"),
                says("fix: 'lockstep ckpt ls " + run.string() + "' lists"));
    EXPECT_THAT(
        from_root(fmt::format(
            "export {} --out {} --step best", run.string(), (folder_ / "w.safetensors").string())),
        says("tensors of step", is_evaluated));
    fs::remove(run / "data.json");  // as in runs of earlier versions
    EXPECT_THAT(evaluated(""), says("E201"));
}

// Pixels of 28 x 28, as a grey PNM.
void write_photo(const fs::path& path, const std::string& pixels) {
    write_file_atomically(path, "P5 28 28 255\n" + pixels);
}

TEST_F(Alone, PredictsPhotosAsTheyAre) {
    const std::string run = *home_ / "a";
    const Samples samples = make_samples(5, 3, {.height = 28, .width = 28});
    fs::create_directories(folder_ / "photos");
    fs::create_directories(folder_ / "classes/all");
    for (std::size_t i = 0; i < samples.images.size(); ++i)
        for (const char* folder : {"photos", "classes/all"})
            write_photo(folder_ / folder / fmt::format("p{}.pgm", i), samples.images[i]);
    const auto predicted = [&](const std::string& words) {
        return output_of(in_folder(folder_.path(), fmt::format("predict {} {}", run, words)));
    };
    EXPECT_THAT(predicted("photos --out photos.npy"),
                has("photos.npy: f32 [5, 10], step 20; names in photos.names.json\n"));
    EXPECT_EQ(content_of(folder_ / "photos.names.json"),
              R"({"names":["p0.pgm","p1.pgm","p2.pgm","p3.pgm","p4.pgm"]})"
              "\n");
    EXPECT_THAT(in_folder(folder_.path(), "data pack --folder classes --keep-order --out packed"),
                ends(0));
    predicted("--data packed --out packed.npy --np 2 --oversubscribe");
    EXPECT_EQ(content_of(folder_ / "photos.npy"), content_of(folder_ / "packed.npy"));
    predicted("photos --out c.csv --as classes");
    const std::string lines = content_of(folder_ / "c.csv");
    EXPECT_THAT(lines, StartsWith("file,class\np0.pgm,"));
    EXPECT_EQ(std::ranges::count(lines, '\n'), 6);
    predicted("photos --out p.csv --as probabilities --step 5");
    EXPECT_THAT(content_of(folder_ / "p.csv"), StartsWith("file,0,1,2,3,4,5,6,7,8,9\n"));
    EXPECT_THAT(predicted("photos --out p.h5"), has("p.h5: f32 [5, 10], step 20; with names\n"));
    EXPECT_THAT(content_of(folder_ / "p.h5"), has("p0.pgmp1.pgmp2.pgm"));
    predicted("photos/p1.pgm --out one.csv --as classes");
    EXPECT_THAT(content_of(folder_ / "one.csv"), StartsWith("file,class\np1.pgm,"));
    EXPECT_THAT(lines, has(content_of(folder_ / "one.csv").substr(11)));
    predicted("photos --out c.npy --as classes");
    EXPECT_THAT(content_of(folder_ / "c.npy"), has("'<i8'"));
    // That the outputs exist is said before all photos are read.
    folder_.file("photos/z.png", "no image");
    EXPECT_THAT(in_folder(folder_.path(), fmt::format("predict {} photos --out c.npy", run)),
                says("error E407: 'c.npy' exists"));
    for (const auto& entry : fs::directory_iterator(folder_.path()))
        EXPECT_THAT(entry.path().filename().string(), Not(StartsWith(".")));
}

TEST_F(Alone, PredictsTablesInAnyOrderOfColumns) {
    std::string table = "length,mass,kind\n", other = "id,mass,length\n", twice, less;
    for (int i = 0; i < 64; ++i) {
        const bool is_large = i % 2 == 0;
        table += fmt::format("{},{},{}\n",
                             is_large ? 9 + i : 1 + i,
                             0.1 * i,
                             is_large ? "large" : "\"small, or so\"");
        if (i < 10) other += fmt::format("n{},{},{}\n", i, 0.1 * i, is_large ? 9 + i : 1 + i);
    }
    folder_.file("t.csv", table);
    folder_.file("new.csv", other);
    folder_.file("less.csv", "id,mass\nn0,1\n");
    folder_.file("twice.csv", "mass,length,mass\n1,2,3\n");
    EXPECT_THAT(in_folder(folder_.path(), "data pack --csv t.csv --label kind --out t"), ends(0));
    EXPECT_THAT(in_folder(folder_.path(),
                          "train --data t --run r --model mlp --batch 16 --lr 0.05 "
                          "--max-steps 8 --skip-checks all"),
                ends(0));
    const auto predict = [&](const std::string& words) {
        return in_folder(folder_.path(), "predict r " + words).output;
    };
    predict("t.csv --out all.csv --as classes");
    EXPECT_THAT(content_of(folder_ / "all.csv"), StartsWith("row,class\n0,"));
    const std::string said = predict("new.csv --id id --out new.out.csv");
    EXPECT_THAT(said, has("new.out.csv: f32 [10, 2], step 8\n"));
    EXPECT_THAT(content_of(folder_ / "new.out.csv"), StartsWith("id,large,\"small, or so\"\nn0,"));
    predict("new.csv --out new.npy");
    predict("t.csv --out all.npy");
    const std::string few = content_of(folder_ / "new.npy"), all = content_of(folder_ / "all.npy");
    constexpr std::size_t header = 128, bytes = 10 * 2 * sizeof(float);
    EXPECT_EQ(few.substr(header), all.substr(header, bytes)) << "the same rows, bit for bit";
    EXPECT_THAT(predict("less.csv --out x.csv"), has("has no column 'length'"));
    EXPECT_THAT(predict("twice.csv --out x.csv"),
                has("has two columns with the same name, 'mass'"));
    EXPECT_THAT(predict("t --out t.csv.npy --id id"), has("and --encoding do not go with 't'"));
    EXPECT_THAT(in_folder(folder_.path(), "predict nosuch new.csv --out x.csv"),
                says("E201: cannot open 'nosuch/run.json'"));
    EXPECT_THAT(predict("new.csv --data t --out x.csv"), has("E106"));
}

// Two targets, a column of texts, cells without a value, and one column that is no feature.
TEST_F(Alone, PredictsTablesAsTheTrainingTableWasRead) {
    std::string table = "id;mass;kind;age;y1;y2\n", other = "age;more;kind;mass\n";
    for (int i = 0; i < 64; ++i) {
        const std::string mass = fmt::format("{},{}", i, i % 10),
                          kind = i % 3 == 0 ? "red" : "blue";
        const std::string age = i % 5 == 2 ? "NA" : std::to_string(20 + i);
        table += fmt::format("n{};{};{};{};{};{}\n", i, mass, kind, age, 1000 * i, -i);
        other += fmt::format("{};x;{};{}\n", age, kind, mass);
    }
    folder_.file("t.csv", table);
    folder_.file("new.csv", other);
    folder_.file("green.csv", "mass;kind;age\n1;red;2\n2;green;3\n");
    folder_.file("points.csv", "mass;kind;age\n1.5;red;2\n");
    const auto said = [&](const std::string& words) {
        return in_folder(folder_.path(), words).output;
    };
    EXPECT_THAT(said("data pack --csv t.csv --separator semicolon --decimal comma --drop id "
                     "--categorical kind --missing mean --target y1 --target y2 --out t"),
                has("column 4 ('age'): 13 of 64 cells have no value; they get "
                    "the mean of the others, 51.3725",
                    "column 3 ('kind'): 2 text(s), a number each: blue, red"));
    EXPECT_THAT(said("train --data t --run r --model mlp --batch 16 --max-steps 8 --scale-targets "
                     "--skip-checks all"),
                has("targets: scaled by mean 31500, -31.5 and deviation 18473, 18.473"));
    said("predict r t.csv --id id --out all.csv");
    EXPECT_THAT(content_of(folder_ / "all.csv"), StartsWith("id,y1,y2\nn0,"));
    said("predict r t.csv --out all.npy");
    EXPECT_THAT(said("predict r new.csv --out new.npy --np 2 --oversubscribe"),
                has("they get the training data's mean", "new.npy: f32 [64, 2]"));
    EXPECT_EQ(content_of(folder_ / "new.npy"), content_of(folder_ / "all.npy")) << "bit for bit";
    const std::string unknown = said("predict r green.csv --out x.csv");
    EXPECT_THAT(unknown, has("E239: 'green.csv', line 3, column 2 ('kind'): 'green' is not"));
    EXPECT_THAT(unknown, has("why: these are blue, red"));
    EXPECT_THAT(said("predict r points.csv --out x.csv"), has("fix: give --decimal point"));
    EXPECT_THAT(said("predict r points.csv --decimal point --encoding latin1 --out x.csv"),
                has("x.csv: f32 [1, 2]"));
    EXPECT_THAT(said("data pack --csv points.csv --separator semicolon --like t --decimal point "
                     "--encoding latin1 --out points"),
                has("packed 1 samples"));
    EXPECT_THAT(said("eval r --data t"), ContainsRegex("\ny2  +-?[0-9.]+ +[0-9.]+ "));
    said("export r --out w.safetensors");
    EXPECT_THAT(said("train --data t --run w --model mlp --batch 16 --max-steps 1 --skip-checks "
                     "all --load-weights w.safetensors"),
                has("the weights of 'w.safetensors' give scaled targets, and here they"));
    const std::string tested = said("eval r --data t --json");
    said("data pack --csv t.csv --separator semicolon --like t --target y1 --target y2 --out like");
    EXPECT_THAT(said("data pack --csv t.csv --like t --real f64 --out x"), has("error E106"));
    EXPECT_EQ(said("eval r --data like --json"), tested) << "the same samples and numbers";
    said(
        "data pack --csv t.csv --separator semicolon --like t --target y2 --target y1 --out "
        "turned");
    EXPECT_THAT(said("eval r --data turned"),
                has("column 1 of 'targets' is 'y2', and in the training data "
                    "'y1'; their order is: y1, y2",
                    "again with --target y1 --target y2, in this order"));
}

TEST_F(Alone, TablesOfOtherTargetsAreRefused) {
    std::string table = "a,y,z,k,l\n", times = "time,y\n";
    for (int i = 0; i < 32; ++i) {
        table += fmt::format("{},{},{},{},{}\n", i, 2 * i, 100 - i, i % 2, i % 3 % 2);
        times += fmt::format("{},{}\n", 1'700'000'000 + i, i);
    }
    folder_.file("t.csv", table);
    folder_.file("times.csv", times);
    const auto said = [&](const std::string& words) {
        return in_folder(folder_.path(), words).output;
    };
    for (const auto& [target, other] : {std::pair("y", "z"), std::pair("z", "y")})
        said(fmt::format(
            "data pack --csv t.csv --drop k,l,{} --target {} --out {}", other, target, target));
    for (const auto& [label, other] : {std::pair("k", "l"), std::pair("l", "k")})
        said(fmt::format(
            "data pack --csv t.csv --drop y,z,{} --label {} --out {}", other, label, label));
    const std::string rest = " --model mlp --batch 16 --max-steps 1 --run ";
    said("train --data y" + rest + "ry");
    said("predict ry t.csv --out p.csv");
    EXPECT_THAT(content_of(folder_ / "p.csv"), StartsWith("row,y\n0,"));
    EXPECT_THAT(said("eval ry --data z"), has("'targets' is 'z', and in the training data 'y'"));
    EXPECT_THAT(said("train --data y --data z" + rest + "both"), has("error E208"));
    EXPECT_THAT(said("train --data k --test-data l" + rest + "labels"),
                has("again with --label k, in this order"));
    const std::string steps = "f32 has steps of 128, so that numbers become equal; --real f64";
    EXPECT_THAT(said("data pack --csv times.csv --target y --out f32"), has(steps));
    EXPECT_THAT(said("data pack --csv times.csv --target y --out f64 --real f64"), Not(has(steps)));
}

TEST_F(Alone, BeginsAnotherRun) {
    fs::create_directory_symlink(train_data(), *home_ / "train");
    const std::string source = *home_ / "a";
    const auto begin = [&](const std::string& run, const std::string& more) {
        return in_folder(folder_.path(),
                         fmt::format("train --from {} --run {} {}", source + "@5", run, more));
    };
    const std::string one = output_of(begin("one", "--lr 0.01 --epochs 1"));
    EXPECT_THAT(one,
                has("this is another run than '" + source + "'",
                    "the weights of its step 5 and the state of its optimizer; it has ",
                    "lr 0.001 -> 0.01"));
    EXPECT_EQ(state_of(folder_ / "one"), "complete, step 10, exit 0");
    EXPECT_EQ(printed_hash(begin("two", "--lr 0.01 --epochs 1 --np 2 --oversubscribe").output),
              printed_hash(one));
    EXPECT_THAT(one, Not(has("learned with others")));
    const std::string test = test_data().string();
    EXPECT_THAT(begin("dim", "--max-steps 1 --data " + test),
                says("the weights of '" + source + "' learned with others: --normalise RUN"));
    EXPECT_THAT(begin("kept", "--max-steps 1 --data " + test + " --normalise " + source), ends(0));
    EXPECT_THAT(begin("one", "--lr 0.01 --epochs 1"),
                ends(0, "the run is complete: 10 of 10 steps"));

    EXPECT_THAT(begin("other", "--optimizer sgd --max-steps 1 --epochs 1 --schedule constant"),
                ends(0, ", and a new optimizer; "));
    EXPECT_THAT(begin("both", "--max-steps 1 --epochs 1 --schedule constant"),
                ends(0, "--epochs 1 has no effect, because there is --max-steps 1"));
    EXPECT_THAT(begin("still", "--max-steps 1 --lr 0"), ends(0, "--lr 0 changes no parameter"));
    EXPECT_THAT(begin("shape", "--channels 9 --max-steps 1"), says("E304"));
    EXPECT_THAT(in_folder(folder_.path(), fmt::format("train --from {0} --run {0}", source)),
                says("E106: --from and --run both name"));
    EXPECT_THAT(
        begin("frozen", "--freeze 'fc1.*' --load-skip 'fc2.*' --max-steps 1 --schedule constant"),
        ends(0, "step-000005' loaded, 2 skipped"));

    const auto longer = [&](const char* more) {
        return in_folder(folder_.path(), fmt::format("train --resume frozen --epochs 1 {}", more));
    };
    EXPECT_THAT(longer(""), says("--epochs 1 has no effect, because the run has --max-steps 1"));
    EXPECT_THAT(longer("--max-steps 0"), ends(0));
    EXPECT_EQ(state_of(folder_ / "frozen"), "complete, step 10, exit 0");
    fs::remove(*home_ / "train");
}

}  // namespace
}  // namespace lockstep::test
