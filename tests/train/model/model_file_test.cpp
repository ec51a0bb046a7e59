// SPDX-License-Identifier: Apache-2.0
#include "model/model_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/tensor_files.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "model/load_weights.hpp"
#include "schedule/blank_step.hpp"
#include "support/unit.hpp"

#include <functional>
#include <map>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

namespace lockstep {
namespace {

// A scripted y = x w, with `add` making it another model.
fs::path save(
    const fs::path& path,
    const std::function<void(torch::jit::Module&)>& add = [](torch::jit::Module&) {},
    const std::string& body = "return torch.mm(x, self.w)") {
    torch::jit::Module net("net");
    net.register_attribute("training", c10::BoolType::get(), true);
    net.register_parameter("w", torch::ones({3, 2}).requires_grad_(), false);
    add(net);
    net.define("def forward(self, x):\n    " + body + "\n");
    net.save(path);
    return path;
}

std::unique_ptr<Model> opened(const fs::path& path) {
    return open_model({.name = path.string()}, {3, 1, 1, 2}, 1);
}

std::string refusal(const std::function<void()>& step) {
    const auto error = caught(step);
    return error ? error->code() + ": " + error->why() : "none";
}

using ScriptModel = InFolder;

TEST_F(ScriptModel, GivesWhatItsFileSays) {
    const auto model = opened(save(folder_ / "net.pt"));
    ASSERT_EQ(model->parameters().size(), 1U);
    EXPECT_EQ(model->parameters()[0].name, "w");
    const at::Tensor out = only(model->forward({{"features", torch::ones({4, 3, 1, 1})}}));
    EXPECT_TRUE(out.equal(torch::full({4, 2}, 3.0F)));
    out.sum().backward();
    EXPECT_TRUE(model->parameters()[0].tensor.grad().equal(torch::full({3, 2}, 4.0F)));
}

// The optimising executor's gradients change after some runs.
TEST_F(ScriptModel, ComputesTheSameHoweverOftenItRan) {
    const auto model = opened(save(
        folder_ / "net.pt", [](auto&) {}, "return torch.tanh(torch.mm(x, self.w)) * 0.1"));
    torch::manual_seed(2);
    const at::Tensor x = torch::randn({64, 3, 1, 1}), w = model->parameters()[0].tensor;
    at::Tensor first;
    for (int run = 0; run < 5; ++run) {
        w.mutable_grad().reset();
        only(model->forward({{"features", x}})).sum().backward();
        if (run == 0) first = w.grad().clone();
        EXPECT_TRUE(w.grad().equal(first)) << run;
    }
}

TEST_F(ScriptModel, LeavesFrozenParametersAlone) {
    const auto add = [](auto& net) { net.register_parameter("frozen", torch::ones({2}), false); };
    EXPECT_EQ(opened(save(folder_ / "net.pt", add))->parameters().size(), 1U);
}

TEST(FreezeNamed, TakesParametersOfAnyModelFromThoseThatLearn) {
    const TempDir folder;
    const auto script = opened(save(folder / "net.pt", [](auto& net) {
        net.register_parameter("more", torch::ones({2}).set_requires_grad(true), false);
    }));
    const auto built_in = open_model({.name = "mlp"}, {1, 2, 2, 10}, 1);
    for (const auto& [model, pattern] :
         {std::pair(script.get(), "m*"), std::pair(built_in.get(), "fc1.*,*.bias")}) {
        const std::vector<std::string> before = names_of(model->parameters());
        freeze_named(*model, pattern);
        const std::vector<std::string> learning = names_of(model->parameters()),
                                       frozen = names_of(model->frozen());
        EXPECT_FALSE(frozen.empty());
        EXPECT_EQ(learning.size() + frozen.size(), before.size());
        for (const NamedTensor& one : model->frozen()) {
            EXPECT_FALSE(one.tensor.requires_grad()) << one.name;
            EXPECT_EQ(std::ranges::count(learning, one.name), 0) << one.name;
        }
    }
    EXPECT_EQ(names_of(built_in->parameters()), std::vector<std::string>{"fc2.weight"});
    EXPECT_EQ(names_of(script->frozen()), std::vector<std::string>{"more"});
    EXPECT_EQ(refusal([&] { freeze_named(*built_in, "fc1.*"); }),
              "E107: the model has no parameter that learns of such a name: fc2.weight");
    EXPECT_EQ(refusal([&] { freeze_named(*built_in, "*"); }),
              "E107: it matches all 1 parameters of the model");
}

TEST_F(ScriptModel, KnowsItsMode) {
    const auto model = opened(save(
        folder_ / "net.pt", [](auto&) {}, "return torch.mm(x, self.w) * self.training"));
    const NamedTensors ones = {{"features", torch::ones({1, 3, 1, 1})}};
    EXPECT_EQ(only(model->forward(ones))[0][0].item<float>(), 3);
    model->set_mode(ModelMode::evaluate);
    EXPECT_EQ(only(model->forward(ones))[0][0].item<float>(), 0);
}

fs::path save_weights(const fs::path& path, const std::map<std::string, float>& values) {
    std::vector<ExportedTensor> tensors;
    for (const auto& [name, value] : values) {
        const std::vector<std::int64_t> shape{name == "w" ? 3 : 1, 2};
        tensors.push_back({.name = name, .shape = shape, .values = [shape, value] {
                               const std::vector<float> all(shape[0] * shape[1], value);
                               const auto bytes = std::as_bytes(std::span(all));
                               return std::vector<std::byte>(bytes.begin(), bytes.end());
                           }});
    }
    fs::remove(path);
    NewFile file(path);
    write_safetensors(file, tensors);
    file.finish();
    return path;
}

TEST(LoadWeights, TakesWhatIsFrozenWithTheModelsOwnValues) {
    const TempDir folder;
    const auto model = opened(save(folder / "net.pt", [](auto& net) {
        net.register_parameter("frozen", torch::full({1, 2}, 5.0F), false);
    }));
    const auto loaded = [&](const std::map<std::string, float>& values, const std::string& skip) {
        const WeightsFile file(save_weights(folder / "w.safetensors", values));
        load_weights(*model, file, skip, WeightsFor::training);
        return model->parameters()[0].tensor[0][0].item<float>();
    };
    EXPECT_EQ(loaded({{"w", 2}}, ""), 2);
    EXPECT_EQ(loaded({{"w", 3}, {"frozen", 5}}, ""), 3);
    EXPECT_EQ(loaded({{"w", 4}, {"frozen", 6}}, "frozen"), 4);
    EXPECT_EQ(refusal([&] {
                  loaded({{"w", 4}, {"frozen", 6}}, "");
              }),
              "E304: frozen is frozen and has other values in the model's file");
    EXPECT_EQ(refusal([&] {
                  loaded({{"w", 4}, {"other", 6}}, "");
              }),
              "E304: not in the model: other");
    EXPECT_EQ(refusal([&] {
                  loaded({{"w", 4}, {"frozen", 5}}, "w");
              }),
              "E107: it matches all 1 tensors of the model");
    EXPECT_TRUE(model->frozen()[0].tensor.equal(torch::full({1, 2}, 5.0F)));
}

TEST(LoadFromRun, RefusesToForgetWhatIsFrozenNow) {
    const TempDir folder;
    const auto model = opened(save(folder / "net.pt", [](auto& net) {
        net.register_parameter("frozen", torch::full({1, 2}, 5.0F), false);
    }));
    const fs::path checkpoints = folder / "run/ckpt";
    fs::create_directories(checkpoints);
    const auto loaded = [&](std::int64_t step, float frozen, const std::string& skip) {
        std::vector<float> w(6, float(step)), other(2, frozen);
        CheckpointSave(Communicator(),
                       {.root = checkpoints},
                       {{.step = step},
                        {{"w", {3, 2}}, {"frozen", {1, 2}}},
                        {{0, 0, 6, w.data()}, {1, 0, 2, other.data()}}})
            .finish();
        load_from_run(*model, list_checkpoints(checkpoints).back().path, skip);
        return model->parameters()[0].tensor[0][0].item<float>();
    };
    EXPECT_EQ(loaded(1, 5, ""), 1);
    EXPECT_EQ(loaded(2, 6, "frozen"), 2);
    const auto error = caught([&] { loaded(3, 6, ""); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->why(), "frozen is frozen and has other values in the model's file");
    EXPECT_THAT(error->fix(),
                AllOf(StartsWith("give --model all.pt beside --from, after: "),
                      EndsWith(" --step 3 --format torchscript --out all.pt")));
    EXPECT_TRUE(model->frozen()[0].tensor.equal(torch::full({1, 2}, 5.0F)));
}

TEST_F(ScriptModel, IsWrittenAnewWithOtherValues) {
    const fs::path path = save(folder_ / "net.pt", [](auto& net) {
        net.register_parameter("frozen", torch::full({2}, 5.0F), false);
        net.register_buffer("n", torch::zeros({1}, torch::kInt64));
    });
    const at::Tensor w = torch::full({3, 2}, 2.0F), n = torch::tensor(std::int64_t{7});
    write_file_atomically(folder_ / "new.pt", script_with(path, {{"w", w}, {"n", n}}));
    const torch::jit::Module net = torch::jit::load((folder_ / "new.pt").string());
    EXPECT_TRUE(net.attr("w").toTensor().equal(w));
    EXPECT_TRUE(net.attr("w").toTensor().requires_grad());
    EXPECT_EQ(net.attr("n").toTensor().item<std::int64_t>(), 7);
    EXPECT_TRUE(net.attr("frozen").toTensor().equal(torch::full({2}, 5.0F)));
    EXPECT_TRUE(net.is_training());
    const at::Tensor out =
        only(opened(folder_ / "new.pt")->forward({{"features", torch::ones({4, 3, 1, 1})}}));
    EXPECT_TRUE(out.equal(torch::full({4, 2}, 6.0F)));
    for (const NamedTensor& other : {NamedTensor{"v", w}, NamedTensor{"w", torch::ones({2, 3})}})
        EXPECT_EQ(caught_code([&] { script_with(path, {other}); }), "E304");
    EXPECT_EQ(caught_code([&] { script_with(folder_ / "none.pt", {}); }), "E201");
}

TEST(OpenModel, RefusesTensorsThatRanksCannotSum) {
    const TempDir folder;
    const fs::path path = folder / "net.pt";
    save(path, [](auto& net) { net.register_buffer("n", torch::zeros({2}, torch::kInt64)); });
    EXPECT_EQ(refusal([&] { opened(path); }), "E250: buffer 'n' holds 2 values of type Long");
    save(path, [](auto& net) { net.register_buffer("d", torch::zeros({1}, torch::kFloat64)); });
    EXPECT_EQ(refusal([&] { opened(path); }), "E250: buffer 'd' holds 1 values of type Double");
    save(path, [](auto& net) {
        const at::Tensor half = torch::zeros({1}, torch::kFloat16).requires_grad_();
        net.register_parameter("h", half, false);
    });
    EXPECT_EQ(refusal([&] { opened(path); }), "E250: parameter 'h' is Half, not f32");
    save(path, [](auto& net) { net.register_buffer("t", torch::ones({3, 2}).t()); });
    EXPECT_EQ(refusal([&] { opened(path); }), "E250: buffer 't' is not contiguous");
    save(path, [](auto& net) { net.register_buffer("m", torch::full({2}, -INFINITY)); });
    EXPECT_EQ(refusal([&] { opened(path); }), "E250: buffer 'm' has values that are not finite");
    save(path, [](auto& net) { net.register_parameter("tied", net.attr("w").toTensor(), false); });
    EXPECT_EQ(refusal([&] { opened(path); }), "E250: 'w' and 'tied' are one tensor");
    save(path, [](auto& net) { net.register_buffer("n", torch::zeros({}, torch::kInt64)); });
    EXPECT_EQ(refusal([&] { opened(path); }), "none");
}

TEST_F(ScriptModel, KnowsItsInputs) {
    torch::jit::Module net("net");
    net.register_attribute("training", c10::BoolType::get(), true);
    net.register_parameter("w", torch::ones({1}).requires_grad_(), false);
    net.define(
        "def forward(self, images, meta, factor: int = 2):\n    return images * meta * self.w\n");
    net.save(folder_ / "net.pt");
    EXPECT_EQ(opened(folder_ / "net.pt")->input_names(),
              (std::vector<std::string>{"images", "meta"}));
}

// As a file that was traced with eight samples.
TEST_F(ScriptModel, IsItsAuthorsToMendWhereItIsForOneBatchSize) {
    const auto model = opened(save(
        folder_ / "net.pt", [](auto&) {}, "return torch.mm(x.reshape([8, 3]), self.w)"));
    const Error error = test::error_of([&] {
        outputs_of(*model, {{"features", torch::ones({4, 3, 1, 1})}});
    });
    EXPECT_EQ(error.code(), "E217");
    EXPECT_THAT(error.why(), HasSubstr("shape '[8, 3]' is invalid for input of size 12"));
    EXPECT_THAT(error.fix(),
                StartsWith("fix the model's forward(), which is given f32 [4, 3, 1, 1] "
                           "here; a file that was traced keeps"));
}

TEST(OpenModel, RefusesModelsThatGiveNoTensor) {
    const TempDir folder;
    const auto model = opened(save(
        folder / "net.pt", [](auto&) {}, "return (torch.mm(x, self.w), x)"));
    EXPECT_EQ(caught_code([&] {
                  model->forward({{"features", torch::ones({1, 3, 1, 1})}});
              }),
              "E217");
    torch::jit::Module empty("net");
    empty.register_attribute("training", c10::BoolType::get(), true);
    empty.save(folder / "empty.pt");
    EXPECT_EQ(refusal([&] { opened(folder / "empty.pt"); }), "E250: it has no forward()");
}

TEST_F(ScriptModel, SaysWhatItsAuthorRaises) {
    const auto model = opened(save(
        folder_ / "net.pt", [](auto&) {}, "assert x.dim() == 9, 'I take no twos'\n    return x"));
    EXPECT_THAT(refusal([&] {
                    outputs_of(*model, {{"features", torch::ones({4, 3, 1, 1})}});
                }),
                AllOf(StartsWith("E217"), HasSubstr("I take no twos")));
}

// A class that names its outputs.
struct Named : Classifier {
    Named() : w(register_parameter("w", torch::ones({1}))) {}
    at::Tensor forward(const at::Tensor& input) override { return input * w; }
    NamedTensors forward_named(const std::vector<at::Tensor>& inputs) override {
        return {{"kl", w}, {"loss", forward(inputs.at(0))}, {"none", missing}};
    }
    at::Tensor w, missing = torch::ones({});
};

TEST(ModelOf, PutsTheLossFirstOrKeepsOneOutput) {
    const auto own = std::make_shared<Named>();
    const NamedTensors x = {{"x", torch::ones({2})}};
    const auto names = [&](const std::string& output) {
        std::string all;
        for (const NamedTensor& one : model_of(own, ModelAuthor::user_class, output)->forward(x))
            all += one.name + " ";
        return all;
    };
    EXPECT_EQ(names(""), "loss kl none ");
    EXPECT_EQ(names("kl"), "kl ");
    EXPECT_EQ(refusal([&] { names("kk"); }), "E103: it has kl, loss, none");
    own->missing = at::Tensor();
    EXPECT_EQ(refusal([&] { names(""); }), "E217: an output of its forward() is empty");
}

TEST(CheckPlugin, RefusesWhatWasBuiltForAnotherProgram) {
    const ModelPlugin own{plugin_version, TORCH_VERSION, plugin_shape_bytes, nullptr};
    check_plugin(own, "net.so");
    ModelPlugin other = own;
    other.version = plugin_version + 1;
    EXPECT_EQ(
        refusal([&] { check_plugin(other, "net.so"); }),
        fmt::format("E250: it is a plug-in of version {}, not {}", other.version, own.version));
    other = own;
    other.libtorch = "2.4.1";
    EXPECT_EQ(refusal([&] { check_plugin(other, "net.so"); }),
              std::string("E250: it was built with LibTorch 2.4.1, not ") + TORCH_VERSION);
    other = own;
    other.shape_bytes += 8;
    EXPECT_EQ(refusal([&] { check_plugin(other, "net.so"); }),
              "E250: it was built with the headers of another Lockstep");
}

}  // namespace
}  // namespace lockstep
