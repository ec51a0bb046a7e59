// SPDX-License-Identifier: Apache-2.0
// Tested: train/program/program_file_test.cpp.
#include "program/program_file.hpp"

#include "lockstep/core/log.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t most_model_bytes = 128u << 20;
constexpr std::int64_t most_elements_of_program = std::int64_t{1} << 40;
constexpr std::int64_t schema = 8;
constexpr int strided = 7;  // schema.py's Layout
constexpr std::size_t most_dimensions = 64, most_inputs = 64;

constexpr std::array elements_of_programs = {
    ProgramElement{1, "u8", 1, ExportedElement::u8},
    ProgramElement{2, "i8", 1, ExportedElement::i8},
    ProgramElement{3, "i16", 2, ExportedElement::i16},
    ProgramElement{4, "i32", 4, ExportedElement::i32},
    ProgramElement{5, "i64", 8, ExportedElement::i64},
    ProgramElement{6, "f16", 2, ExportedElement::f16},
    ProgramElement{7, "f32", 4, ExportedElement::f32},
    ProgramElement{8, "f64", 8, ExportedElement::f64},
    ProgramElement{9, "complex32", 4},
    ProgramElement{10, "complex64", 8, ExportedElement::complex64},
    ProgramElement{11, "complex128", 16},
    ProgramElement{12, "bool", 1, ExportedElement::boolean},
    ProgramElement{13, "bf16", 2, ExportedElement::bf16}};

constexpr const char* export_line =
    "export it so: batch = torch.export.Dim('batch'); program = torch.export.export(net.train(), "
    "(x,), dynamic_shapes=({0: batch},)), with x of 2 samples or more";

// Reads one archive; `path` and `file` are for all its functions.
class ProgramReader {
  public:
    explicit ProgramReader(const fs::path& path) : path_(path), file_(path) {}

    ProgramFile read() && {
        return reading_program(path_, [&] {
            const Json model = parse_json(text_of("models/model.json"), "models/model.json");
            check_schema(model);
            weights_ = config_of("data/weights/model_weights_config.json");
            constants_ = config_of("data/constants/model_constants_config.json");
            const Json& module = model["graph_module"];
            ranges_ = &model["range_constraints"];
            graph_ = &module["graph"];
            values_ = &graph_->at("tensor_values");
            file_.torch_version = model.value("torch_version", "an unknown version");
            for (const Json& spec : module["signature"]["input_specs"]) take_input(spec);
            for (const Json& spec : module["signature"]["output_specs"]) take_output(spec);
            name_outputs(module);
            file_.nodes = graph_->at("nodes");
            for (const auto& [name, meta] : values_->items())
                if (is_turned(meta)) file_.turned.insert(name);
            check_interface();
            return std::move(file_);
        });
    }

  private:
    // Errors: E250 with `why` unless the file is whole.
    template <class... Values>
    void check_whole(bool is_whole,
                     fmt::format_string<const Values&...> why,
                     const Values&... values) const {
        check(is_whole, [&] { return damaged_program(path_, fmt::format(why, values...)); });
    }

    ProgramElement element_of(const Json& meta) const {
        const int number = meta["dtype"].get<int>();
        const auto found = std::ranges::find(elements_of_programs, number, &ProgramElement::number);
        check_whole(
            found != elements_of_programs.end(), "a tensor is of the unknown type {}", number);
        return *found;
    }

    std::string text_of(const std::string& name) const {
        return file_.zip.text(name, most_model_bytes);
    }

    // Payloads by name.
    std::map<std::string, Json> config_of(const std::string& name) const {
        if (file_.zip.find(name) == nullptr) return {};
        return parse_json(text_of(name), name)["config"].get<std::map<std::string, Json>>();
    }

    void check_schema(const Json& model) const {
        const Json& version = model["schema_version"];
        const auto major = version["major"].get<std::int64_t>();
        check_program(
            major == schema,
            fmt::format(
                "'{}' has version {} of the format of exported programs", path_.string(), major),
            fmt::format("this program reads version {}", schema),
            "export it with PyTorch 2.9 to 2.15");
    }

