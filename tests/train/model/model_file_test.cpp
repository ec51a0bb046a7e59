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

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

namespace lockstep {
namespace {

using AddTensors = std::function<void(torch::jit::Module&)>;

// `samples` rows of three ones.
NamedTensors ones(std::int64_t samples) {
    return {{"features", torch::ones({samples, 3, 1, 1})}};
}

std::unique_ptr<Model> opened(const fs::path& path) {
    return open_model({.name = path.string()}, {3, 1, 1, 2}, 1);
}

std::string refusal(const std::function<void()>& step) {
    const auto error = caught(step);
    return error ? error->code() + ": " + error->why() : "none";
}

class ScriptModel : public InFolder {
  protected:
    // A scripted y = x w, with `add` and `body` making it another model.
    fs::path save(const AddTensors& add = {},
                  const std::string& body = "return torch.mm(x, self.w)") const {
        torch::jit::Module net("net");
        net.register_attribute("training", c10::BoolType::get(), true);
        net.register_parameter("w", torch::ones({3, 2}).requires_grad_(), false);
        if (add) add(net);
        net.define("def forward(self, x):\n    " + body + "\n");
        net.save(path_);
        return path_;
    }
    std::unique_ptr<Model> made(const AddTensors& add = {}) const { return opened(save(add)); }
    std::unique_ptr<Model> made(const std::string& body) const { return opened(save({}, body)); }

    const fs::path path_ = folder_ / "net.pt";
};

// The same, with a parameter of fives that learns nothing.
struct FrozenModel : ScriptModel {
    void expect_frozen_as_in_file() const {
        EXPECT_TRUE(model->frozen()[0].tensor.equal(torch::full({1, 2}, 5.0F)));
    }

