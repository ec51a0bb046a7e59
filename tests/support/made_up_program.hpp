// SPDX-License-Identifier: Apache-2.0
// Exported programs without Python: the entries of an archive as torch.export.save() writes them,
// and the zip around them. Tests change either to have a damaged one.
#pragma once

#include "lockstep/core/json.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::test {

/// The entries of an archive, in order.
using ArchiveEntries = std::vector<std::pair<std::string, std::string>>;

inline std::string little_endian(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
}

inline std::uint32_t zip_checksum(std::string_view bytes) {
    std::uint32_t crc = ~0u;
    for (const char byte : bytes) {
        crc ^= static_cast<unsigned char>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
    }
    return ~crc;
}

/// A zip of stored entries below a folder.
inline std::string zip_of(const ArchiveEntries& entries, const std::string& folder = "net/") {
    std::string file, table;
    for (const auto& [name, bytes] : entries) {
        const std::string full = folder + name;
        const std::string numbers =
            little_endian(zip_checksum(bytes), 4) + little_endian(bytes.size(), 4) +
            little_endian(bytes.size(), 4) + little_endian(full.size(), 2) + little_endian(0, 2);
        const std::string start = little_endian(20, 2) + std::string(8, '\0');  // stored, no time
        table += "PK\1\2" + little_endian(20, 2) + start + numbers + std::string(10, '\0') +
                 little_endian(file.size(), 4) + full;
        file += "PK\3\4" + start + numbers + full + bytes;
    }
    const std::size_t offset = file.size();
    file += table + "PK\5\6" + std::string(4, '\0') + little_endian(entries.size(), 2) +
            little_endian(entries.size(), 2) + little_endian(table.size(), 4) +
            little_endian(offset, 4) + little_endian(0, 2);
    return file;
}

/// {"as_tensor": {"name": "x"}}.
inline Json tensor_argument(const std::string& value) {
    return {{"as_tensor", {{"name", value}}}};
}

/// {"as_int": 3}, and others of that form.
inline Json argument_of(const std::string& kind, Json value) {
    return {{kind, std::move(value)}};
}

/// Writes down a program, call by call.
class MadeUpProgram {
  public:
    /// With one input `x` of f32 [batch, extents...].
    explicit MadeUpProgram(const std::vector<std::int64_t>& extents) {
        model_ = {{"schema_version", {{"major", 8}, {"minor", 17}}},
                  {"torch_version", "2.11.0"},
                  {"range_constraints", {{"s0", {{"min_val", 2}, {"max_val", 4096}}}}}};
        graph()["nodes"] = Json::array();
        signature()["input_specs"] = Json::array();
        signature()["output_specs"] = Json::array();
        weights_["config"] = Json::object();
        constants_["config"] = Json::object();
        add_spec("input_specs", "user_input", argument_of("arg", tensor_argument("x")));
        set_value("x", extents);
    }

    std::string module;  ///< that the calls which follow are part of: "layer1.0.conv1"

    Json& model() { return model_; }
    Json& weights() { return weights_["config"]; }
    Json& graph() { return model_["graph_module"]["graph"]; }
    Json& signature() { return model_["graph_module"]["signature"]; }
    Json& nodes() { return graph()["nodes"]; }

    /// A parameter that learns or not, of f32 values.
    void parameter(const std::string& name,
                   const std::vector<std::int64_t>& sizes,
                   const std::vector<float>& values,
                   bool learns = true) {
        parameter_of(name, 7, sizes, bytes_of_all(values), learns);
    }

    /// The same of schema.py's type of elements.
    void parameter_of(const std::string& name,
                      int type,
                      const std::vector<std::int64_t>& sizes,
                      const std::string& bytes,
                      bool learns = true) {
        add_spec("input_specs",
                 "parameter",
                 {{"arg", {{"name", "p_" + name}}}, {"parameter_name", name}});
        add_payload(name, type, sizes, bytes, learns);
    }

    /// A buffer that is kept, of schema.py's type of elements.
    void buffer(const std::string& name,
                int type,
                const std::vector<std::int64_t>& sizes,
                const std::string& bytes) {
        add_spec("input_specs",
                 "buffer",
                 {{"arg", {{"name", "b_" + name}}}, {"buffer_name", name}, {"persistent", true}});
        add_payload(name, type, sizes, bytes, false);
    }

