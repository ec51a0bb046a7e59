// SPDX-License-Identifier: Apache-2.0
// Tested: e2e/own_models_test.cpp, train/program/program_peer (in Python).
#include "lockstep/core/log.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/tensor_files.hpp"
#include "lockstep/train/export_script.hpp"

#include "program/program_file.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;

// Where the elements of a tensor lie among its bytes, in the order of its indices.
std::vector<std::size_t> places_of(const ProgramTensor& tensor) {
    std::vector<std::size_t> places;
    std::vector<std::int64_t> index(tensor.sizes.size());
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
        std::int64_t element = tensor.offset;
        for (std::size_t k = 0; k < index.size(); ++k) element += index[k] * tensor.strides[k];
        places.push_back(static_cast<std::size_t>(element) * tensor.element.bytes);
        for (std::size_t k = index.size(); k-- > 0 && ++index[k] == tensor.sizes[k];) index[k] = 0;
    }
    return places;
}

Bytes storage_of(const ProgramTensor& tensor, const ZipFile& zip) {
    Bytes bytes(tensor.bytes.bytes);
    zip.read(tensor.bytes, bytes);
    return bytes;
}

Bytes values_in(const ProgramTensor& tensor, const ZipFile& zip) {
    const Bytes storage = storage_of(tensor, zip);
    const std::size_t width = tensor.element.bytes;
    Bytes values(static_cast<std::size_t>(tensor.count()) * width);
    std::byte* to = values.data();
    for (const std::size_t place : places_of(tensor)) {
        std::memcpy(to, storage.data() + place, width);
        to += width;
    }
    return values;
}

// A counter has 8 bytes, of which the program may have fewer.
void put_values(const ProgramTensor& tensor, const ExportedTensor& from, Bytes& storage) {
    const Bytes values = from.values();
    const std::size_t step = from.element == ExportedElement::i64 ? 8 : 4;
    expect(values.size() == static_cast<std::size_t>(tensor.count()) * step &&
               tensor.element.bytes <= step,
           "a checkpoint's tensor has the program's shape and type");
    const std::byte* next = values.data();
    for (const std::size_t place : places_of(tensor)) {
        std::memcpy(storage.data() + place, next, tensor.element.bytes);
        next += step;
    }
}

ExportedTensor fixed_tensor(const ProgramFile& program, const ProgramTensor& tensor) {
    check(tensor.element.exported.has_value(),
          "E106",
          fmt::format("'{}' is {}, which files of --format safetensors and npz do not have here",
                      tensor.name,
                      tensor.element.name),
          "it does not learn, and is part of the model's state in Python",
          "use --format pt2");
    return {.name = tensor.name,
            .element = *tensor.element.exported,
            .shape = tensor.sizes,
            .values = [&program, &tensor] { return values_in(tensor, program.zip); }};
}

bool is_in_state(const ProgramTensor& tensor) {
    return tensor.role == ProgramRole::parameter ||
           (tensor.role == ProgramRole::buffer && tensor.is_kept);
}

// `trained` with what else the state of the Python class has, and without what it has not.
std::vector<ExportedTensor> state_of(const ProgramFile& program,
                                     std::vector<ExportedTensor> trained) {
    const auto named = [&](const std::string& name) {
        return std::ranges::find(trained, name, &ExportedTensor::name);
    };
    std::vector<ExportedTensor> more;
    for (const ProgramTensor& tensor : program.tensors) {
        if (!is_in_state(tensor) || named(tensor.name) != trained.end()) continue;
        const auto twin = named(program.tensors[tensor.same_as].name);
        more.push_back(twin == trained.end() ? fixed_tensor(program, tensor) : *twin);
        more.back().name = tensor.name;
    }
    for (const ProgramTensor& tensor : program.tensors)
        if (!is_in_state(tensor))
            std::erase_if(trained, [&](const auto& one) { return one.name == tensor.name; });
    trained.insert(trained.end(), more.begin(), more.end());
    // PyTorch wants elements of 8 bytes at multiples of 8.
    std::ranges::stable_sort(trained, std::greater<>(), [](const ExportedTensor& one) {
        return ExportedTensor{.name = {}, .element = one.element, .shape = {}, .values = {}}
            .bytes();
    });
    return trained;
}

// Nothing, with a warning, where the program is not there any more.
std::optional<ProgramFile> program_of(const fs::path& run) {
    if (!fs::exists(run / "run.json") ||
        source_of(read_run_settings(run).settings.model.name) != ModelSource::program)
        return {};
    try {
        return read_program(trained_model_file(run, ModelSource::program, "pt2"));
    } catch (const Error& error) {
        once(Level::warn,
             "frozen parameters, other names of tied ones and constant buffers are left out: {}; "
             "give load_state_dict() strict=False",
             error.what());
        return {};
    }
}

}  // namespace

ExportSummary export_program(const fs::path& run,
                             const fs::path& checkpoint,
                             const fs::path& file,
                             const WeightsExport& options) {
    const ProgramFile program = read_program(trained_model_file(run, ModelSource::program, "pt2"));
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
    const auto trained = exported_tensors(checkpoint, manifest, options.tensors);
    std::map<std::uint64_t, ReplacedEntry> replaced;
    for (std::size_t i = 0; i < program.tensors.size(); ++i) {
        const ProgramTensor& tensor = program.tensors[i];
        const auto from = std::ranges::find(trained, tensor.name, &ExportedTensor::name);
        if (from == trained.end() || tensor.same_as != i || tensor.count() == 0) continue;
        ReplacedEntry& entry = replaced[tensor.bytes.offset];
        entry.entry = tensor.bytes;
        entry.bytes = [&program, &tensor, from, before = std::move(entry.bytes)] {
            Bytes storage = before ? before() : storage_of(tensor, program.zip);
            put_values(tensor, *from, storage);
            return storage;
        };
    }
    NewFile out(file);
    if (options.progress)
        out.tell([&](std::uint64_t done) { options.progress(done, program.zip.file_bytes()); });
    copy_zip(program.zip, replaced, out);
    out.finish();
    return {.step = manifest.state.step, .tensors = trained.size(), .bytes = out.bytes()};
}

ExportSummary export_weights(const fs::path& run,
                             const fs::path& checkpoint,
                             const fs::path& file,
                             const WeightsExport& options) {
    const std::optional<ProgramFile> program = program_of(run);
    if (!program) return export_checkpoint(checkpoint, file, options);
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
    return write_export(file,
                        manifest,
                        state_of(*program, exported_tensors(checkpoint, manifest, options.tensors)),
                        options);
}

}  // namespace lockstep
