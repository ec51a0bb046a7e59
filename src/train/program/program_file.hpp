// SPDX-License-Identifier: Apache-2.0
// The content of an archive of torch.export.save(), as far as it is known without LibTorch: inputs,
// tensors, outputs and the graph's nodes. The format is torch/_export/serde/schema.py's, version 8.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// E250: the reason why a file is no exported program that can be trained.
class ProgramRefusal : public Error {
  public:
    using Error::Error;
};

/// Throws the ProgramRefusal of these texts unless `ok`; they are made in any case.
void check_program(bool ok,
                   const std::string& what,
                   const std::string& why,
                   const std::string& fix);

/// Returns the refusal of a file that is damaged, or no archive of torch.export.save().
ProgramRefusal damaged_program(const fs::path& path, const std::string& why);

/// PyTorch puts a folder around all entries.
extern const ZipRules program_zip;

/// A type of elements; numbers are schema.py's ScalarType.
struct ProgramElement {
    int number = 0;
    const char* name = "";  ///< "f32"
    std::size_t bytes = 0;
    std::optional<ExportedElement> exported{};  ///< as files of tensors have it; nothing: none
};

/// One extent of an input.
struct ProgramDimension {
    std::int64_t extent = 0;  ///< extent for each sample, unless the data decide it
    std::string symbol;       ///< "s77"; "": the extent is fixed
    std::int64_t least = 0, most = std::numeric_limits<std::int64_t>::max();

    bool is_free() const { return !symbol.empty(); }
};

/// A tensor input of forward(), in the order of its arguments.
struct ProgramInput {
    std::string name;   ///< name of the argument
    std::string value;  ///< name in the graph
    ProgramElement element;
    std::vector<ProgramDimension> shape;  ///< batch dimension first
};

/// The role of an archive's tensor in the Python class.
enum class ProgramRole { parameter, buffer, constant };

/// A tensor whose values are in the archive.
struct ProgramTensor {
    ProgramRole role = ProgramRole::constant;
    std::string name;   ///< name in the class: "fc1.weight"
    std::string value;  ///< name in the graph: "p_fc1_weight"
    bool learns = false;
    bool is_kept = true;  ///< false: a buffer that is not persistent
    ProgramElement element;
    std::vector<std::int64_t> sizes, strides;
    std::int64_t offset = 0;  ///< in elements
    ZipEntry bytes;           ///< bytes of the whole storage
    std::size_t same_as = 0;  ///< its own index, or that of an earlier tensor that is identical

    std::int64_t count() const;  ///< number of elements
};

/// A value that a step writes to a buffer.
struct ProgramUpdate {
    std::string value;
    std::size_t tensor = 0;
};

/// A tensor that forward() returns.
struct ProgramOutput {
    std::string name;   ///< its key, if forward() returns a dict; else "0" and so on
    std::string value;  ///< in the graph
    std::string shape;  ///< "f32 [batch, 10]"
};

/// All of an archive but the bytes of its tensors.
struct ProgramFile {
    explicit ProgramFile(const fs::path& path) : zip(path, program_zip) {}

    ZipFile zip;
    std::string torch_version;
    std::vector<ProgramInput> inputs;
    std::vector<ProgramTensor> tensors;
    std::vector<ProgramUpdate> updates;
    std::vector<ProgramOutput> outputs;
    Json nodes;
    /// Values whose dimensions did not follow each other in memory at the export, as channels last.
    std::set<std::string> turned;

    std::int64_t count_of(ProgramRole role,
                          bool learns) const;  ///< elements; identical tensors count once
};

/// Reads and checks an archive. Errors: E201, E202, E402 of the file; E250 if it is damaged, has
/// another schema, or cannot be trained, with the change to make in the export.
ProgramFile read_program(const fs::path& path);

/// Returns the line of the user's code that made a node: "net.py, line 9: x = torch.cond(...)". "":
/// unknown.
std::string source_line(const Json& node);

/// Returns what to change so that a parameter that learns is f32; "": it is, or does not learn.
const char* way_to_f32(const ProgramTensor& tensor);

/// Returns the path of the innermost module that made a node: "layer1.0.conv1". "": the model
/// itself.
std::string module_path(const Json& node);

/// Returns "f32 [batch, 3, 32, 32]".
std::string shape_text(const ProgramInput& input);

/// Returns the kind of an argument and its value, from {"as_int": 3}. Errors: E222.
const JsonMember& only_member(const Json& json);

/// Returns the result of `work`, which reads JSON of the archive. Errors: E250 in place of E222.
template <class Work>
decltype(auto) reading_program(const fs::path& path, Work&& work) {
    try {
        return work();
    } catch (const ProgramRefusal&) {
        throw;
    } catch (const Error& error) {
        throw damaged_program(path, std::string(error.what()) + ": " + error.why());
    }
}

}  // namespace lockstep