    /// A node: its arguments by name, and the values that it gives.
    void call(const std::string& target,
              const std::vector<std::pair<std::string, Json>>& arguments,
              const std::vector<std::string>& results) {
        Json inputs = Json::array(), outputs = Json::array();
        for (const auto& [name, argument] : arguments)
            inputs.push_back({{"name", name}, {"arg", argument}});
        for (const std::string& result : results)
            outputs.push_back(result == "size" ? argument_of("as_sym_int", {{"as_name", "size"}})
                                               : tensor_argument(result));
        const std::string stack =
            "File \"net.py\", line 9, in forward\n    y = work(x)\n  File "
            "\"/usr/lib/site-packages/torch/nn/modules/linear.py\", line 1, in forward\n    z";
        const std::string modules =
            "L__self__,,net.Net;L__self___part," + module + ",torch.nn.modules.linear.Linear";
        nodes().push_back({{"target", target},
                           {"inputs", inputs},
                           {"outputs", outputs},
                           {"metadata", {{"stack_trace", stack}, {"nn_module_stack", modules}}}});
    }

    /// The value that forward() returns, f32 [batch, extents...].
    void output(const std::string& value, const std::vector<std::int64_t>& extents) {
        add_spec("output_specs", "user_output", argument_of("arg", tensor_argument(value)));
        set_value(value, extents);
    }

    /// forward() returns a dict of these keys, in the order of the outputs.
    void name_outputs(const std::vector<std::string>& keys) {
        const Json tree = {1, {{"type", "builtins.dict"}, {"context", Json(keys).dump()}}};
        Json& calls = model_["graph_module"]["module_call_graph"] = Json::array();
        calls.push_back({{"signature", {{"out_spec", tree.dump()}}}});
    }

    /// Another argument of forward(), [batch, extents...], of schema.py's type of elements.
    void input(const std::string& name, int type, const std::vector<std::int64_t>& extents) {
        add_spec("input_specs", "user_input", argument_of("arg", tensor_argument(name)));
        set_value(name, extents);
        graph()["tensor_values"][name]["dtype"] = type;
    }

    ArchiveEntries entries() const {
        ArchiveEntries all = {{"models/model.json", model_.dump()},
                              {"data/weights/model_weights_config.json", weights_.dump()},
                              {"data/constants/model_constants_config.json", constants_.dump()}};
        for (std::size_t i = 0; i < payloads_.size(); ++i)
            all.emplace_back("data/weights/weight_" + std::to_string(i), payloads_[i]);
        return all;
    }

    template <class T>
    static std::string bytes_of_all(const std::vector<T>& values) {
        std::string bytes(values.size() * sizeof(T), '\0');
        if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
        return bytes;
    }

  private:
    void add_spec(const char* list, const std::string& kind, Json spec) {
        signature()[list].push_back(argument_of(kind, std::move(spec)));
    }

    static Json sizes_of(const std::vector<std::int64_t>& sizes) {
        Json list = Json::array();
        for (const std::int64_t size : sizes) list.push_back(argument_of("as_int", size));
        return list;
    }

    void set_value(const std::string& value, const std::vector<std::int64_t>& extents) {
        Json sizes = Json::array();
        sizes.push_back({{"as_expr", {{"expr_str", "Symbol('s0', positive=True, integer=True)"}}}});
        for (const Json& extent : sizes_of(extents)) sizes.push_back(extent);
        graph()["tensor_values"][value] = {{"dtype", 7}, {"sizes", sizes}};
    }

    void add_payload(const std::string& name,
                     int type,
                     const std::vector<std::int64_t>& sizes,
                     const std::string& bytes,
                     bool learns) {
        std::vector<std::int64_t> strides(sizes.size(), 1);
        for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
        weights()[name] = {{"path_name", "weight_" + std::to_string(payloads_.size())},
                           {"use_pickle", false},
                           {"tensor_meta",
                            {{"dtype", type},
                             {"sizes", sizes_of(sizes)},
                             {"strides", sizes_of(strides)},
                             {"storage_offset", argument_of("as_int", 0)},
                             {"requires_grad", learns},
                             {"layout", 7}}}};
        payloads_.push_back(bytes);
    }

    Json model_, weights_, constants_;
    std::vector<std::string> payloads_;
};

