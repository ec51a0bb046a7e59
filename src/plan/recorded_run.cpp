// SPDX-License-Identifier: Apache-2.0
// What a run has in its folder for those who go on with it or use it: its settings, the fields of
// its training data, and the file of its model. So it can be moved, and used without the data.
// Tested: e2e/alone_test.cpp.
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/manifest.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/run_directory.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// Options with paths that --config and the command line have relative to their folder.
constexpr std::array with_paths{"data", "test-data", "load-weights", "from", "plan"};

std::string recorded_fact(const RunRecord& record, const char* name) {
    return record.deciding.value(name, Json("")).as_text();
}

// Returns the value as given, because the deciding value of a file is not its path.
std::string recorded_text(const RunRecord& record, const std::string& name) {
    if (name == "keep" && !record.config.contains(name)) {
        // Earlier versions had this part of it.
        const std::string last = recorded_text(record, "keep-checkpoints");
        return last.empty() ? "" : "last=" + last;
    }
    const bool is_settled = std::ranges::find(settled_settings, name) != settled_settings.end();
    if (!is_settled && record.config.contains(name))
        return record.config.at(name).value("value", Json("")).as_text();
    return recorded_fact(record, name.c_str());
}

// Where `path` was in the folder in which the run was made; as it is if it is only here.
std::string at_creation(const RunRecord& record, const std::string& path) {
    const fs::path there = fs::path(record.created_in) / path;
    const bool is_here_alone = !fs::exists(status_of(there)) && fs::exists(status_of(path));
    return path.empty() || record.created_in.empty() || is_here_alone
               ? path
               : there.lexically_normal().string();
}

std::string model_of(const fs::path& run, const RunRecord& record, const std::string& name) {
    if (source_of(name) == ModelSource::registered) return name;
    const fs::path copy = RunPaths{run}.model(recorded_fact(record, "model-digest"), name);
    return fs::exists(status_of(copy)) ? fs::absolute(copy).string() : at_creation(record, name);
}

// With files of fields where they were.
std::string fields_text(const RunRecord& record, const std::string& given) {
    std::vector<std::string> texts;
    for (FieldMapping& field : parse_field_mappings(given)) {
        if (!field.file.empty()) field.file = at_creation(record, field.file);
        texts.push_back(mapping_text(field));
    }
    return fmt::format("{}", fmt::join(texts, ","));
}

std::string path_text(const fs::path& run,
                      const RunRecord& record,
                      const std::string& name,
                      const std::string& given) {
    if (name == "model") return model_of(run, record, given);
    if (name == "field" || name == "test-field") return fields_text(record, given);
    if (name == "normalise" && given != "dataset" && brings_statistics(given)) {
        const std::string there = at_creation(record, given);
        return fs::exists(status_of(there)) ? there : fs::absolute(run).string();  // it keeps them
    }
    if (std::ranges::find(with_paths, name) == with_paths.end()) return given;
    std::vector<std::string> places;
    for (const std::string& place : split(given, ',')) places.push_back(at_creation(record, place));
    return fmt::format("{}", fmt::join(places, ","));
}

void copy_model(const fs::path& from, const fs::path& to, const std::string& digest) {
    if (fs::exists(status_of(to))) return;
    make_directories(to.parent_path());
    const fs::path partial = to.parent_path() / ("." + to.filename().string() + ".partial");
    std::error_code failed;
    fs::copy_file(from, partial, fs::copy_options::overwrite_existing, failed);
    if (failed) throw system_error("copy", partial, failed.value());
    check(file_digest(partial) == digest,
          "E306",
          fmt::format("'{}' was changed while the run began", from.string()),
          fmt::format("its digest was {}", digest),
          "begin again when it is as it shall be");
    sync_path(partial);
    fs::rename(partial, to);
}

}  // namespace

std::map<std::string, std::string> recorded_values(const fs::path& run, const OptionTable& table) {
    const RunRecord record = read_run_record(run);
    std::map<std::string, std::string> values;
    for (const std::string& name : option_names(table)) {
        const std::string text = path_text(run, record, name, recorded_text(record, name));
        if (!text.empty()) values[name] = text;
    }
    const auto state = read_run_state(run);
    if (state && state->epochs > 0) {
        values["epochs"] = std::to_string(state->epochs);
        values["max-steps"] = std::to_string(state->max_steps);
    }
    return values;
}

