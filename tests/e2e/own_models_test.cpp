// SPDX-License-Identifier: Apache-2.0
// What users are told whose own model fails, or is none that ranks can train: that it is theirs to
// mend, in its own words, the same on all ranks. Those that train are in soak/own_models.
#include "program.hpp"
#include "simulated_gpus.hpp"
#include "support/made_up_program.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <regex>

namespace lockstep::test {
namespace {

constexpr int config_code = 78, bad_data_code = 65;

/// A model of support/own_models, and what `train` says of it.
struct Mistake {
    std::string model;
    int exit_code;
    std::string what, why, fix;
    int ranks = 2;
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
    *out << mistake.model;
}

// On one rank: another mistake of its kind is made on two.
Mistake on_one_rank(Mistake mistake) {
    mistake.ranks = 1;
    return mistake;
}

Mistake unusable(const std::string& model, const std::string& why, const std::string& fix = "") {
    const std::string usual =
        "make parameters f32, buffers f32, single whole numbers or bools, each its own and finite";
    return {model,
            config_code,
            "E250: 'own_models.so' is no model for this program",
            why,
            fix.empty() ? usual : fix};
}

Mistake throws(const std::string& model, const std::string& where, const std::string& reason) {
    return {model,
            config_code,
            "E250: the model's " + where + " failed",
            reason,
            "fix the model's " + where};
}

Mistake refuses_data(const std::string& model, const std::string& why) {
    return {model,
            bad_data_code,
            "E217: the model cannot take these data",
            why,
            "fix the model's forward(), which is given f32 [4, 1, 28, 28] here"};
}

Mistake fits_no_target(const std::string& model) {
    return {model,
            bad_data_code,
            "E217: the model is not for this task",
            "its output for 4 sample(s) is [4, 10, 1], the task's targets need [4, 10]",
            "return that shape from the model's forward(), or use the --task that its output is "
            "for"};
}

std::vector<Mistake> mistakes() {
    const std::string none_learns =
        "leave requires_grad true for those that are to learn when it is made, and register them: "
        "a plain list of layers registers none";
    return {
        unusable("AllFrozen", "it has no parameter that learns", none_learns),
        on_one_rank(unusable("BoolBuffer", "buffer 'mask' holds 4 values of type Bool")),
        on_one_rank(unusable(
            "DoubleParameter",
            "parameter 'scale' is Double, not f32",
            "call net.float() before the model is exported or saved; in C++, to(torch::kFloat)")),
        on_one_rank(unusable("NoParameter", "it has no parameter that learns", none_learns)),
        on_one_rank(unusable("Tied",
                             "'again' and 'last.weight' are one tensor",
                             "register it once, and use it in forward() as often as you like")),
        {"Detached",
         config_code,
         "E250: the model's output has no gradient",
         "no parameter that learns leads to it: forward() detaches what it computes, or does so "
         "without gradients",
         "leave out detach(), data() and NoGradGuard on the way from parameters to the output"},
        {"SparseGradients",
         config_code,
         "E250: the gradient of parameter 'words.weight' is sparse",
         "ranks sum dense gradients only",
         "leave out sparse(true) (Python: sparse=True) where the model makes its embedding"},
        {"Thawing",
         config_code,
         "E250: parameter 'first.weight' learns now",
         "requires_grad was false when the model was made, and which parameters learn stays the "
         "same in a run",
         "set requires_grad in the model's constructor alone"},
        throws("ThrowsInBackward", "backward pass", "no way back"),
        throws("ThrowsInConstructor", "constructor", "I need 77 classes, not 10"),
        throws("ThrowsLater", "forward()", "after 40 calls"),
        refuses_data("ThrowsInForward", "first line"),
        on_one_rank(refuses_data("ThrowsNumber", "it threw what is no std::exception")),
        on_one_rank(refuses_data("WrongInput",
                                 "mat1 and mat2 shapes cannot be multiplied (4x784 and 3x10)")),
        fits_no_target("WrongShape"),
        fits_no_target("WrongShapeLater"),
    };
}

Words training_of_own(const std::string& run) {
    return Words{"train", "--data", train_data(), "--model", LOCKSTEP_OWN_MODELS} +
           Words{"--run", run, "--batch", "16", "--virtual-ranks", "4", "--max-steps", "40"} +
           Words{"--leaves", "one-by-one"};
}

// What it says from the error on, without the folder of the plug-in.
std::string error_of(const ProcessResult& result) {
    const std::string said =
        std::regex_replace(result.output, std::regex("'[^']*/own_models.so'"), "'own_models.so'");
    return said.substr(std::min(said.find("lockstep: error"), said.size()));
}

class OwnModels : public RunsTest, public testing::WithParamInterface<Mistake> {};

TEST_P(OwnModels, AreTheirAuthorsToMend) {
    const Mistake& mistake = GetParam();
    const std::string said = fmt::format(
        "lockstep: error {}\n  why: {}\n  fix: {}\n", mistake.what, mistake.why, mistake.fix);
    const auto result = run_lockstep(training_of_own(run_) + on_ranks(mistake.ranks),
                                     {{"OWN_MODEL", mistake.model}});
    EXPECT_EQ(result.exit_code, mistake.exit_code) << result.output;
    const std::string error = std::regex_replace(
        error_of(result), std::regex(R"( \((same on rank 1|rank [01]( only| on \S+)?)\))"), "");
    // Of two ranks that fail in one step, the second may have the time to say so, too.
    EXPECT_THAT(error, testing::AnyOf(said, said + said));
    EXPECT_THAT(result.output, Not(has("please report")));
}

class OwnModel : public RunsTest {};

// What its author reads, in every command that computes with the model.
TEST_F(OwnModel, SaysWhatItThrewInEveryCommand) {
    const Words test = {"--data", test_data()};
    const auto expect = [](const std::string& model, const Words& words, const char* text) {
        const auto result = run_lockstep(words, {{"OWN_MODEL", model}});
        EXPECT_THAT(result.exit_code, testing::AnyOf(config_code, bad_data_code)) << result.output;
        EXPECT_THAT(result, says(text, Not(has("please report"))));
    };
    const Words tested = {"--test-data", test_data(), "--evaluate-every", "1steps"};
    run_lockstep(training_of_own(run_), {{"OWN_MODEL", "ThrowsInEvaluation"}});
    expect("ThrowsInEvaluation", training_of_own(folder_ / "a") + tested, "nothing to test");
    expect("ThrowsInEvaluation", Words{"eval", run_} + test, "nothing to test");
    const Words predict = Words{"predict", run_, "--out", folder_ / "a.npy"} + test;
    expect("ThrowsInEvaluation", predict, "nothing to test");
    expect("WrongShapeInEvaluation", predict, ", 10, 1], the task's targets need [");
    auto job = started(predict, {"env", "OWN_MODEL=SleepsInEvaluation"});
    EXPECT_TRUE(job->until([&] { return fs::exists(folder_ / ".a.npy.partial"); }));
    job->send(SIGTERM);
    EXPECT_EQ(job->wait(), 130) << output();
    EXPECT_THAT(output(), has("error E242: the prediction was interrupted"));
    EXPECT_FALSE(fs::exists(folder_ / ".a.npy.partial"));
    job = started(predict + on_ranks(2), {"env", "OWN_MODEL=SleepsInEvaluation"});
    EXPECT_TRUE(job->until([&] { return fs::exists(folder_ / ".a.npy.partial"); }));
    job->send(SIGTERM);
    EXPECT_NE(job->wait(), 0) << output();
    EXPECT_FALSE(fs::exists(folder_ / ".a.npy.partial")) << output();
    expect("OtherNames",
           training_of_own(folder_ / "b") + tested + Words{"--task", "program"},
           "the model returns other outputs than before");
    const Words profile = {"profile", LOCKSTEP_OWN_MODELS, "--input", "1x28x28", "--batch", "4"};
    expect("ThrowsInConstructor", profile, "I need 77 classes, not 10");
    expect("ThrowsInForward", profile, "first line");
    expect("Detached",
           training_of_own(folder_ / "c") + Words{"--freeze", "layer.bias"},
           "fix: freeze fewer parameters, or leave out detach()");
    expect("ThrowsInTrain", profile, "the model's train() failed");
    expect("ThrowsInBackward", profile, "no way back");
    expect("ThrowsLater",
           Words{"verify", "--model", LOCKSTEP_OWN_MODELS, "--data", train_data()} +
               Words{"--ranks", "1,2", "--steps", "40", "--batch", "16"},
           "after 40 calls");
}

// Before a run is made: nobody waits in a collective, and there is no start to mark as failed.
TEST_F(OwnModel, EndsWhereAConstructorLoops) {
    EXPECT_THAT(run_lockstep(training_of_own(run_) + on_ranks(2) + Words{"--comm-timeout", "1s"},
                             {{"OWN_MODEL", "LoopsInConstructor"}}),
                ends(76,
                     "error E660: no rank has come further in its set-up for 5.",
                     "is setting up since",
                     "fix: the model, or a library that it uses, loops"));
}

// https://huggingface.co/docs/safetensors
std::string tensor_in(const fs::path& file, const std::string& name) {
    const std::string bytes = read_file(file);
    std::uint64_t head = 0;
    std::memcpy(&head, bytes.data(), sizeof head);
    const Json json = parse_json(bytes.substr(sizeof head, head), file.string());
    const auto place = json[name]["data_offsets"].get<std::vector<std::size_t>>();
    return bytes.substr(sizeof head + head + place[0], place[1] - place[0]);
}

// The first layer is frozen: its weights are saved, loaded and left alone.
TEST_F(OwnModel, KeepsWhatIsFrozenInCheckpointsAndExports) {
    const Variables frozen = {{"OWN_MODEL", "Frozen"}};
    const auto train = [&](const std::string& run, const Words& more) {
        return run_lockstep(
            Words{"train", "--data", train_data(), "--model", LOCKSTEP_OWN_MODELS} +
                Words{"--run", folder_ / run, "--virtual-ranks", "4", "--batch", "48"} +
                Words{"--weight-decay", "0.5", "--lr", "0.01"} + more,
            frozen);
    };
    const auto weights = [&](const std::string& run, const std::string& tensor) {
        const fs::path file = folder_ / (run + ".safetensors");
        if (!fs::exists(file)) run_lockstep({"export", folder_ / run, "--out", file});
        return tensor_in(file, tensor);
    };
    const auto first = train("a", Words{"--max-steps", "2"} + on_ranks(2));
    EXPECT_THAT(first, says("330 parameters, 25,120 frozen"));
    const std::string warning = "LibTorch: the first layer is frozen";
    EXPECT_THAT(first, says(warning));
    EXPECT_EQ(first.output.find(warning), first.output.rfind(warning)) << first.output;
    const std::string start = weights("a", "first.weight");
    fs::remove(folder_ / "a.safetensors");
    train("a", Words{"--max-steps", "20"} + on_ranks(4));
    EXPECT_EQ(weights("a", "first.weight"), start);
    // Weights of another seed come from the file, and stay where the run goes on without it.
    const Words from = {"--load-weights", folder_ / "a.safetensors", "--seed", "2"};
    train("b", Words{"--max-steps", "2"} + from);
    train("b", Words{"--max-steps", "4", "--seed", "2"} + on_ranks(2));
    EXPECT_EQ(weights("b", "first.weight"), start);
    EXPECT_NE(weights("b", "last.weight"), weights("a", "last.weight"));
    EXPECT_THAT(run_lockstep({"eval", folder_ / "b", "--data", test_data()}, frozen), ends(0));
}

constexpr const char* keeps_state =
    "why: your model keeps state between calls, draws from a generator of its own, or reads a "
    "clock";

TEST_F(OwnModel, IsTheReasonWhereRanksDiffer) {
    EXPECT_THAT(run_lockstep(training_of_own(run_) + on_ranks(2), {{"OWN_MODEL", "Clock"}}),
                ends(config_code, "error E707: ranks compute 2 different results", keeps_state));
    EXPECT_THAT(
        run_lockstep(Words{"verify", "--data", train_data(), "--model", LOCKSTEP_OWN_MODELS} +
                         Words{"--ranks", "1,2", "--steps", "3", "--batch", "16"},
                     {{"OWN_MODEL", "Counting"}}),
        ends(config_code, "error E707: the parameters differ", keeps_state));
}

INSTANTIATE_TEST_SUITE_P(, OwnModels, testing::ValuesIn(mistakes()), [](const auto& of) {
    return of.param.model;
});

// A program as torch.export writes it; those that PyTorch wrote are in train/program/program_peer.
class ExportedProgram : public RunsTest {
  protected:
    ProcessResult on_program(const Words& words, const Variables& variables = {}) const {
        return run_lockstep(words + Words{"--data", train_data()}, variables);
    }
    Words training(const fs::path& model) const {
        return {"train", "--model", model.string(), "--run", run_.string(), "--batch", "48"};
    }