    const std::unique_ptr<Model> model = made([](auto& net) {
        net.register_parameter("frozen", torch::full({1, 2}, 5.0F), false);
    });
};

TEST_F(ScriptModel, GivesWhatItsFileSays) {
    const auto model = made();
    ASSERT_EQ(model->parameters().size(), 1U);
    EXPECT_EQ(model->parameters()[0].name, "w");
    const at::Tensor out = only(model->forward(ones(4)));
    EXPECT_TRUE(out.equal(torch::full({4, 2}, 3.0F)));
    out.sum().backward();
    EXPECT_TRUE(model->parameters()[0].tensor.grad().equal(torch::full({3, 2}, 4.0F)));
}

// The optimising executor's gradients change after some runs.
TEST_F(ScriptModel, ComputesTheSameHoweverOftenItRan) {
    const auto model = made("return torch.tanh(torch.mm(x, self.w)) * 0.1");
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

// As networks that solve equations do.
TEST_F(ScriptModel, MayUseGradientsOfItsInputInEvaluation) {
    const auto model = made(
        "p = torch.requires_grad_(torch.detach(x), True)\n    "
        "y = torch.sum(torch.mm(p, self.w))\n    "
        "g = torch.grad([y], [p], None, None, True)[0]\n    "
        "assert g is not None\n    return g");
    const at::Tensor learning = only(model->forward(ones(4)));
    EXPECT_TRUE(learning.equal(torch::full({4, 3}, 2.0F)));
    EXPECT_TRUE(learning.requires_grad());
    const torch::NoGradGuard no_gradients;
    const at::Tensor evaluated = only(model->forward(ones(4)));
    EXPECT_TRUE(evaluated.equal(learning));
    EXPECT_FALSE(evaluated.requires_grad()) << "or it keeps the whole graph";
}

TEST_F(ScriptModel, LeavesFrozenParametersAlone) {
    const auto add = [](auto& net) { net.register_parameter("frozen", torch::ones({2}), false); };
    EXPECT_EQ(made(add)->parameters().size(), 1U);
}

TEST_F(ScriptModel, AndAnyOtherFreezesNamedParameters) {
    const auto script = made([](auto& net) {
        net.register_parameter("more", torch::ones({2}).set_requires_grad(true), false);
    });
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
    const auto model = made("return torch.mm(x, self.w) * self.training");
    EXPECT_EQ(only(model->forward(ones(1)))[0][0].item<float>(), 3);
    model->set_mode(ModelMode::evaluate);
    EXPECT_EQ(only(model->forward(ones(1)))[0][0].item<float>(), 0);
}

fs::path save_weights(const fs::path& path, const std::map<std::string, float>& values) {
    std::vector<SafetensorsEntry> entries;
    std::deque<std::vector<float>> kept;
    for (const auto& [name, value] : values) {
        const std::int64_t rows = name == "w" ? 3 : 1;
        entries.push_back({name, {rows, 2}, kept.emplace_back(2 * rows, value)});
    }
    fs::remove(path);
    write_safetensors(path, entries);
    return path;
}

TEST_F(FrozenModel, TakesWeightsOfAFileThatHasWhatIsFrozen) {
    const auto loaded = [&](const std::map<std::string, float>& values, const std::string& skip) {
        const WeightsFile file(save_weights(folder_ / "w.safetensors", values));
        load_weights(*model, file, skip, WeightsFor::training);
        return model->parameters()[0].tensor[0][0].item<float>();
    };
    const auto refused = [&](const std::map<std::string, float>& values, const std::string& skip) {
        return refusal([&] { loaded(values, skip); });
    };
    EXPECT_EQ(loaded({{"w", 2}}, ""), 2);
    EXPECT_EQ(loaded({{"w", 3}, {"frozen", 5}}, ""), 3);
    EXPECT_EQ(loaded({{"w", 4}, {"frozen", 6}}, "frozen"), 4);
    EXPECT_EQ(refused({{"w", 4}, {"frozen", 6}}, ""),
              "E304: frozen is frozen and has other values in the model's file");
    EXPECT_THAT(caught([&] {
                    loaded({{"w", 4}, {"frozen", 6}}, "");
                })->fix(),
                HasSubstr("'lockstep export RUN --format torchscript --out all.pt'"));
    EXPECT_EQ(refused({{"w", 4}, {"other", 6}}, ""), "E304: not in the model: other");
    EXPECT_EQ(refused({{"w", 4}, {"frozen", 5}}, "w"),
              "E107: it matches all 1 tensors of the model");
    expect_frozen_as_in_file();
}

TEST_F(FrozenModel, RefusesARunThatWouldForgetWhatIsFrozenNow) {
    const fs::path checkpoints = folder_ / "run/ckpt";
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
    expect_frozen_as_in_file();
}

TEST_F(ScriptModel, IsWrittenAnewWithOtherValues) {
    const fs::path path = save([](auto& net) {
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
    const at::Tensor out = only(opened(folder_ / "new.pt")->forward(ones(4)));
    EXPECT_TRUE(out.equal(torch::full({4, 2}, 6.0F)));
    for (const NamedTensor& other : {NamedTensor{"v", w}, NamedTensor{"w", torch::ones({2, 3})}})
        EXPECT_EQ(caught_code([&] { script_with(path, {other}); }), "E304");
    EXPECT_EQ(caught_code([&] { script_with(folder_ / "none.pt", {}); }), "E201");
}

TEST_F(ScriptModel, IsRefusedIfRanksCannotSumItsTensors) {
    const auto refused = [&](const AddTensors& add) { return refusal([&] { made(add); }); };
    const auto with_buffer = [&](const std::string& name, const at::Tensor& values) {
        return refused([&](auto& net) { net.register_buffer(name, values); });
    };
    EXPECT_EQ(with_buffer("n", torch::zeros({2}, torch::kInt64)),
              "E250: buffer 'n' holds 2 values of type Long");
    EXPECT_EQ(with_buffer("d", torch::zeros({1}, torch::kFloat64)),
              "E250: buffer 'd' holds 1 values of type Double");
    EXPECT_EQ(with_buffer("t", torch::ones({3, 2}).t()), "E250: buffer 't' is not contiguous");
    EXPECT_EQ(with_buffer("m", torch::full({2}, -INFINITY)),
              "E250: buffer 'm' has values that are not finite");
    EXPECT_EQ(with_buffer("n", torch::zeros({}, torch::kInt64)), "none");
    const at::Tensor half = torch::zeros({1}, torch::kFloat16).requires_grad_();
    EXPECT_EQ(refused([&](auto& net) { net.register_parameter("h", half, false); }),
              "E250: parameter 'h' is Half, not f32");
    EXPECT_EQ(
        refused([](auto& net) { net.register_parameter("tied", net.attr("w").toTensor(), false); }),
        "E250: 'w' and 'tied' are one tensor");
}

TEST_F(ScriptModel, KnowsItsInputs) {
    torch::jit::Module net("net");
    net.register_attribute("training", c10::BoolType::get(), true);
    net.register_parameter("w", torch::ones({1}).requires_grad_(), false);
    net.define(
        "def forward(self, images, meta, factor: int = 2):\n    return images * meta * self.w\n");
    net.save(path_);
    EXPECT_EQ(opened(path_)->input_names(), (std::vector<std::string>{"images", "meta"}));
}

// As a file that was traced with eight samples.
TEST_F(ScriptModel, IsItsAuthorsToMendWhereItIsForOneBatchSize) {
    const auto model = made("return torch.mm(x.reshape([8, 3]), self.w)");
    const Error error = test::error_of([&] { outputs_of(*model, ones(4)); });
    EXPECT_EQ(error.code(), "E217");
    EXPECT_THAT(error.why(), HasSubstr("shape '[8, 3]' is invalid for input of size 12"));
    EXPECT_THAT(error.fix(),
                StartsWith("fix the model's forward(), which is given f32 [4, 3, 1, 1] "
                           "here; a file that was traced keeps"));
}

TEST_F(ScriptModel, IsRefusedIfItGivesNoTensor) {
    const auto model = made("return (torch.mm(x, self.w), x)");
    EXPECT_EQ(caught_code([&] { model->forward(ones(1)); }), "E217");
    torch::jit::Module empty("net");
    empty.register_attribute("training", c10::BoolType::get(), true);
    empty.save(path_);
    EXPECT_EQ(refusal([&] { opened(path_); }), "E250: it has no forward()");
}

TEST_F(ScriptModel, SaysWhatItsAuthorRaises) {
    const auto model = made("assert x.dim() == 9, 'I take no twos'\n    return x");
    EXPECT_THAT(refusal([&] { outputs_of(*model, ones(4)); }),
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
    const auto refused = [](const ModelPlugin& plugin) {
        return refusal([&] { check_plugin(plugin, "net.so"); });
    };
    EXPECT_EQ(refused(own), "none");
    ModelPlugin other = own;
    other.version = plugin_version + 1;
    EXPECT_EQ(
        refused(other),
        fmt::format("E250: it is a plug-in of version {}, not {}", other.version, own.version));
    other = own;
    other.libtorch = "2.4.1";
    EXPECT_EQ(refused(other),
              std::string("E250: it was built with LibTorch 2.4.1, not ") + TORCH_VERSION);
    other = own;
    other.shape_bytes += 8;
    EXPECT_EQ(refused(other), "E250: it was built with the headers of another Lockstep");
}

}  // namespace
}  // namespace lockstep