/// Logits of `classes` for f32 [batch, features], or [batch, extents...] with as many numbers,
/// through batch norm, dropout and a linear layer; one of its parameters is frozen.
inline MadeUpProgram made_up_classifier(std::int64_t features,
                                        std::int64_t classes,
                                        const std::vector<std::int64_t>& extents = {}) {
    MadeUpProgram made(extents.empty() ? std::vector<std::int64_t>{features} : extents);
    const auto floats = [](std::int64_t count, float value, float step = 0) {
        std::vector<float> values;
        for (std::int64_t i = 0; i < count; ++i)
            values.push_back(value + step * static_cast<float>(i % 7));
        return values;
    };
    made.parameter("norm.weight", {features}, floats(features, 1));
    made.parameter("norm.bias", {features}, floats(features, 0));
    made.parameter("fc.weight", {classes, features}, floats(classes * features, -0.3F, 0.1F));
    made.parameter("scale", {classes}, floats(classes, 2), false);
    made.buffer("norm.running_mean", 7, {features}, made.bytes_of_all(floats(features, 0)));
    made.buffer("norm.running_var", 7, {features}, made.bytes_of_all(floats(features, 1)));
    made.buffer("norm.num_batches_tracked", 5, {}, made.bytes_of_all<std::int64_t>({0}));
    const auto given = [](const std::string& value) { return tensor_argument(value); };
    if (!extents.empty())
        made.call("torch.ops.aten.flatten.using_ints",
                  {{"self", given("x")}, {"start_dim", argument_of("as_int", 1)}},
                  {"flat"});
    made.call("torch.ops.aten.add_.Tensor",
              {{"self", given("b_norm.num_batches_tracked")}, {"other", argument_of("as_int", 1)}},
              {"add_"});
    made.module = "norm";
    made.call("torch.ops.aten.batch_norm.default",
              {{"input", given(extents.empty() ? "x" : "flat")},
               {"weight", given("p_norm.weight")},
               {"bias", given("p_norm.bias")},
               {"running_mean", given("b_norm.running_mean")},
               {"running_var", given("b_norm.running_var")},
               {"training", argument_of("as_bool", true)},
               {"momentum", argument_of("as_float", 0.1)},
               {"eps", argument_of("as_float", 1e-5)},
               {"cudnn_enabled", argument_of("as_bool", false)}},
              {"norm"});
    made.module = "body.drop";
    made.call("torch.ops.aten.dropout.default",
              {{"input", given("norm")},
               {"p", argument_of("as_float", 0.25)},
               {"train", argument_of("as_bool", true)}},
              {"dropout"});
    made.module = "fc";
    made.call("torch.ops.aten.linear.default",
              {{"input", given("dropout")}, {"weight", given("p_fc.weight")}},
              {"linear"});
    made.module.clear();
    made.call("torch.ops.aten.mul.Tensor",
              {{"self", given("linear")}, {"other", given("p_scale")}},
              {"mul"});
    made.output("mul", {classes});
    return made;
}

/// The same program as `net.eval()` before the export makes it: batch norm and dropout are off.
inline MadeUpProgram for_evaluation(MadeUpProgram made) {
    for (std::size_t i = 0; i < made.nodes().size(); ++i)
        for (std::size_t k = 0; k < made.nodes()[i]["inputs"].size(); ++k) {
            Json& input = made.nodes()[i]["inputs"][k];
            const auto name = input["name"].get<std::string>();
            if (name == "train" || name == "training") input["arg"] = argument_of("as_bool", false);
        }
    return made;
}

/// Takes images and labels, and returns the loss of each sample and whether it is right, by logits
/// with random numbers as a variational autoencoder has them.
inline MadeUpProgram made_up_own_loss() {
    MadeUpProgram made({1, 28, 28});
    made.input("labels", 5, {});
    const auto given = [](const std::string& value) { return tensor_argument(value); };
    made.parameter("fc.weight", {10, 784}, std::vector<float>(7840, 0.01F));
    made.call("torch.ops.aten.flatten.using_ints",
              {{"self", given("x")}, {"start_dim", argument_of("as_int", 1)}},
              {"flat"});
    made.call("torch.ops.aten.linear.default",
              {{"input", given("flat")}, {"weight", given("p_fc.weight")}},
              {"mean"});
    made.call("torch.ops.aten.randn_like.default", {{"self", given("mean")}}, {"noise"});
    made.call("torch.ops.aten.add.Tensor",
              {{"self", given("mean")}, {"other", given("noise")}},
              {"logits"});
    made.call("torch.ops.aten.cross_entropy_loss.default",
              {{"self", given("logits")},
               {"target", given("labels")},
               {"reduction", argument_of("as_int", 0)}},
              {"loss"});
    made.call("torch.ops.aten.argmax.default",
              {{"self", given("mean")}, {"dim", argument_of("as_int", 1)}},
              {"best"});
    made.call("torch.ops.aten.eq.Tensor",
              {{"self", given("best")}, {"other", given("labels")}},
              {"right"});
    made.output("right", {});
    made.output("loss", {});
    made.name_outputs({"right", "loss"});
    return made;
}

}  // namespace lockstep::test
