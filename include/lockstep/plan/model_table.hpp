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

/// The shape of one of several inputs.
struct InputShape {
    std::int64_t channels = 1, height = 1, width = 1;  ///< of one sample
    std::int64_t vocabulary = 0;                       ///< as in ModelShape
    /// Dimensions of a sample if it is given as stored, or 4 of a volume; -1: those of models.
    int dimensions = -1;
    std::int64_t depth = 1;  ///< slices of a volume [C, D, H, W]
};

/// The properties of a model that the data determine.
struct ModelShape {
    std::int64_t channels = 1;  ///< channels of an image
    std::int64_t height = 28;   ///< in pixels
    std::int64_t width = 28;    ///< in pixels
    std::int64_t classes = 10;  ///< number of classes, or of numbers to predict
    /// Number of different tokens: the model gets i64 [n, width]. 0: the model gets images.
    std::int64_t vocabulary = 0;
    std::vector<InputShape> further{};  ///< inputs after the first, as --inputs names them
    int dimensions = -1;                ///< as in InputShape, of the first
    std::int64_t depth = 1;             ///< as in InputShape, of the first
};

/// A built-in model.
struct ModelFacts {
    std::string_view name;   ///< name for --model
    ModelShape usual;        ///< shape of its usual data
    std::string_view input;  ///< its other possible inputs, for a table
    std::string_view task;   ///< meaning of its outputs
    /// Returns the number of parameters, with biases, for data of this shape.
    std::int64_t (*parameters)(const ModelShape&);
};

/// Returns all built-in models, the smallest first.
std::span<const ModelFacts> built_in_models();

/// Returns a built-in model by its name; nullptr: there is none.
const ModelFacts* find_built_in(std::string_view name);

/// The reason why a user's own model may give other bits on other ranks, for E707.
inline constexpr const char* stateful_why =
    "your model keeps state between calls, draws from a generator of its own, or reads a clock";
/// The remedy for it.
inline constexpr const char* stateful_fix =
    "keep state in a buffer, such as register_buffer(\"calls\", torch::zeros({}, torch::kLong)), "
    "and draw by torch::rand() and the like without a generator";

/// What to change where a parameter is complex: ranks sum and keep f32.
inline constexpr const char* way_from_complex =
    "make the parameter of pairs, w = torch.view_as_real(w), and use torch.view_as_complex(w) in "
    "forward()";
/// The same for f64, f16 and bf16.
inline constexpr const char* way_from_other_reals =
    "call net.float() before the model is exported or saved; in C++, to(torch::kFloat)";

/// The author of a model's code: its faults are bugs of ours, or for the user to fix.
enum class ModelAuthor { lockstep, user_class, user_script, user_program };

/// The origin of a model: --model names a registered one or a file.
enum class ModelSource { registered, plugin, script, program };

/// Returns the source by the file's ending: ".so" is a plug-in, ".pt" or ".pth" TorchScript, ".pt2"
/// a program of torch.export.
ModelSource source_of(const std::string& model);

/// Describes inputs, outputs and parameters of the torch.export program in `path`, for a terminal.
/// Errors: E201, E202, E402 of the file; E250 if it cannot be trained, as far as that is known
/// without LibTorch.
std::string describe_program(const std::filesystem::path& path);

/// Returns the shapes of its inputs: 0 for an extent that the data decide, and 2 as the vocabulary
/// of whole numbers. Errors: as above, E217 for more than four dimensions of a sample.
std::vector<InputShape> program_inputs(const std::filesystem::path& path);

}  // namespace lockstep
