// SPDX-License-Identifier: Apache-2.0
// What a run begins with: all ranks together load a checkpoint, or settle the weights of a file or
// of another run. src/run/checkpoint/checkpoint.cpp explains how a checkpoint exists completely or
// not at all.
//
// Tested: train/checkpoint/checkpoint_test.cpp, train/checkpoint/safetensors_file_test.cpp,
// e2e/weights_test.cpp.

#include "lockstep/train/checkpoint.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/run_directory.hpp"

#include "checkpoint/initial_weights.hpp"

#include <algorithm>
#include <map>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

namespace lockstep {
namespace {

void check_same_tensors(std::span<const TensorMeta> stored,
                        std::span<const TensorMeta> wanted,
                        const fs::path& path) {
    const auto describe = [](const TensorMeta& tensor) {
        return fmt::format("'{}' [{}]", tensor.name, fmt::join(tensor.shape, ","));
    };
    for (std::size_t i = 0; i < std::max(stored.size(), wanted.size()); ++i) {
        const std::string has = i < stored.size() ? describe(stored[i]) : "no more tensors";
        const std::string wants = i < wanted.size() ? describe(wanted[i]) : "no more tensors";
        check(has == wants,
              "E304",
              fmt::format("checkpoint '{}' does not fit the model", path.string()),
              fmt::format("it has {} where the model has {}", has, wants),
              "use the model that the run was created with");
    }
}

void read_part(const fs::path& file, const StoredPiece& stored, const TensorPiece& wanted) {
    const std::uint64_t begin = std::max(stored.start, wanted.start);
    const std::uint64_t end = std::min(stored.start + stored.count, wanted.start + wanted.count);
    if (begin >= end) return;
    const UniqueFd fd = open_for_reading(file);
    const std::span<float> target(wanted.data + (begin - wanted.start), end - begin);
    read_at(fd.value(),
            std::as_writable_bytes(target),
            stored.offset + (begin - stored.start) * sizeof(float),
            file);
}

CheckpointState load_from(const fs::path& path,
                          std::span<const TensorMeta> tensors,
                          std::span<const TensorPiece> pieces) {
    const CheckpointManifest manifest = read_checkpoint_manifest(path);
    check_same_tensors(manifest.tensors, tensors, path);
    for (const TensorPiece& wanted : pieces)
        for (const StoredPiece& stored : manifest.pieces)
            if (stored.tensor == wanted.tensor)
                read_part(path_beneath(path, stored.file), stored, wanted);
    return manifest.state;
}

// Collective. Whether all ranks find their share of the checkpoint whole; says why not.
bool is_whole(const Communicator& ranks, const fs::path& path) {
    try {
        agree(ranks, [&] { verify_checkpoint(path, ranks.rank(), ranks.size()); });
        return true;
    } catch (const AgreedError& error) {
        if (kind_of(error) == ErrorKind::format_newer) throw;
        once(Level::warn, "checkpoint {} is skipped: {}", path.filename().string(), error.what());
        return false;
    }
}

constexpr const char* recorded_name = "load-weights";

std::string fact_of(const TrainSettings& settings) {
    check_is_weights_file(settings.load_weights);
    const std::string digest = weights_digest(settings.load_weights);
    const std::string without = settings.load_skip.empty() ? "" : " without " + settings.load_skip;
    const std::string prefix = settings.load_prefix.empty() ? "" : " less " + settings.load_prefix;
    return digest + without + prefix;
}

// On the root of a run that has a checkpoint: the recorded fact if nothing contradicts it. Files
// may be gone.
std::string fact_of_resumed(const TrainSettings& settings, const std::string& then) {
    if (settings.load_weights.empty()) return then;
    try {
        return fact_of(settings);
    } catch (const Error& error) {
        if (then.empty() || kind_of(error) != ErrorKind::file_missing) throw;
        return then;
    }
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

// The tensors that do not fit, by kind.
struct Misfits {
    std::vector<std::string> missing, unexpected, other;

    bool is_of_checkpoint() const {
        return std::ranges::any_of(
            unexpected, [](const std::string& name) { return name.starts_with("optimizer."); });
    }
    std::string text() const {
        std::vector<std::string> parts;
        if (!missing.empty()) parts.push_back("missing in the file: " + names_text(missing));
        if (!unexpected.empty()) parts.push_back("not in the model: " + names_text(unexpected));
        if (!other.empty()) parts.push_back(names_text(other));
        return fmt::format("{}", fmt::join(parts, "; "));
    }
};

void compare(const StoredTensor& stored, const TensorMeta& wanted, Misfits& misfits) {
    if (stored.shape != wanted.shape)
        misfits.other.push_back(fmt::format("{} is {} in the file and {} in the model",
                                            wanted.name,
                                            shape_text(stored.shape),
                                            shape_text(wanted.shape)));
    else if (stored.type == StoredFloat::other)
        misfits.other.push_back(
            fmt::format("{} is {} in the file", wanted.name, printable(stored.dtype)));
}

// Returns the error with the remedy that the names suggest.
Error misfit(const Misfits& misfits, const fs::path& path, WeightsFor use) {
    const Renaming renaming = renaming_between(misfits.missing, misfits.unexpected);
    const auto error = [&](const std::string& why, const std::string& fix) {
        return Error("E304", fmt::format("'{}' does not fit the model", path.string()), why, fix);
    };
    if (renaming.is_in_the_file && !renaming.prefix.empty() && use == WeightsFor::training)
        return error(fmt::format("names begin with '{}' in the file only", renaming.prefix),
                     fmt::format("give --load-prefix {}, too", renaming.prefix));
    if (!renaming.prefix.empty())
        return error(fmt::format("names begin with '{}' in {} only",
                                 renaming.prefix,
                                 renaming.is_in_the_file ? "the file" : "the model"),
                     "write a file with the model's names, and give that: " +
                         rename_command(renaming, path));
    if (misfits.is_of_checkpoint())
        return error(
            "it has what the optimizer keeps, and perhaps only a part of each tensor: " +
                misfits.text(),
            fmt::format("write the weights alone with '{}', and give that", export_command(path)));
    if (use == WeightsFor::evaluation)
        return error(misfits.text(),
                     "use weights of the run's model; those that 'lockstep prune' wrote need its "
                     "--channels");
    return error(misfits.text(),
                 "leave tensors at their initial values with --load-skip 'NAME*', or use the model "
                 "that the weights are of");
}

std::string optimizer_text(TrainSettings settings) {
    return config_text(find_option(setting_table(settings), "optimizer").current());
}

// Whether --from is as it was when the run was made, perhaps as a full path.
bool is_recorded_source(const TrainSettings& settings) {
    std::error_code failed;
    if (settings.from.empty()) return true;
    if (!fs::exists(RunPaths{settings.run}.record(), failed)) return false;
    const RunRecord record = read_run_record(settings.run);
    const std::string then = record.config.value("from", Json::object()).value("value", "");
    return settings.from == then ||
           settings.from == (fs::path(record.created_in) / then).lexically_normal();
}

// On rank 0. A run that has a checkpoint goes on from that, wherever its source is now.
Json source_of_run(const TrainSettings& settings, const Json& recorded) {
    const std::string then = recorded.value("from", "");
    const bool has_checkpoint = !list_checkpoints(RunPaths{settings.run}.checkpoints()).empty();
    Json found = Json::object();
    found["fact"] = then;
    if (has_checkpoint && !then.empty() && is_recorded_source(settings)) return found;
    check(!settings.from.empty(),
          "E105",
          "--from is missing",
          fmt::format("run '{}' begins with the weights of another, and has no checkpoint yet",
                      settings.run.string()),
          "go on with --resume, which knows it");
    const RunSource source = run_source(settings.from);
    std::error_code failed;
    check(!fs::equivalent(source.run, settings.run, failed),
          "E106",
          fmt::format("--from and --run both name '{}'", source.run.string()),
          "--from begins another run",
          fmt::format("give another --run, or go on with it: --resume {}", source.run.string()));
    static_cast<void>(read_run_record(source.run));
    const fs::path checkpoint = chosen_checkpoint(source.run, source.choice).path;
    const Json made_with = read_checkpoint_state(checkpoint).contract.deciding;
    const std::string without = settings.load_skip.empty() ? "" : " without " + settings.load_skip;
    found["fact"] = file_digest(checkpoint / "manifest.json") + without;
    if (!has_checkpoint) found["checkpoint"] = checkpoint.string();
    found["has_state"] = made_with.value("optimizer", "") == optimizer_text(settings);
    return found;
}

InitialWeights settle_source(const Communicator& ranks,
                             const TrainSettings& settings,
                             const Json& recorded) {
    const Json found = parse_json(
        from_root(ranks, [&] { return source_of_run(settings, recorded).dump(); }), "--from");
    return {.fact = found.value("fact", ""),
            .checkpoint = found.value("checkpoint", ""),
            .has_state = found.value("has_state", false),
            .name = "from"};
}

}  // namespace

std::optional<CheckpointState> load_checkpoint(const Communicator& ranks,
                                               const fs::path& root,
                                               std::span<const TensorMeta> tensors,
                                               std::span<const TensorPiece> pieces,
                                               std::optional<std::int64_t> step) {
    const std::string listing = from_root(ranks, [&] {
        Json names = Json::array();
        for (const CheckpointInfo& info : list_checkpoints(root))
            if (!step || info.step == *step) names.push_back(info.path.filename().string());
        return names.dump();
    });
    const Json names = parse_json(listing, "checkpoint list");
    for (std::size_t left = names.size(); left > 0; --left) {
        const fs::path path = root / names[left - 1].get<std::string>();
        if (is_whole(ranks, path))
            return agree(ranks, [&] { return load_from(path, tensors, pieces); });
    }
    check(names.empty() || step,
          "E303",
          fmt::format("none of {} checkpoints in '{}' is whole", names.size(), root.string()),
          "the warnings above give the reasons",
          "restore one from a copy, or start a new run");
    return std::nullopt;
}

InitialWeights settle_initial_weights(const Communicator& ranks,
                                      const TrainSettings& settings,
                                      const Json& recorded) {
    if (!settings.from.empty() || recorded.contains("from"))
        return settle_source(ranks, settings, recorded);
    const std::string then = recorded.contains(recorded_name)
                                 ? json_field<std::string>(recorded, recorded_name, "run.json")
                                 : "";
    const std::string resumed = from_root(ranks, [&] {
        const bool has_checkpoint = !list_checkpoints(RunPaths{settings.run}.checkpoints()).empty();
        return has_checkpoint ? "=" + fact_of_resumed(settings, then) : "";
    });
    if (!resumed.empty()) return {.fact = resumed.substr(1)};
    const std::string mine = agree(ranks, [&] {
        check(then.empty() || !settings.load_weights.empty(),
              "E105",
              "--load-weights is missing",
              fmt::format("run '{}' begins with the weights of a file, and has no checkpoint yet",
                          settings.run.string()),
              "give the file with which it was created");
        return settings.load_weights.empty() ? "" : fact_of(settings);
    });
    const std::string roots = ranks.broadcast(mine);
    agree(ranks, [&] {
        check(mine == roots,
              "E605",
              fmt::format("ranks have different weights: --load-weights has the digest "
                          "{} here and {} on rank 0",
                          mine,
                          roots),
              "the file differs between nodes, or --load-skip or --load-prefix does",
              "give a file on a file system that all nodes share, or copy it again");
    });
    return {.fact = mine, .file = settings.load_weights};
}

std::vector<MatchedWeights> match_weights(const WeightsFile& file,
                                          std::span<const TensorMeta> wanted,
                                          std::span<const std::string> known,
                                          const std::string& skip,
                                          WeightsFor use,
                                          const std::string& prefix) {
    const auto patterns = name_patterns(skip);
    std::map<std::string, const StoredTensor*> stored;
    std::set<std::string> names(known.begin(), known.end());
    for (const TensorMeta& tensor : wanted) names.insert(tensor.name);
    bool has_prefix = prefix.empty();
    for (const StoredTensor& tensor : file.tensors()) {
        const bool is_longer = tensor.name.starts_with(prefix);
        const std::string name = is_longer ? tensor.name.substr(prefix.size()) : tensor.name;
        has_prefix = has_prefix || is_longer;
        names.insert(printable(name));
        if (matches_any(patterns, name)) continue;
        check(stored.try_emplace(name, &tensor).second,
              "E304",
              fmt::format("'{}' does not fit the model", file.path().string()),
              fmt::format("it has '{}' with --load-prefix and without", printable(name)),
              "leave one of them out of the file");
    }
    check(has_prefix, [&] {
        return Error("E107",
                     fmt::format("--load-prefix '{}' has no effect", printable(prefix)),
                     "no name in the file begins so: " + names_text({names.begin(), names.end()}),
                     "drop it, or give the prefix that names in the file have");
    });
    check_patterns_match(
        "load-skip", patterns, names, "neither the model nor the file has a tensor");
    std::vector<MatchedWeights> matched;
    for (const std::string& name : known) stored.erase(name);
    Misfits misfits;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (matches_any(patterns, wanted[i].name)) continue;
        const auto found = stored.find(wanted[i].name);
        if (found == stored.end()) {
            misfits.missing.push_back(wanted[i].name);
            continue;
        }
        compare(*found->second, wanted[i], misfits);
        matched.push_back({i, found->second});
        stored.erase(found);
    }
    for (const auto& [name, tensor] : stored) misfits.unexpected.push_back(printable(name));
    if (!misfits.text().empty()) throw misfit(misfits, file.path(), use);
    return matched;
}

std::vector<std::string> name_patterns(const std::string& list) {
    std::vector<std::string> patterns;
    for (const auto part : list | std::views::split(','))
        if (!part.empty()) patterns.emplace_back(part.begin(), part.end());
    return patterns;
}

bool matches(const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
    return std::ranges::any_of(patterns,
                               [&](const std::string& pattern) { return matches(pattern, name); });
}

void check_patterns_match(const std::string& option,
                          const std::vector<std::string>& patterns,
                          const std::set<std::string>& names,
                          const std::string& whose) {
    for (const std::string& pattern : patterns)
        check(std::ranges::any_of(names, [&](const auto& name) { return matches(pattern, name); }),
              [&] {
                  return Error(
                      "E107",
                      fmt::format("--{} '{}' has no effect", option, printable(pattern)),
                      whose + " of such a name: " + names_text({names.begin(), names.end()}),
                      fmt::format("drop it (--{} '' if a run's settings have it), or give one of "
                                  "these names or a pattern for them",
                                  option));
              });
}

std::string names_text(const std::vector<std::string>& names) {
    constexpr std::size_t most_named = 8;
    const std::size_t shown = std::min(names.size(), most_named);
    std::string text = fmt::format("{}", fmt::join(names | std::views::take(shown), ", "));
    if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
    return text;
}

}  // namespace lockstep