    fs::path net_ =
        folder_.file("net.pt2", zip_of(made_up_classifier(784, 10, {1, 28, 28}).entries()));
};

TEST_F(ExportedProgram, HasEqualBitsOnAnyNumberOfRanks) {
    const Words words = Words{"verify", "--model", net_, "--steps", "4", "--batch", "48"} +
                        Words{"--virtual-ranks", "4", "--ranks"};
    EXPECT_THAT(on_program(words + Words{"1,3"}), ends(0, "equal: the same bits"));
    EXPECT_THAT(on_program(words + Words{"1,2", "--plain"}), says("different, as ordinary"));
    EXPECT_THAT(run_lockstep(words + typed("1,2 --device cuda --data %", {train_data()}),
                             with_gpus({{"SIMCUDA_DELAY_US", "300"}})),
                says("equal: the same bits"));
}

TEST_F(ExportedProgram, IsResumedOnOtherNumbersOfRanks) {
    const auto after = [&](const std::string& run, int ranks, const std::string& steps) {
        return printed_hash(output_of(
            on_program(typed("train --model % --batch 48 --virtual-ranks 4 --run % --max-steps %",
                             {net_, folder_ / run, steps}) +
                       on_ranks(ranks))));
    };
    const std::string whole = after("whole", 2, "6");
    after("parts", 1, "2");
    after("parts", 3, "4");
    EXPECT_EQ(after("parts", 4, "6"), whole);
}

// Each rank is in a folder of its own, where that name is another file.
TEST_F(ExportedProgram, IsTheSameFileOnAllRanks) {
    for (const char* rank : {"0", "1"})
        folder_.file(std::string(rank) + "/net.pt2", content_of(net_) + (*rank == '1' ? "\n" : ""));
    EXPECT_THAT(
        run_process(
            mpirun_words(2) +
            Words{"bash", "-c", "cd \"$0/$OMPI_COMM_WORLD_RANK\" && exec \"$@\"", folder_.path()} +
            Words{program()} + training("net.pt2") + Words{"--data", train_data()}),
        says("error E605"));
}

TEST_F(ExportedProgram, IsShownTrainedTestedAndExported) {
    EXPECT_THAT(run_lockstep({"models", net_}),
                says("x: f32 [batch, 1, 28, 28]",
                     "parameters  9,408 learn, 10 are frozen",
                     "aten.batch_norm.default"));
    const Words two = {"--np", "2", "--max-steps"};
    EXPECT_THAT(on_program(training(net_) + two + Words{"4"}),
                ends(0, "9,408 parameters, 10 frozen"));
    const Words test = {"--data", test_data()};
    EXPECT_THAT(run_lockstep(Words{"eval", run_} + test), says("accuracy"));
    const fs::path file = folder_ / "w.safetensors", answers = folder_ / "answers.npy";
    EXPECT_THAT(run_lockstep(Words{"predict", run_, "--out", answers} + test), ends(0));
    EXPECT_THAT(run_lockstep({"export", run_, "--out", file}), ends(0));
    EXPECT_THAT(content_of(file), has("norm.running_mean", "scale"));
    EXPECT_THAT(run_lockstep(Words{"eval", run_, "--weights", file} + test), ends(0));
    const fs::path trained_program = folder_ / "trained.pt2";
    EXPECT_THAT(run_lockstep({"export", run_, "--out", trained_program, "--format", "pt2"}),
                ends(0));
    EXPECT_EQ(fs::file_size(trained_program), fs::file_size(net_));
    EXPECT_THAT(run_lockstep({"models", trained_program}), ends(0));
    folder_.file("net.pt2", content_of(net_) + "\n");
    EXPECT_THAT(on_program(training(net_) + two + Words{"6"}), ends(config_code, "model-digest"));
}

// Nothing is frozen; what the first run froze has the values of the model's file.
TEST_F(ExportedProgram, LearnsAllOfItFromARunThatFrozeAPart) {
    const Words steps = {"--max-steps", "2"};
    EXPECT_THAT(on_program(training(net_) + steps + Words{"--freeze", "norm.*"}),
                ends(0, "7,840 parameters, 1,578 frozen"));
    const Words freed = Words{"train", "--from", run_, "--run", folder_ / "b", "--freeze", ""};
    const std::string refused = output_of(on_program(freed + steps), bad_data_code);
    const std::string names = "norm.weight,norm.bias";
    EXPECT_THAT(refused, has("from the model's file with --load-skip '" + names + "'; else"));
    EXPECT_THAT(on_program(freed + steps + Words{"--load-skip", names}),
                ends(0, "9,408 parameters, 10 frozen"));
}

// A run that goes on takes what is frozen from the model's file.
TEST_F(ExportedProgram, TakesWhatIsFrozenFromAFileThatHasTheWeightsOfARun) {
    const Words steps = {"--max-steps", "2"};
    EXPECT_THAT(on_program(training(net_) + steps), ends(0));
    const fs::path weights = folder_ / "w.safetensors", all = folder_ / "all.pt2";
    EXPECT_THAT(run_lockstep({"export", run_, "--out", weights}), ends(0));
    const auto tuned = [&](const fs::path& model) {
        return Words{"train", "--model", model, "--run", folder_ / "b", "--batch", "48"} + steps +
               Words{"--freeze", "norm.*"};
    };
    EXPECT_THAT(on_program(tuned(net_) + Words{"--load-weights", weights}),
                ends(bad_data_code,
                     " is frozen and has other values in the model's file",
                     "'lockstep export RUN --format pt2 --out all.pt2'"));
    EXPECT_THAT(run_lockstep({"export", run_, "--format", "pt2", "--out", all}), ends(0));
    EXPECT_THAT(on_program(tuned(all)), ends(0, "7,840 parameters, 1,578 frozen"));
}

// A program, and a class of C++.
TEST_F(ExportedProgram, AndAClassMayComputeTheirOwnLoss) {
    const fs::path own = folder_.file("own.pt2", zip_of(made_up_own_loss().entries()));
    const Variables variables = {{"OWN_MODEL", "OwnLoss"}};
    const Words task = {"--task", "program", "--inputs", "images", "--batch", "48", "--model"};
    const Words few = {"--steps", "4", "--virtual-ranks", "4", "--ranks"};
    const Words test = {"--data", test_data()};
    const Words tested = {"--max-steps", "4", "--test-data", test_data(), "--run"};
    for (const fs::path& model : {own, fs::path(LOCKSTEP_OWN_MODELS)}) {
        const Words both = task + Words{model, "--inputs", "labels"};
        EXPECT_THAT(on_program(Words{"verify"} + both + few + Words{"1,3"}, variables),
                    ends(0, "equal: the same bits"));
        EXPECT_THAT(on_program(Words{"verify"} + both + few + Words{"1,2", "--plain"}, variables),
                    says("different, as ordinary"));
        const fs::path run = folder_ / model.stem();
        const Words training = Words{"train"} + both + tested + Words{run, "--keep-best"};
        EXPECT_THAT(on_program(training + Words{"right"}, variables),
                    says("give --keep-best right:min, or --keep-best right:max"));
        EXPECT_THAT(on_program(training + Words{"right:max"}, variables), ends(0, "right 0."));
        EXPECT_THAT(run_lockstep({"ckpt", "ls", run}), says("best right:max 0."));
        EXPECT_THAT(run_lockstep(Words{"eval", run} + test, variables), says("right 0."));
        const Words profile = {"profile", model, "--input", "1x28x28", "--input", ":10"};
        EXPECT_THAT(run_lockstep(profile + Words{"--batch", "8"}, variables),
                    says("input [8, 1, 28, 28] and [8], output [8] |"));
    }
    EXPECT_THAT(on_program(Words{"train"} + task + Words{own} + tested + Words{run_}),
                says("takes 2 input(s), x, labels, and is given 1\n"
                     "  why: the data have images, labels\n"
                     "  fix: give --inputs images --inputs labels\n"));
    EXPECT_THAT(on_program(training(own) + Words{"--inputs", "images"}), ends(bad_data_code));
    EXPECT_THAT(on_program(Words{"train", "--run", run_} + task + Words{"cnn"}),
                says("error E106: --task program does not go"));
}

TEST_F(ExportedProgram, IsProfiledByTheModulesOfItsClass) {
    const std::string found =
        output_of(run_lockstep({"profile", net_, "--batch", "8", "--steps", "2", "--json"}));
    const Json profile = parse_json(found, "profile");
    EXPECT_EQ(profile["inputs"], Json(std::vector<std::vector<int>>{{8, 1, 28, 28}}));
    const Json& layers = profile["layers"];
    const std::vector<std::string> names = {"", "norm", "body.drop", "fc"};
    ASSERT_EQ(layers.size(), names.size()) << found;
    for (std::size_t i = 0; i < names.size(); ++i) {
        EXPECT_EQ(layers[i]["name"].get<std::string>(), names[i]);
        EXPECT_GT(layers[i]["forward_ms"].get<double>(), 0) << names[i];
        EXPECT_GT(layers[i]["backward_ms"].get<double>(), 0) << names[i];
    }
    EXPECT_EQ(layers[3]["parameters"].get<int>(), 7840);
}

// As people have them who exported for inference: the statistics of batch norm stay.
TEST_F(ExportedProgram, OfEvaluationTrainsAsItIsIfAsked) {
    const MadeUpProgram made = for_evaluation(made_up_classifier(784, 10, {1, 28, 28}));
    const fs::path net = folder_.file("eval.pt2", zip_of(made.entries()));
    const std::string refused =
        output_of(on_program(training(net) + Words{"--max-steps", "2"}), config_code);
    const Words as_it_is = {"--model-mode", "as-exported"};
    EXPECT_THAT(refused, has("as it is with --model-mode as-exported"));
    const Words words = Words{"verify", "--model", net, "--steps", "4", "--batch", "48"} +
                        Words{"--virtual-ranks", "4"} + as_it_is + Words{"--ranks"};
    EXPECT_THAT(on_program(words + Words{"1,3"}), says("equal: the same bits"));
    EXPECT_THAT(on_program(words + Words{"1,3", "--plain"}), says("different, as ordinary"));
    EXPECT_THAT(on_program(training(net) + as_it_is + Words{"--max-steps", "2"}), ends(0));
    EXPECT_THAT(content_of(run_ / "run.json"), ContainsRegex("\"model-mode\": *\"as-exported\""));
    const fs::path weights = folder_ / "w.safetensors";
    EXPECT_THAT(run_lockstep({"export", run_, "--out", weights}), ends(0));
    const std::string mean = tensor_in(weights, "norm.running_mean");
    EXPECT_EQ(mean, std::string(mean.size(), '\0')) << "as in the file";
    EXPECT_THAT(run_lockstep({"eval", run_, "--data", test_data()}), ends(0));
    fs::remove_all(run_);
    EXPECT_THAT(
        on_program(training(net_) + as_it_is),
        ends(64, "E107: --model-mode as-exported has no effect", "was exported for training"));
}

TEST_F(ExportedProgram, SaysWhatToChangeWhereItIsExported) {
    MadeUpProgram fixed = made_up_classifier(784, 10, {1, 28, 28});
    fixed.graph()["tensor_values"]["x"]["sizes"][0] = argument_of("as_int", 6);
    EXPECT_THAT(on_program(training(folder_.file("fixed.pt2", zip_of(fixed.entries())))),
                ends(config_code, "dynamic_shapes=({0: batch},)"));
    const auto flat = folder_.file("flat.pt2", zip_of(made_up_classifier(784, 10).entries()));
    EXPECT_THAT(on_program(training(flat)),
                ends(bad_data_code, "its input 'x' is f32 [batch, 784]"));
    EXPECT_FALSE(fs::exists(run_ / "run.json"));
}

}  // namespace
}  // namespace lockstep::test
