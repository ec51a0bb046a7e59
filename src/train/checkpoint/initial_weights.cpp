// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/initial_weights.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/safetensors.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

namespace lockstep {
namespace {

constexpr const char* recorded_name = "load-weights";
constexpr std::size_t most_named = 8;

std::vector<std::string> patterns_of(const std::string& skip) {
    std::vector<std::string> patterns;
    for (const auto part : skip | std::views::split(','))
        if (!part.empty()) patterns.emplace_back(part.begin(), part.end());
    return patterns;
}

bool matches(const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool is_skipped(const std::string& name, const std::vector<std::string>& patterns) {
    return std::ranges::any_of(patterns,
                               [&](const std::string& pattern) { return matches(pattern, name); });
}

std::string fact_of(const TrainSettings& settings) {
    check_is_weights_file(settings.load_weights);
    const std::string digest = file_digest(settings.load_weights);
    return settings.load_skip.empty() ? digest : digest + " without " + settings.load_skip;
}

// On the root of a run that has a checkpoint: the recorded fact if nothing contradicts it.
std::string fact_of_resumed(const TrainSettings& settings, const std::string& then) {
    const bool is_gone = !then.empty() && !fs::exists(settings.load_weights);
    return settings.load_weights.empty() || is_gone ? then : fact_of(settings);
}

void check_same_fact(const std::string& mine, const std::string& roots) {
    check(mine == roots, [&] {
        return Error("E605",
                     fmt::format("ranks have different weights: --load-weights has the digest {} "
                                 "here and {} on rank 0",
                                 mine,
                                 roots),
                     "the file differs between nodes, or --load-skip does",
                     "give a file on a file system that all nodes share, or copy it again");
    });
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string list_text(const std::vector<std::string>& names) {
    const std::size_t shown = std::min(names.size(), most_named);
    std::string text = fmt::format("{}", fmt::join(names | std::views::take(shown), ", "));
    if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
    return text;
}

// How many of `names` --load-skip leaves out. A pattern that matches none is a mistake.
std::size_t count_skipped(const std::set<std::string>& names,
                          const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns)
        check(std::ranges::any_of(names, [&](const auto& name) { return matches(pattern, name); }),
              [&] {
                  return Error("E107",
                               fmt::format("--load-skip '{}' has no effect", printable(pattern)),
                               "neither the model nor the file has a tensor of such a name: " +
                                   list_text({names.begin(), names.end()}),
                               "drop it, or give one of these names or a pattern for them");
              });
    return static_cast<std::size_t>(std::ranges::count_if(
        names, [&](const std::string& name) { return is_skipped(name, patterns); }));
}

// What does not fit, by kind.
struct Misfits {
    std::vector<std::string> missing, unexpected, other;

    bool is_of_checkpoint() const {
        return std::ranges::any_of(
            unexpected, [](const std::string& name) { return name.starts_with("optimizer."); });
    }
    std::string text() const {
        std::vector<std::string> parts;
        if (!missing.empty()) parts.push_back("missing in the file: " + list_text(missing));
        if (!unexpected.empty()) parts.push_back("not in the model: " + list_text(unexpected));
        if (!other.empty()) parts.push_back(list_text(other));
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

// What makes the file fit, as far as its names tell.
Error misfit(const Misfits& misfits, const fs::path& path, WeightsFor use) {
    const Renaming renaming = renaming_between(misfits.missing, misfits.unexpected);
    const auto error = [&](const std::string& why, const std::string& fix) {
        return Error("E304", fmt::format("'{}' does not fit the model", path.string()), why, fix);
    };
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

}  // namespace

InitialWeights settle_initial_weights(const Communicator& ranks,
                                      const TrainSettings& settings,
                                      const Json& recorded) {
    const std::string then = recorded.contains(recorded_name)
                                 ? json_field<std::string>(recorded, recorded_name, "run.json")
                                 : "";
    const std::string resumed = from_root(ranks, [&] {
        const bool has_checkpoint = !list_checkpoints(RunPaths{settings.run}.checkpoints()).empty();
        return has_checkpoint ? "=" + fact_of_resumed(settings, then) : "";
    });
    if (!resumed.empty()) return {.fact = resumed.substr(1), .file = {}};
    const std::string mine = agree(ranks, [&] {
        check(then.empty() || !settings.load_weights.empty(), [&] {
            return Error("E105",
                         "--load-weights is missing",
                         fmt::format("run '{}' begins with weights of a file, and has no "
                                     "checkpoint yet that would have them",
                                     settings.run.string()),
                         "give the file with which it was created");
        });
        return settings.load_weights.empty() ? "" : fact_of(settings);
    });
    const std::string roots = ranks.broadcast(mine);
    agree(ranks, [&] { check_same_fact(mine, roots); });
    return {.fact = mine, .file = settings.load_weights};
}

WeightsMatch match_weights(const SafetensorsFile& file,
                           std::span<const TensorMeta> wanted,
                           std::span<const std::string> known,
                           const std::string& skip,
                           WeightsFor use) {
    const auto patterns = patterns_of(skip);
    std::map<std::string, const StoredTensor*> stored;
    std::set<std::string> names(known.begin(), known.end());
    for (const TensorMeta& tensor : wanted) names.insert(tensor.name);
    for (const StoredTensor& tensor : file.tensors()) {
        names.insert(printable(tensor.name));
        if (!is_skipped(tensor.name, patterns)) stored[tensor.name] = &tensor;
    }
    WeightsMatch match{.skipped = count_skipped(names, patterns)};
    for (const std::string& name : known) stored.erase(name);
    Misfits misfits;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (is_skipped(wanted[i].name, patterns)) continue;
        const auto found = stored.find(wanted[i].name);
        if (found == stored.end()) {
            misfits.missing.push_back(wanted[i].name);
            continue;
        }
        compare(*found->second, wanted[i], misfits);
        match.tensors.push_back({i, found->second});
        stored.erase(found);
    }
    for (const auto& [name, tensor] : stored) misfits.unexpected.push_back(printable(name));
    if (!misfits.text().empty()) throw misfit(misfits, file.path(), use);
    check(!match.tensors.empty(), [&] {
        return Error("E107",
                     fmt::format("--load-skip '{}' leaves nothing to load", printable(skip)),
                     fmt::format("it matches all {} tensors of the model", wanted.size()),
                     "drop --load-weights and --load-skip, or skip fewer tensors");
    });
    return match;
}

}  // namespace lockstep
