// SPDX-License-Identifier: Apache-2.0
#include "program/program_graph.hpp"

#include "lockstep/plan/model_table.hpp"

#include "model/model_file.hpp"
#include "support/made_up_program.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <memory>
#include <tuple>

#include <fmt/format.h>
#include <torch/nn/functional.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

using test::argument_of;
using test::MadeUpProgram;
using test::tensor_argument;

class ProgramGraphTest : public InFolder {
  protected:
    std::unique_ptr<Model> made(const MadeUpProgram& program,
                                ProgramMode mode = ProgramMode::train) const {
        const auto path = folder_.file("net.pt2", test::zip_of(program.entries()));
        return open_model({.name = path.string(), .program_mode = mode}, {6, 1, 1, 3}, 1);
    }
    std::string refusal_of(const MadeUpProgram& program) const {
        return caught_text([&] { made(program); });
    }
};

at::Tensor value(const NamedTensors& tensors, const std::string& name) {
    const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
    return found == tensors.end() ? at::Tensor() : found->tensor;
}

at::Tensor forward(Model& model, const at::Tensor& x) {
    return only(model.forward({{"x", x}}));
}

// What the model throws of an operator that fails on `x`; "" if it throws nothing.
std::string what_of(Model& model, const at::Tensor& x) {
    try {
        forward(model, x);
    } catch (const std::exception& error) {
        return error.what();
    }
    return "";
}

// An argument of a call: a tensor by its name, or a number or several.
struct Argument {
    Argument(const char* tensor) : json(tensor_argument(tensor)) {}
    Argument(int number) : json(argument_of("as_int", number)) {}
    Argument(const std::vector<int>& numbers) : json(argument_of("as_ints", numbers)) {}
    Json json;
};

// Adds a call of an operator of aten.
void call(MadeUpProgram& program,
          const std::string& name,
          const std::vector<std::pair<std::string, Argument>>& arguments,
          const std::string& result) {
    std::vector<std::pair<std::string, Json>> all;
    for (const auto& [key, argument] : arguments) all.emplace_back(key, argument.json);
    program.call("torch.ops.aten." + name, all, {result});
}

// A program of one linear layer without bias, whose weight is `fc`.
MadeUpProgram one_layer() {
    MadeUpProgram program({6});
    program.parameter("fc", {3, 6}, std::vector<float>(18, 0.5F));
    call(program, "linear.default", {{"input", "x"}, {"weight", "p_fc"}}, "y");
    return program;
}

MadeUpProgram giving(const std::string& value, MadeUpProgram program) {
    program.output(value, {3});
    return program;
}

