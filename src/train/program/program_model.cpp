// SPDX-License-Identifier: Apache-2.0
// A program of torch.export as a model. Tensors that its graph writes are state, that is, buffers.
// Other tensors that are not trained stay as in the file: of any type, and never in a checkpoint.
//
// Tested: train/program/program_graph_test.cpp, e2e/own_models_test.cpp (verify).
#include "lockstep/core/log.hpp"

#include "model/model_file.hpp"
#include "program/program_graph.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// A dense tensor in its own memory; others may be views of strides 0.
at::Tensor values_of(const ProgramTensor& tensor, const ZipFile& zip) {
    const at::ScalarType type = scalar_type_of(tensor.element.number);
    if (tensor.count() == 0) return at::empty(tensor.sizes, type);
    const auto elements = static_cast<std::int64_t>(tensor.bytes.bytes / tensor.element.bytes);
    std::vector<std::byte> bytes(tensor.bytes.bytes);
    zip.read(tensor.bytes, bytes);
    at::Tensor storage = at::empty({elements}, type);
    std::memcpy(storage.mutable_data_ptr(),
                bytes.data(),
                static_cast<std::size_t>(elements) * tensor.element.bytes);
    return storage.as_strided(tensor.sizes, tensor.strides, tensor.offset).contiguous();
}

std::vector<at::Tensor> tensors_of(const ProgramFile& file) {
    std::vector<at::Tensor> tensors;
    for (std::size_t i = 0; i < file.tensors.size(); ++i) {
        const ProgramTensor& one = file.tensors[i];
        if (one.same_as != i) {
            tensors.push_back(tensors[one.same_as]);
            continue;
        }
        const char* const way = way_to_f32(one);
        check_program(*way == '\0',
                      fmt::format("'{}' cannot be trained", printable(file.zip.path().string())),
                      fmt::format("parameter '{}' is {}, not f32", one.name, one.element.name),
                      way);
        tensors.push_back(values_of(one, file.zip).set_requires_grad(one.learns));
    }
    return tensors;
}

// Data come as one of two types. Whole numbers become f32 where the program wants no i64.
std::string way_to_fit_input(const ProgramInput& wanted, const at::Tensor& given) {
    const at::ScalarType type = scalar_type_of(wanted.element.number);
    if (given.scalar_type() == type)
        return "export it with a sample input of the data's shape, or train it on other data";
    std::string method = at::toString(type);
    std::ranges::transform(method, method.begin(), [](unsigned char c) { return std::tolower(c); });
    const char* offered = !given.is_floating_point() ? "i64"
                          : at::isIntegralType(type, true) && type != at::kLong
                              ? "i64 for whole numbers, or f32 for others"
                              : "f32";
    return fmt::format("export it with '{0}' of {1}, and convert it in forward(): {0}.{2}()",
                       wanted.name,
                       offered,
                       method);
}

class ProgramModel : public Model {
  public:
    ProgramModel(ProgramFile file, const ModelSettings& settings)
        : file_(std::move(file)), tensors_(tensors_of(file_)) {
        choose_output(file_.outputs, settings.output);
        graph_ = compile_program(file_, tensors_, settings.program_mode);
        file_.nodes = Json();
    }

    NamedTensors forward(const NamedTensors& inputs) override {
        check(inputs.size() == file_.inputs.size(), [&] {
            return Error("E217",
                         fmt::format("--inputs names {} field(s)", inputs.size()),
                         fmt::format("forward() of the model takes {}: {}",
                                     file_.inputs.size(),
                                     fmt::join(input_names(), ", ")),
                         "give --inputs FIELD for each of them, in this order");
        });
        std::vector<at::Tensor> given;
        std::map<std::string, std::int64_t> sizes;
        for (std::size_t i = 0; i < inputs.size(); ++i)
            given.push_back(fitted_to(file_.inputs[i], inputs[i].tensor, sizes));
        move_constants(given.front().device());
        const std::vector<at::Tensor> results = graph_.run(given, mode_);
        NamedTensors outputs;
        for (std::size_t i = 0; i < results.size(); ++i)
            outputs.push_back({file_.outputs[i].name, results[i]});
        return outputs;
    }