    // {"as_tensor": {"name": "x"}}; nullptr: no tensor.
    static const Json* tensor_of(const Json& argument) {
        const JsonMember& member = only_member(argument);
        return member.key == "as_tensor" ? &member.value : nullptr;
    }

    void take_input(const Json& spec) {
        const JsonMember& member = only_member(spec);
        const auto& kind = member.key;
        const Json& about = member.value;
        const auto named = [&](const char* key) { return about[key].get<std::string>(); };
        if (kind == "user_input") return take_user_input(about["arg"]);
        if (kind == "constant_input") return;
        check_program(kind != "custom_obj" && kind != "token",
                      fmt::format("'{}' needs an object of Python", path_.string()),
                      fmt::format("an input of its graph is a {}", kind),
                      "write the model with tensors alone, and export it again");
        ProgramTensor tensor;
        tensor.value = about["arg"]["name"].get<std::string>();
        if (kind == "parameter") {
            tensor.role = ProgramRole::parameter;
            tensor.name = named("parameter_name");
        } else if (kind == "buffer") {
            tensor.role = ProgramRole::buffer;
            tensor.name = named("buffer_name");
            tensor.is_kept = about["persistent"].get<bool>();
        } else {
            check_whole(kind == "tensor_constant", "an input of its graph is a '{}'", kind);
            tensor.name = named("tensor_constant_name");
            tensor.is_kept = false;
        }
        take_payload(tensor);
        if (tensor.role == ProgramRole::buffer) buffers_[tensor.name] = file_.tensors.size();
        file_.tensors.push_back(std::move(tensor));
    }

    void take_user_input(const Json& argument) {
        const Json* tensor = tensor_of(argument);
        if (tensor == nullptr) return;  // a number, which the graph has instead
        file_.inputs.push_back(described(tensor->at("name").get<std::string>()));
        check_whole(file_.inputs.size() <= most_inputs,
                    "forward() would take more than 64 tensors");
    }

    ProgramInput described(const std::string& value) const {
        const Json& meta = values_->at(value);
        ProgramInput input{value, value, element_of(meta), {}};
        for (const Json& extent : meta["sizes"]) input.shape.push_back(dimension_of(extent));
        return input;
    }

    // Of strides that depend on free sizes nothing is said.
    static bool is_turned(const Json& meta) {
        std::vector<std::int64_t> strides;
        const Json* const given = meta.find("strides");
        for (const Json& stride : given == nullptr ? Json::array() : *given)
            if (const Json* number = stride.find("as_int"))
                strides.push_back(number->get<std::int64_t>());
        return !std::ranges::is_sorted(strides, std::greater<>());
    }

    // {"as_int": 3}, or {"as_expr": {"expr_str": "Symbol('s77', ...)"}}.
    ProgramDimension dimension_of(const Json& extent) const {
        const auto& [kind, about] = only_member(extent);
        if (kind == "as_int") return {.extent = about.get<std::int64_t>(), .symbol = ""};
        const auto text = about["expr_str"].get<std::string>();
        ProgramDimension dimension{.symbol = text};
        constexpr std::string_view symbol = "Symbol('";
        if (!text.starts_with(symbol)) return dimension;
        dimension.symbol =
            text.substr(symbol.size(), text.find('\'', symbol.size()) - symbol.size());
        if (const Json* range = ranges_->find(dimension.symbol)) {
            const Json& least = range->at("min_val");
            const Json& most = range->at("max_val");
            if (!least.is_null()) dimension.least = least.get<std::int64_t>();
            if (!most.is_null()) dimension.most = most.get<std::int64_t>();
            // In PyTorch's files 2 stands for "not assumed to be 0 or 1".
            if (dimension.least <= 2) dimension.least = 0;
        }
        return dimension;
    }

