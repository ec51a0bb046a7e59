// SPDX-License-Identifier: Apache-2.0
// Tested: train/program/program_file_test.cpp.
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/plan/model_table.hpp"

#include "program/program_file.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::size_t longest_code = 100;

// Returns the text of a frame's 'File "net.py", line 9, in forward' and the line of code below it.
std::string frame_text(std::string_view frame) {
    const std::size_t begin = frame.find('"') + 1, end = frame.find('"', begin);
    const std::size_t line = frame.find(", line ", end);
    if (end == frame.npos || line == frame.npos) return "";
    const std::string_view number = frame.substr(line + 7, frame.find(',', line + 7) - line - 7);
    std::string text =
        fmt::format("{}, line {}", fs::path(frame.substr(begin, end - begin)).string(), number);
    if (const std::size_t code = frame.find("\n    "); code != frame.npos) {
        const std::string_view rest = frame.substr(code + 5);
        text += fmt::format(": {}", rest.substr(0, std::min(rest.find('\n'), longest_code)));
    }
    return printable(text);
}

// Returns what PyTorch noted about a node; "": nothing of this name.
std::string metadata_of(const Json& node, const char* name) {
    const Json* metadata = node.find("metadata");
    const Json* found = metadata == nullptr ? nullptr : metadata->find(name);
    return found == nullptr || !found->is_string() ? "" : found->get<std::string>();
}

}  // namespace

std::string source_line(const Json& node) {
    const std::string text = metadata_of(node, "stack_trace");
    std::string last;  // the innermost that is not PyTorch's own
    for (std::size_t at = text.find("File \""); at != text.npos;) {
        const std::size_t next = text.find("File \"", at + 1);
        const std::string_view frame = std::string_view(text).substr(at, next - at);
        const std::string_view file = frame.substr(0, frame.find(", line "));
        const bool is_torchs = file.find("/site-packages/torch/") != file.npos ||
                               file.starts_with("File \"torch/") || file.starts_with("File \"<");
        if (last.empty() || !is_torchs) last = frame_text(frame);
        at = next;
    }
    return last;
}

const char* way_to_f32(const ProgramTensor& tensor) {
    const std::string_view element = tensor.element.name;
    if (!tensor.learns || element == "f32") return "";
    return element.starts_with("complex") ? way_from_complex : way_from_other_reals;
}

// "key,path,type;key,path,type".
std::string module_path(const Json& node) {
    const std::string outermost_first = metadata_of(node, "nn_module_stack");
    const auto parts = split(outermost_first.substr(outermost_first.rfind(';') + 1), ',');
    constexpr std::string_view stand_in = "_empty_nn_module_stack";  // PyTorch's, where it lost it
    return parts.size() < 2 || parts[1].starts_with(stand_in) ? "" : printable(parts[1]);
}

std::vector<InputShape> program_inputs(const fs::path& path) {
    constexpr std::size_t most = 4;
    std::vector<InputShape> inputs;
    for (const ProgramInput& input : read_program(path).inputs) {
        check(input.shape.size() <= 1 + most, [&] {
            return ProgramRefusal(
                "E217",
                fmt::format("'{}' takes more dimensions than data have", printable(path.string())),
                fmt::format("its input '{}' is {}", input.name, shape_text(input)),
                "reshape it in forward(), and export it again");
        });
        InputShape& shape = inputs.emplace_back();
        shape.dimensions = static_cast<int>(input.shape.size()) - 1;
        shape.vocabulary = input.element.name == std::string_view("i64") ? 2 : 0;
        std::int64_t* const third = shape.dimensions == 4 ? &shape.depth : &shape.channels;
        std::int64_t* const extents[] = {&shape.width, &shape.height, third, &shape.channels};
        for (std::size_t i = 1; i < input.shape.size(); ++i)
            *extents[input.shape.size() - 1 - i] = input.shape[i].extent;
    }
    return inputs;
}

std::string shape_text(const ProgramInput& input) {
    std::vector<std::string> extents;
    for (std::size_t i = 0; i < input.shape.size(); ++i) {
        const ProgramDimension& one = input.shape[i];
        extents.push_back(!one.is_free() ? std::to_string(one.extent) : i == 0 ? "batch" : "any");
    }
    return fmt::format("{} [{}]", input.element.name, fmt::join(extents, ", "));
}

std::string describe_program(const fs::path& path) {
    const ProgramFile file = read_program(path);
    std::string text = fmt::format(
        "{} (exported by PyTorch {})\n", printable(path.string()), printable(file.torch_version));
    for (const ProgramInput& input : file.inputs)
        text += fmt::format("  input       {}: {}\n", printable(input.name), shape_text(input));
    for (const ProgramOutput& output : file.outputs)
        text += file.outputs.size() == 1
                    ? fmt::format("  output      {}\n", output.shape)
                    : fmt::format("  output      {}: {}\n", printable(output.name), output.shape);
    const auto count = [&](ProgramRole role, bool learns) {
        return grouped(static_cast<std::uint64_t>(file.count_of(role, learns)));
    };
    std::string obstacles;
    for (const ProgramTensor& one : file.tensors)
        if (const char* const way = way_to_f32(one); *way != '\0')
            obstacles += fmt::format("  in the way  parameter '{}' is {}, not f32: {}\n",
                                     printable(one.name),
                                     one.element.name,
                                     way);
    std::set<std::string> names;
    reading_program(path, [&] {
        for (const Json& node : file.nodes) {
            const auto target = node["target"].get<std::string>();
            names.insert(printable(target.substr(target.starts_with("torch.ops.") ? 10 : 0)));
        }
    });
    return text + obstacles +
           fmt::format(
               "  parameters  {} learn, {} are frozen\n"
               "  buffers     {} values\n"
               "  operators   {} calls of {}: {}\n",
               count(ProgramRole::parameter, true),
               count(ProgramRole::parameter, false),
               count(ProgramRole::buffer, false),
               file.nodes.size(),
               names.size(),
               fmt::join(names, ", "));
}

}  // namespace lockstep