RunSource run_source(const std::string& text) {
    const auto at = text.rfind('@');
    if (at == text.npos || at == 0 || fs::is_directory(status_of(text))) return {.run = text};
    return {.run = text.substr(0, at), .choice = text.substr(at + 1)};
}

std::string changes_text(const Json& deciding, const Json& then) {
    std::vector<std::string> changes;
    for (const auto& [name, value] : deciding.items()) {
        const Json before = then.value(name, Json());
        if (before == value || name == "from" || name == "load-weights") continue;
        changes.push_back(fmt::format(
            "{} {} -> {}", name, before.is_null() ? "unset" : before.dump(), value.dump()));
    }
    return fmt::format("{}", fmt::join(changes, ", "));
}

RunSettings read_run_settings(const fs::path& run) {
    RunSettings found;
    const OptionTable table = setting_table(found.settings);
    for (const auto& [name, text] : recorded_values(run, table))
        find_option(table, name).assign({text, "run.json"});
    const RunRecord record = read_run_record(run);
    found.model_digest = recorded_fact(record, "model-digest");
    found.data_digest = recorded_fact(record, "data-digest");
    found.data_content = recorded_fact(record, "data-content");
    return found;
}

void check_model_file(const RunSettings& run) {
    const std::string& model = run.settings.model.name;
    const std::string digest = file_digest(model);
    check(digest == run.model_digest,
          "E306",
          fmt::format("'{}' is not the model that the run was trained with", model),
          fmt::format("its digest is {}, the run's is {}", digest, run.model_digest),
          "put the file back");
}

fs::path trained_model_file(const fs::path& run, ModelSource wanted, std::string_view format) {
    const RunSettings found = read_run_settings(run);
    const std::string& model = found.settings.model.name;
    check(source_of(model) == wanted,
          "E106",
          fmt::format("--format {} does not go with this run", format),
          fmt::format("its model, {}, is no {}: there is no file of code that "
                      "the weights could go back to",
                      model,
                      wanted == ModelSource::script ? "TorchScript" : "program of torch.export"),
          "use --format safetensors");
    check_model_file(found);
    return model;
}

void keep_for_prediction(const fs::path& run,
                         const TrainSettings& settings,
                         const DatasetIndex& data,
                         const std::string& model_digest) {
    const RunPaths paths{run};
    if (source_of(settings.model.name) != ModelSource::registered)
        copy_model(
            settings.model.name, paths.model(model_digest, settings.model.name), model_digest);
    if (fs::exists(status_of(paths.data()))) return;
    Manifest kept = data.manifest();
    kept.kind = ManifestKind::kept;
    kept.shards.clear();
    write_file_atomically(paths.data(), manifest_text(kept));
}

std::string prediction_facts(const fs::path& run, std::int64_t step) {
    const fs::path data = RunPaths{run}.data();
    if (!fs::exists(status_of(data))) return "";
    const RunRecord record = read_run_record(run);
    Json fields = parse_json(read_file(data), data.string()).at("fields");
    for (Json& field : fields)
        if (field.contains("mean")) field["divided_by"] = field.value("type", "") == "u8" ? 255 : 1;
    const Json facts = {{"format", "lockstep-prediction"},
                        {"format_version", 1},
                        {"run", record.run_id},
                        {"step", step},
                        {"model", recorded_text(record, "model")},
                        {"task", recorded_text(record, "task")},
                        {"inputs", recorded_text(record, "inputs")},
                        {"scale_targets", record.deciding.value("scale-targets", false)},
                        {"transform", record.contract.value("transform", "")},
                        {"fields", fields}};
    return facts.dump(2) + "\n";
}

std::optional<DatasetIndex> kept_data(const fs::path& run) {
    const fs::path path = RunPaths{run}.data();
    if (!fs::exists(status_of(path))) return {};
    const std::string text = read_file(path);
    const std::size_t fields =
        parse_manifest(text, path.string(), ManifestKind::kept).fields.size();
    return DatasetIndex::of_blocks(
        run, text, std::vector<std::vector<StoredBlock>>(fields), {}, ManifestKind::kept);
}

}  // namespace lockstep