    void take_payload(ProgramTensor& tensor) {
        const bool is_weight = tensor.role == ProgramRole::parameter ||
                               (tensor.role == ProgramRole::buffer && tensor.is_kept);
        const auto& payloads = is_weight ? weights_ : constants_;
        const auto payload = payloads.find(tensor.name);
        check_whole(payload != payloads.end(), "it has no values of '{}'", tensor.name);
        const Json& about = payload->second;
        check_program(!about["use_pickle"].get<bool>(),
                      fmt::format("'{}' is kept as a Python object", tensor.name),
                      "only Python can read it; PyTorch does so for subclasses of Tensor",
                      "make it a plain tensor in the model, and export it again");
        const Json& meta = about["tensor_meta"];
        tensor.element = element_of(meta);
        tensor.learns = tensor.role == ProgramRole::parameter && meta["requires_grad"].get<bool>();
        tensor.sizes = numbers_of(meta["sizes"]);
        tensor.strides = numbers_of(meta["strides"]);
        tensor.offset = only_member(meta["storage_offset"]).value.get<std::int64_t>();
        const auto layout = meta["layout"].get<int>();
        const auto place = about["path_name"].get<std::string>();
        const ZipEntry* entry =
            file_.zip.find((is_weight ? "data/weights/" : "data/constants/") + place);
        check_whole(entry != nullptr && layout == strided && tensor.offset >= 0,
                    "the values of '{}' are not in it",
                    tensor.name);
        tensor.bytes = *entry;
        check_reach(tensor);
        find_twin(tensor);
    }

    static std::vector<std::int64_t> numbers_of(const Json& list) {
        std::vector<std::int64_t> numbers;
        for (const Json& one : list) {
            const auto& [kind, value] = only_member(one);
            numbers.push_back(kind == "as_int" ? value.get<std::int64_t>() : -1);
        }
        return numbers;
    }

    // Its last element is within its bytes, and it has no more elements than these: a tensor of
    // strides 0 would be larger than its file.
    void check_reach(const ProgramTensor& tensor) const {
        const auto fail = [&] {
            return damaged_program(
                path_,
                fmt::format("'{}' does not fit its {} bytes", tensor.name, tensor.bytes.bytes));
        };
        const std::size_t dimensions = tensor.sizes.size();
        check(tensor.strides.size() == dimensions && dimensions <= most_dimensions, fail);
        std::int64_t count = 1, last = tensor.offset;
        check(last <= most_elements_of_program, fail);
        for (std::size_t i = 0; i < dimensions; ++i) {
            const std::int64_t size = tensor.sizes[i], stride = tensor.strides[i];
            check(size >= 0 && stride >= 0 && size <= most_elements_of_program &&
                      stride <= most_elements_of_program / std::max<std::int64_t>(size, 1),
                  fail);
            count = size == 0 || count <= most_elements_of_program / size ? count * size : -1;
            last += std::max<std::int64_t>(size - 1, 0) * stride;
            check(count >= 0 && last <= most_elements_of_program, fail);
        }
        const auto room = static_cast<std::int64_t>(tensor.bytes.bytes / tensor.element.bytes);
        check(count == 0 || (count <= room && last < room), fail);
    }

    // Names of one tensor share its entry.
    void find_twin(ProgramTensor& tensor) {
        tensor.same_as = file_.tensors.size();
        if (tensor.count() == 0) return;
        const auto [place, is_new] = owners_.try_emplace(tensor.bytes.offset, tensor.same_as);
        if (is_new) return;
        const ProgramTensor& other = file_.tensors[place->second];
        const auto shape = [](const ProgramTensor& one) {
            return std::tie(one.element.number, one.sizes, one.strides, one.offset, one.learns);
        };
        if (shape(other) == shape(tensor)) {
            tensor.same_as = place->second;
            return;
        }
        check_program(
            !other.learns && !tensor.learns,
            fmt::format("'{}' and '{}' share memory but not shape", other.name, tensor.name),
            "weights that learn must be tensors of their own, or the same tensor",
            fmt::format("register '{}' alone, and write the other as an expression of it in "
                        "forward()",
                        other.name));
    }

    void take_output(const Json& spec) {
        const JsonMember& member = only_member(spec);
        const auto& kind = member.key;
        const Json& about = member.value;
        if (kind == "user_output" || kind == "loss_output") {
            const Json& argument = about["arg"];
            const Json* tensor = kind == "loss_output" ? &argument : tensor_of(argument);
            if (tensor != nullptr) add_output(tensor->at("name").get<std::string>());
            return;
        }
        check_program(kind == "buffer_mutation",
                      fmt::format("'{}' changes what is no buffer", path_.string()),
                      fmt::format("an output of its graph is a {}", kind),
                      "change only buffers in place in forward()");
        const auto buffer = about["buffer_name"].get<std::string>();
        const auto place = buffers_.find(buffer);
        check_whole(place != buffers_.end(), "it changes '{}', which it has not", buffer);
        file_.updates.push_back({about["arg"]["name"].get<std::string>(), place->second});
    }