TEST_F(ProgramGraphTest, TrainsWithTheBitsOfTheSameOperators) {
    const auto model = made(test::made_up_classifier(6, 3));
    EXPECT_EQ(names_of(model->parameters()),
              (std::vector<std::string>{"norm.weight", "norm.bias", "fc.weight"}));
    EXPECT_EQ(names_of(model->frozen()), std::vector<std::string>{"scale"});
    EXPECT_EQ(names_of(model->buffers()),
              (std::vector<std::string>{
                  "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}));
    torch::manual_seed(7);
    const at::Tensor x = torch::randn({8, 6, 1, 1});
    std::vector<at::Tensor> own;
    for (const NamedTensor& one : model->parameters())
        own.push_back(one.tensor.detach().clone().requires_grad_());
    const at::Tensor mean = torch::zeros(6), variance = torch::ones(6);
    torch::manual_seed(3);
    at::Tensor wanted =
        torch::batch_norm(x.flatten(1), own[0], own[1], mean, variance, true, 0.1, 1e-5, false);
    wanted = torch::linear(torch::dropout(wanted, 0.25, true), own[2]) * torch::full({3}, 2.0F);
    wanted.square().sum().backward();
    torch::manual_seed(3);
    const at::Tensor found = only(model->forward({{"features", x}}));
    found.square().sum().backward();
    EXPECT_TRUE(found.equal(wanted));
    for (std::size_t i = 0; i < own.size(); ++i)
        EXPECT_TRUE(model->parameters()[i].tensor.grad().equal(own[i].grad())) << i;
    EXPECT_FALSE(model->frozen()[0].tensor.grad().defined());
    EXPECT_TRUE(value(model->buffers(), "norm.running_mean").equal(mean));
    EXPECT_TRUE(value(model->buffers(), "norm.running_var").equal(variance));
    EXPECT_EQ(value(model->buffers(), "norm.num_batches_tracked").item<std::int64_t>(), 1);
}

TEST_F(ProgramGraphTest, EvaluationSwitchesDropoutAndBatchNorm) {
    const auto model = made(test::made_up_classifier(6, 3));
    model->set_mode(ModelMode::evaluate);
    const at::Tensor x = torch::ones({4, 6});
    const at::Tensor first = forward(*model, x);
    EXPECT_TRUE(first.equal(forward(*model, x)));
    EXPECT_TRUE(value(model->buffers(), "norm.running_mean").equal(torch::zeros(6)));
    EXPECT_EQ(value(model->buffers(), "norm.num_batches_tracked").item<std::int64_t>(), 0);
    model->set_mode(ModelMode::train);
    forward(*model, x);
    EXPECT_EQ(value(model->buffers(), "norm.num_batches_tracked").item<std::int64_t>(), 1);
}

// As torch.nn.BatchNorm1d; the operator alone would make the running variance infinite.
TEST_F(ProgramGraphTest, BatchNormNeedsTwoValuesOfAChannelInTraining) {
    const auto model = made(test::made_up_classifier(6, 3));
    EXPECT_THAT(what_of(*model, torch::ones({1, 6})),
                HasSubstr("Expected more than 1 value per channel"));
    EXPECT_TRUE(value(model->buffers(), "norm.running_var").equal(torch::ones({6})));
    model->set_mode(ModelMode::evaluate);
    EXPECT_EQ(forward(*model, torch::ones({1, 6})).size(0), 1);
}

TEST_F(ProgramGraphTest, RefusesAProgramForEvaluation) {
    MadeUpProgram some = test::made_up_classifier(6, 3);
    some.nodes()[2]["inputs"][2]["arg"] = argument_of("as_bool", false);
    EXPECT_EQ(refusal_of(some), "");  // a dropout that somebody switched off alone
    const MadeUpProgram program = test::for_evaluation(some);
    EXPECT_THAT(refusal_of(program),
                has("was exported for evaluation",
                    "net.py, line 9",
                    "on purpose, train it as it is with --model-mode as-exported; else call "
                    "net.train() before torch.export.export()"));
    const auto model = made(program, ProgramMode::as_exported);
    const at::Tensor x = torch::full({4, 6}, 3.0F);
    const at::Tensor first = forward(*model, x);
    EXPECT_TRUE(first.equal(forward(*model, x))) << "without dropout";
    EXPECT_TRUE(first[0].equal(first[3]));
    EXPECT_NE(first[0][0].item<float>(), 0) << "with the running mean, not that of the samples";
    first.sum().backward();
    EXPECT_EQ(names_of(model->parameters()),
              (std::vector<std::string>{"norm.weight", "norm.bias", "fc.weight"}));
    EXPECT_EQ(names_of(model->buffers()), std::vector<std::string>{"norm.num_batches_tracked"})
        << "nothing writes statistics";
}

TEST_F(ProgramGraphTest, IsTrainedAsItIsOnlyIfItWasExportedForEvaluation) {
    const auto refusal = [&](const MadeUpProgram& program) {
        return caught_text([&] { made(program, ProgramMode::as_exported); });
    };
    EXPECT_THAT(refusal(test::made_up_classifier(6, 3)),
                has("E107: --model-mode as-exported has no effect", "was exported for training"));
    EXPECT_THAT(refusal(giving("y", one_layer())), HasSubstr("has no dropout and batch norm"));
}

TEST_F(ProgramGraphTest, ParametersThatLearnAreF32) {
    const auto with = [](int type, std::size_t bytes) {
        MadeUpProgram program = one_layer();
        program.parameter_of("w", type, {1}, std::string(bytes, '\0'));
        return giving("y", program);
    };
    const auto shown = [&](const MadeUpProgram& program) {
        return describe_program(folder_.file("net.pt2", test::zip_of(program.entries())));
    };
    for (const auto& [type, bytes, name] :
         {std::tuple(6, 2, "f16"), std::tuple(8, 8, "f64"), std::tuple(13, 2, "bf16")}) {
        const std::string why = "parameter 'w' is " + std::string(name) + ", not f32";
        const auto program = with(type, std::size_t(bytes));
        EXPECT_THAT(refusal_of(program), has(why, "call net.float()"));
        EXPECT_THAT(shown(program), has(why, "call net.float()"));
    }
    const auto complex = with(10, 8);
    for (const std::string& text : {refusal_of(complex), shown(complex)})
        EXPECT_THAT(text,
                    has("parameter 'w' is complex64, not f32",
                        "use torch.view_as_complex(w) in forward()"));
    EXPECT_THAT(shown(test::made_up_classifier(6, 3)), Not(HasSubstr("in the way")));
}

TEST_F(ProgramGraphTest, TiedWeightsAreOneTensor) {
    MadeUpProgram program({3});
    program.parameter("embed", {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
    program.parameter("head", {3, 3}, std::vector<float>(9));
    program.weights()["head"] = program.weights()["embed"];
    call(program, "linear.default", {{"input", "x"}, {"weight", "p_embed"}}, "embed");
    call(program, "linear.default", {{"input", "embed"}, {"weight", "p_head"}}, "head");
    const auto model = made(giving("head", program));
    ASSERT_EQ(names_of(model->parameters()), std::vector<std::string>{"embed"});
    const at::Tensor own = model->parameters()[0].tensor.detach().clone().requires_grad_();
    const at::Tensor x = torch::ones({2, 3});
    torch::linear(torch::linear(x, own), own).sum().backward();
    forward(*model, x).sum().backward();
    EXPECT_TRUE(model->parameters()[0].tensor.grad().equal(own.grad()));
}

TEST_F(ProgramGraphTest, NamedParametersAreFrozen) {
    const auto model = made(test::made_up_classifier(6, 3));
    freeze_named(*model, "norm.*");
    EXPECT_EQ(names_of(model->parameters()), std::vector<std::string>{"fc.weight"});
    EXPECT_EQ(names_of(model->frozen()),
              (std::vector<std::string>{"norm.weight", "norm.bias", "scale"}));
    for (const NamedTensor& one : model->frozen()) EXPECT_FALSE(one.tensor.requires_grad());
}

TEST_F(ProgramGraphTest, SizesOfTheBatchAreNumbers) {
    MadeUpProgram program = one_layer();
    call(program, "sym_size.int", {{"self", "x"}, {"dim", 0}}, "size");
    Json sizes = Json::array();
    sizes.push_back({{"as_name", "size"}});
    sizes.push_back(argument_of("as_int", 3));
    program.call("torch.ops.aten.view.default",
                 {{"self", tensor_argument("y")}, {"size", argument_of("as_sym_ints", sizes)}},
                 {"z"});
    const auto model = made(giving("z", program));
    for (const std::int64_t rows : {1, 2, 7})
        EXPECT_EQ(forward(*model, torch::ones({rows, 6})).sizes(),
                  (std::vector<std::int64_t>{rows, 3}));
}

TEST_F(ProgramGraphTest, NamesInputsThatDoNotFit) {
    const auto model = made(giving("y", one_layer()));
    EXPECT_EQ(model->input_names(), std::vector<std::string>{"x"});
    for (const at::Tensor& wrong : {torch::ones({2, 5}),
                                    torch::ones({2, 2, 3}),
                                    torch::ones({5000, 6}),
                                    torch::ones({2, 6}, torch::kLong)})
        EXPECT_THAT(caught_text([&] { forward(*model, wrong); }),
                    has("E217", "its input 'x' is f32 [batch, 6]"));
}

TEST_F(ProgramGraphTest, NamesTheTypeToExportWith) {
    const auto fix = [&](int type, const at::Tensor& given) {
        MadeUpProgram program = one_layer();
        program.input("mask", type, {3});
        const auto model = made(giving("y", program));
        const auto error = caught([&] {
            model->forward({{"x", torch::ones({2, 6})}, {"m", given}});
        });
        return error ? error->fix() : "none";
    };
    const at::Tensor whole = torch::ones({2, 3}, torch::kLong), real = torch::ones({2, 3});
    const std::string begin = "export it with 'mask' of ";
    for (const auto& [type, method] :
         {std::pair(1, "byte"), std::pair(4, "int"), std::pair(12, "bool")}) {
        const std::string way = fmt::format(", and convert it in forward(): mask.{}()", method);
        EXPECT_EQ(fix(type, whole), begin + "i64" + way);
        EXPECT_EQ(fix(type, real), begin + "i64 for whole numbers, or f32 for others" + way);
    }
    const std::string way = ", and convert it in forward(): mask.";
    EXPECT_EQ(fix(8, real), begin + "f32" + way + "double()");
    EXPECT_EQ(fix(5, real), begin + "f32" + way + "long()");
    EXPECT_EQ(fix(7, whole), begin + "i64" + way + "float()");
    EXPECT_EQ(fix(7, real), "none");
    EXPECT_THAT(fix(7, torch::ones({2, 4})), StartsWith("export it with a sample input"));
}

TEST_F(ProgramGraphTest, AnOperatorThatFailsNamesTheUsersLine) {
    MadeUpProgram program = one_layer();
    call(program, "view.default", {{"self", "y"}, {"size", std::vector{7, 7}}}, "z");
    const auto model = made(giving("z", program));
    EXPECT_THAT(what_of(*model, torch::ones({2, 6})),
                has("invalid for input of size 6", "aten::view of net.py, line 9: y = work(x)"));
}

// Kernels of another device give other strides than those of the export.
TEST_F(ProgramGraphTest, AViewIsACopyWhereStridesAskForItAndNobodyWritesIt) {
    const auto viewed = [](bool writes) {
        MadeUpProgram program = one_layer();
        call(program, "transpose.int", {{"self", "y"}, {"dim0", 0}, {"dim1", 1}}, "turned");
        call(program, "view.default", {{"self", "turned"}, {"size", std::vector{-1, 3}}}, "z");
        if (writes) call(program, "add_.Tensor", {{"self", "y"}, {"other", 1}}, "more");
        return giving("z", program);
    };
    const at::Tensor x = torch::arange(12, at::kFloat).view({2, 6});
    const at::Tensor y = forward(*made(giving("y", one_layer())), x);
    const at::Tensor z = forward(*made(viewed(false)), x);
    EXPECT_TRUE(z.equal(y.t().reshape({-1, 3})));
    const auto written = made(viewed(true));
    EXPECT_THAT([&] { forward(*written, x); },
                testing::ThrowsMessage<std::runtime_error>(HasSubstr("view size is not")));
}

// Images have channels innermost in memory; PyTorch exported with contiguous ones.
TEST_F(ProgramGraphTest, StridesAreThoseOfTheExport) {
    const auto strided = [](bool writes) {
        MadeUpProgram program({2, 2, 2});
        program.parameter("w", {8}, std::vector<float>(8, 1));
        call(program,
             "as_strided.default",
             {{"self", "x"}, {"size", std::vector{3, 8}}, {"stride", std::vector{8, 1}}},
             "rows");
        if (writes) call(program, "add_.Tensor", {{"self", "rows"}, {"other", 1}}, "more");
        call(program, "mul.Tensor", {{"self", "rows"}, {"other", "p_w"}}, "y");
        program.output("y", {8});
        return program;
    };
    const at::Tensor x = torch::arange(24, at::kFloat).view({3, 2, 2, 2});
    const at::Tensor channels_last = x.contiguous(at::MemoryFormat::ChannelsLast);
    const auto model = made(strided(false));
    for (const at::Tensor& given : {x, channels_last})
        EXPECT_TRUE(forward(*model, given).equal(x.view({3, 8})));
    const auto written = made(strided(true));
    EXPECT_THAT(
        what_of(*written, channels_last),
        has("clone(memory_format=torch.contiguous_format)", "aten::as_strided of net.py, line 9"));
    EXPECT_TRUE(forward(*written, x.clone()).equal(x.view({3, 8}) + 1));
    // What the export had in another order is read as it lies.
    MadeUpProgram turned = strided(false);
    Json& strides = turned.graph()["tensor_values"]["x"]["strides"];
    strides = Json::array();
    for (const int stride : {8, 1, 4, 2}) strides.push_back(test::argument_of("as_int", stride));
    EXPECT_TRUE(forward(*made(turned), channels_last)
                    .equal(channels_last.permute({0, 2, 3, 1}).reshape({3, 8})));
}

TEST_F(ProgramGraphTest, RefusesCallsThatAreNotPyTorchsOwn) {
    const auto calling = [&](const std::string& target) {
        MadeUpProgram program = one_layer();
        program.call(target, {{"self", tensor_argument("y")}}, {"z"});
        return refusal_of(giving("y", program));
    };
    for (const char* target : {"torch.ops.mine.work.default",
                               "torch.ops.aten.no_such.default",
                               "torch.ops.aten.relu.no_such",
                               "torch.ops.aten.from_file.default",
                               "torch.ops.aten.",
                               "_operator.lshift",
                               ""})
        EXPECT_THAT(calling(target),
                    has("E250", "which is no operator of LibTorch", "it comes from net.py, line 9"))
            << target;
    EXPECT_THAT(calling("torch.ops.higher_order.cond"),
                has("operator higher_order.cond", "torch.where()"));
    EXPECT_THAT(calling("torch.ops.aten.relu_.default"), "");
    EXPECT_THAT(calling("torch.ops.aten.conv2d.default"), HasSubstr("has no argument 'self'"));
    MadeUpProgram program = one_layer();
    call(program, "relu_.default", {{"self", "p_fc"}}, "z");
    EXPECT_THAT(refusal_of(giving("y", program)),
                HasSubstr("it writes the parameter 'fc' in forward()"));
    program = one_layer();
    call(program, "relu.default", {{"self", "later"}}, "z");
    EXPECT_THAT(refusal_of(giving("y", program)),
                HasSubstr("'later' is used before it is computed"));
}

// A view of a buffer that is written is the buffer's state; one that nobody writes is none, of
// whatever type.
TEST_F(ProgramGraphTest, BuffersThatChangeAreState) {
    MadeUpProgram program = one_layer();
    program.buffer("calls", 7, {2}, MadeUpProgram::bytes_of_all<float>({0, 0}));
    program.buffer("mask", 12, {3}, std::string("\1\0\1", 3));
    call(program, "select.int", {{"self", "b_calls"}, {"dim", 0}, {"index", 1}}, "second");
    call(program, "add_.Tensor", {{"self", "second"}, {"other", 1}}, "added");
    call(program, "mul.Tensor", {{"self", "y"}, {"other", "b_mask"}}, "z");
    const auto model = made(giving("z", program));
    EXPECT_EQ(names_of(model->buffers()), std::vector<std::string>{"calls"});
    const at::Tensor out = forward(*model, torch::ones({2, 6}));
    EXPECT_TRUE(out[0].equal(torch::tensor({3.0F, 0.0F, 3.0F})));
    EXPECT_TRUE(model->buffers()[0].tensor.equal(torch::tensor({0.0F, 1.0F})));
}

// As torch.no_grad() in forward() is exported: a part of the graph with names of its own.
TEST_F(ProgramGraphTest, PartsWithoutGradientsHaveNone) {
    MadeUpProgram part = one_layer();
    MadeUpProgram program = one_layer();
    Json graph = Json::object();
    graph["name"] = "part";
    graph["graph"]["inputs"] = Json::array();
    for (const char* name : {"x", "p_fc"})
        graph["graph"]["inputs"].push_back(tensor_argument(name));
    graph["graph"]["outputs"] = Json::array();
    graph["graph"]["outputs"].push_back(tensor_argument("y"));
    graph["graph"]["nodes"] = part.nodes();
    program.call("torch.ops.higher_order.wrap_with_set_grad_enabled",
                 {{"", argument_of("as_bool", false)},
                  {"", argument_of("as_graph", graph)},
                  {"", tensor_argument("x")},
                  {"", tensor_argument("p_fc")}},
                 {"still"});
    call(program, "mul.Tensor", {{"self", "y"}, {"other", "still"}}, "z");
    const auto model = made(giving("z", program));
    forward(*model, torch::ones({1, 6})).sum().backward();
    // y = w x with x of ones: of y * still only y has a gradient, which is still x = 3.
    EXPECT_TRUE(model->parameters()[0].tensor.grad().equal(torch::full({3, 6}, 3.0F)));
}

TEST_F(ProgramGraphTest, ForgetsValuesAfterTheirLastUse) {
    MadeUpProgram program = test::made_up_classifier(6, 3);
    const auto path = folder_.file("net.pt2", test::zip_of(program.entries()));
    const ProgramFile file = read_program(path);
    std::vector<at::Tensor> tensors;
    for (const ProgramTensor& one : file.tensors) tensors.push_back(torch::zeros(one.sizes));
    const ProgramGraph graph = compile_program(file, tensors, ProgramMode::train);
    std::vector<bool> is_kept(graph.start.size(), true);
    for (const ProgramCall& call : graph.calls)
        for (const SlotIndex slot : call.last_uses) {
            EXPECT_TRUE(is_kept[slot]) << call.name;
            is_kept[slot] = false;
        }
    EXPECT_EQ(std::ranges::count(is_kept, true), 1);
    EXPECT_TRUE(is_kept[graph.outputs.at(0)]);
}

TEST(NumberOperations, AreThoseOfPython) {
    const auto of = [](const char* name, std::vector<c10::IValue> values) {
        return number_operation(name)(values);
    };
    EXPECT_EQ(of("_operator.floordiv", {-7, 2}).toInt(), -4);
    EXPECT_EQ(of("_operator.mod", {-7, 2}).toInt(), 1);
    EXPECT_EQ(of("_operator.mod", {7, -2}).toInt(), -1);
    EXPECT_EQ(of("_operator.truediv", {7, 2}).toDouble(), 3.5);
    EXPECT_EQ(of("torch.sym_max", {7, 2}).toInt(), 7);
    EXPECT_TRUE(of("_operator.ge", {2, 2}).toBool());
    EXPECT_EQ(number_operation("_operator.none"), nullptr);
    EXPECT_THROW(of("_operator.mod", {7, 0}), std::runtime_error);
    EXPECT_THROW(of("_operator.floordiv", {INT64_MIN, -1}), std::runtime_error);
    EXPECT_THROW(of("_operator.mul", {INT64_MAX, 2}), std::runtime_error);
    EXPECT_THROW(of("_operator.add", {1}), std::runtime_error);
}

}  // namespace
}  // namespace lockstep
