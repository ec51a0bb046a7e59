// SPDX-License-Identifier: Apache-2.0
/// @file
/// Facts about the built-in models, without building them and without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// One of several inputs.
struct InputShape {
    std::int64_t channels = 1, height = 1, width = 1;  ///< of one sample
    std::int64_t vocabulary = 0;                       ///< as in ModelShape
};

/// What the data dictates about a model.
struct ModelShape {
    std::int64_t channels = 1;  ///< of an image
    std::int64_t height = 28;   ///< in pixels
    std::int64_t width = 28;    ///< in pixels
    std::int64_t classes = 10;  ///< of labels, so many logits; or numbers to predict
    /// Different tokens: the model is given i64 [n, width]; 0: it is given images.
    std::int64_t vocabulary = 0;
    std::vector<InputShape> further{};  ///< inputs after the first, as --inputs names them
};

/// A built-in model.
struct ModelFacts {
    std::string_view name;   ///< of --model
    ModelShape usual;        ///< which it is known with
    std::string_view input;  ///< what else it takes, for a table
    std::string_view task;   ///< what its outputs mean
    /// How many it has, with biases, where the data are such.
    std::int64_t (*parameters)(const ModelShape&);
};

/// All of them, the smallest first.
std::span<const ModelFacts> built_in_models();

/// One by its name; nullptr: not built in.
const ModelFacts* find_built_in(std::string_view name);

/// Why a user's own model may give other bits on other ranks, for E707.
inline constexpr const char* stateful_why =
    "your model keeps state between calls, draws from a generator of its own, or reads a clock";
/// What to do about it.
inline constexpr const char* stateful_fix =
    "keep state in a buffer, such as register_buffer(\"calls\", torch::zeros({}, torch::kLong)), "
    "and draw by torch::rand() and the like without a generator";

/// Whose code a model is: what goes wrong in it is a bug of ours, or the user's to mend.
enum class ModelAuthor { lockstep, user_class, user_script, user_program };

/// What a model comes from: whether --model names one or a file.
enum class ModelSource { registered, plugin, script, program };

/// By its ending: ".so" is a plug-in, ".pt" or ".pth" TorchScript, ".pt2" a program of
/// torch.export.
ModelSource source_of(const std::string& model);

/// What the program of torch.export in `path` takes, gives and has, for a terminal. Errors: E201,
/// E202, E402 of the file; E250 if it cannot be trained, as far as that is known without LibTorch.
std::string describe_program(const std::filesystem::path& path);

/// The names of its outputs, that of the loss first. Errors: as above.
std::vector<std::string> program_outputs(const std::filesystem::path& path);

}  // namespace lockstep