    NamedTensors parameters() const override {
        return those([&](std::size_t i) { return file_.tensors[i].learns; });
    }
    NamedTensors buffers() const override {
        return those([&](std::size_t i) { return graph_.changes[i]; });
    }
    NamedTensors frozen() const override {
        return those([&](std::size_t i) {
            const ProgramTensor& one = file_.tensors[i];
            return one.role == ProgramRole::parameter && !one.learns;
        });
    }
    void freeze(const std::set<std::string>& names) override {
        for (std::size_t i = 0; i < tensors_.size(); ++i)
            if (file_.tensors[i].same_as == i && names.contains(file_.tensors[i].name)) {
                file_.tensors[i].learns = false;
                tensors_[i].set_requires_grad(false);
            }
    }
    bool has_frozen_in_file() const override { return true; }
    NamedTensors fixed() const override {
        NamedTensors found;
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            const ProgramTensor& one = file_.tensors[i];
            const bool is_twin = one.same_as != i && one.role == ProgramRole::parameter;
            const bool is_unwritten =
                one.role == ProgramRole::buffer && one.is_kept && !graph_.changes[one.same_as];
            if (is_twin || is_unwritten) found.push_back({one.name, tensors_[i]});
        }
        return found;
    }
    void set_mode(ModelMode mode) override { mode_ = mode; }
    ModelAuthor author() const override { return ModelAuthor::user_program; }
    std::vector<std::string> input_names() const override { return names_of(file_.inputs); }

  private:
    template <class Wanted>
    NamedTensors those(Wanted&& wanted) const {
        NamedTensors found;
        for (std::size_t i = 0; i < tensors_.size(); ++i)
            if (file_.tensors[i].same_as == i && wanted(i))
                found.push_back({file_.tensors[i].name, tensors_[i]});
        return found;
    }

    // Data come as [n, F, 1, 1] or [n, 1, T, F] where the program has [n, F] or [n, T, F].
    at::Tensor fitted_to(const ProgramInput& wanted,
                         const at::Tensor& given,
                         std::map<std::string, std::int64_t>& sizes) const {
        const auto dimensions = static_cast<std::int64_t>(wanted.shape.size());
        at::Tensor fitted = given;
        for (std::int64_t i = 1; i < fitted.dim() && fitted.dim() > dimensions;)
            fitted = fitted.size(i) == 1 ? fitted.squeeze(i) : (++i, fitted);
        bool is_right = fitted.dim() == dimensions &&
                        fitted.scalar_type() == scalar_type_of(wanted.element.number);
        for (std::size_t i = 0; is_right && i < wanted.shape.size(); ++i) {
            const std::int64_t size = fitted.size(static_cast<std::int64_t>(i));
            const ProgramDimension& one = wanted.shape[i];
            is_right = one.is_free() ? size >= one.least && size <= one.most &&
                                           sizes.try_emplace(one.symbol, size).first->second == size
                                     : size == one.extent;
        }
        check(is_right, [&] { return misfit(wanted, given); });
        return fitted;
    }

    Error misfit(const ProgramInput& wanted, const at::Tensor& given) const {
        const ProgramDimension& batch = wanted.shape.front();
        const std::string range =
            batch.most < INT64_MAX ? fmt::format(" with {} to {} samples", batch.least, batch.most)
                                   : "";
        return {"E217",
                "the model cannot take these data",
                fmt::format("its input '{}' is {}{}; here it is given {} [{}]",
                            wanted.name,
                            shape_text(wanted),
                            range,
                            given.is_floating_point() ? "f32" : "i64",
                            fmt::join(given.sizes(), ", ")),
                way_to_fit_input(wanted, given)};
    }

    // Those that nobody moves who moves the model.
    void move_constants(at::Device device) {
        if (device == device_) return;
        const at::NoGradGuard no_gradients;
        for (const at::Tensor& tensor : tensors_)
            if (tensor.device() != device) tensor.set_data(tensor.to(device));
        device_ = device;
    }

    ProgramFile file_;
    std::vector<at::Tensor> tensors_;
    ProgramGraph graph_;
    ModelMode mode_ = ModelMode::train;
    at::Device device_ = at::kCPU;
};

}  // namespace

std::unique_ptr<Model> open_program(const ModelSettings& settings) {
    return std::make_unique<ProgramModel>(read_program(settings.name), settings);
}

}  // namespace lockstep