    void add_output(const std::string& value) {
        file_.outputs.push_back(
            {std::to_string(file_.outputs.size()), value, shape_text(described(value))});
    }

    // The keys of a dict are in a text: [1, {"type": "builtins.dict", "context": "[\"loss\"]"}].
    void name_outputs(const Json& module) {
        const Json* calls = module.find("module_call_graph");
        if (calls == nullptr || calls->size() == 0) return;
        const Json* signature = (*calls)[std::size_t{0}].find("signature");
        const Json* form = signature == nullptr ? nullptr : signature->find("out_spec");
        if (form == nullptr || !form->is_string()) return;
        const Json tree = parse_json(form->get<std::string>(), "out_spec");
        const Json& root = tree[std::size_t{1}];
        const Json& type = root["type"];
        if (!type.is_string() || type.get<std::string>() != "builtins.dict") return;
        const Json keys = parse_json(root["context"].get<std::string>(), "out_spec");
        if (keys.size() != file_.outputs.size()) return;
        for (std::size_t i = 0; i < keys.size(); ++i)
            if (keys[i].is_string()) file_.outputs[i].name = keys[i].get<std::string>();
    }

    // An output, and inputs of any number of samples.
    void check_interface() {
        check_program(!file_.outputs.empty(),
                      fmt::format("forward() of '{}' returns no tensor", path_.string()),
                      "training needs one",
                      "return a tensor from forward(), and export it again");
        check_program(!file_.inputs.empty(),
                      fmt::format("forward() of '{}' takes no tensor", path_.string()),
                      "it must take samples",
                      export_line);
        for (const ProgramInput& input : file_.inputs)
            check_program(!input.shape.empty() && input.shape.front().is_free(),
                          fmt::format("'{}' is for one size of batch", path_.string()),
                          fmt::format("its input '{}' is {}: the first dimension is fixed",
                                      input.name,
                                      shape_text(input)),
                          export_line);
    }

    fs::path path_;
    ProgramFile file_;
    std::map<std::string, Json> weights_, constants_;
    std::map<std::uint64_t, std::size_t> owners_;  ///< first tensors by the place of their bytes
    std::map<std::string, std::size_t> buffers_;   ///< by name
    const Json* ranges_ = nullptr;
    const Json* graph_ = nullptr;
    const Json* values_ = nullptr;
};

}  // namespace

void check_program(bool ok,
                   const std::string& what,
                   const std::string& why,
                   const std::string& fix) {
    if (!ok) throw ProgramRefusal("E250", what, why, fix);
}

ProgramRefusal damaged_program(const fs::path& path, const std::string& why) {
    return {"E250",
            fmt::format("'{}' is no whole exported program", printable(path.string())),
            why,
            "write it again in Python with torch.export.save(program, FILE)"};
}

const ZipRules program_zip{.has_outer_folder = true,
                           .refuse = [](const fs::path& path, const std::string& why) {
                               throw damaged_program(path, why);
                           }};

std::int64_t ProgramTensor::count() const {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes) product *= size;
    return product;
}

std::int64_t ProgramFile::count_of(ProgramRole role, bool learns) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const ProgramTensor& one = tensors[i];
        if (one.role == role && one.learns == learns && one.same_as == i) sum += one.count();
    }
    return sum;
}

ProgramFile read_program(const fs::path& path) {
    return ProgramReader(path).read();
}

const JsonMember& only_member(const Json& json) {
    const Json::Object& members = json.items();
    check(members.size() == 1, [&] {
        return Error("E222",
                     fmt::format("{} is there where one member belongs", json.dump().substr(0, 80)),
                     "it came from a file, which something else wrote");
    });
    return members.front();
}

}  // namespace lockstep
