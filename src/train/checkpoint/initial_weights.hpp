// SPDX-License-Identifier: Apache-2.0
// Initial weights of a new run from a file: --load-weights, --load-skip, --load-prefix; and
// patterns such as "fc.*,head.*" that name tensors of a model.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The source of a run's initial weights.
struct InitialWeights {
    std::string fact;  ///< facts that decide the bits, for run.json; "": the seed alone
    /// File to read now; "": a checkpoint or the seed has the weights.
    fs::path file = {};
    fs::path checkpoint = {};           ///< of another run, to read now; "": none
    bool has_state = false;             ///< it is of the same optimizer
    std::string name = "load-weights";  ///< of `fact`: "load-weights" or "from"
};

/// Collective. A run with a checkpoint no longer needs the file. If the file exists, its digest
/// must be the recorded one; the caller compares. `recorded`: the settings in run.json, if any.
/// Errors: E105, E201, E202, E605 (another file on some rank).
InitialWeights settle_initial_weights(const Communicator& ranks,
                                      const TrainSettings& settings,
                                      const Json& recorded);

/// A tensor of a model, and its counterpart in the file.
struct MatchedWeights {
    std::size_t tensor = 0;  ///< index among the model's tensors
    const StoredTensor* stored = nullptr;
};

/// The user of weights: `train --load-weights`, or `eval --weights`, which can skip none.
enum class WeightsFor { training, evaluation };

/// Returns the file's tensors for the model's `wanted`, except those named by `skip`, the value of
/// --load-skip. `prefix`, that of --load-prefix, is removed from names in the file first. Names in
/// `known` may be in the file, too. Errors: E107 a pattern that matches nothing, or a prefix that
/// no name has; E304 naming all tensors that are missing, unexpected or of other
/// shapes.
std::vector<MatchedWeights> match_weights(const WeightsFile& file,
                                          std::span<const TensorMeta> wanted,
                                          std::span<const std::string> known,
                                          const std::string& skip,
                                          WeightsFor use,
                                          const std::string& prefix = "");

/// Returns the patterns of `list`, which commas separate, without empty ones.
std::vector<std::string> name_patterns(const std::string& list);

/// Returns true if `pattern` (`*`, `?`, `[...]`) matches all of `name`.
bool matches(const std::string& pattern, const std::string& name);

/// Returns true if any of `patterns` matches `name`.
bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

/// Checks that each pattern of `option` matches one of `names`. Errors: E107; `whose` says what has
/// no such tensor.
void check_patterns_match(const std::string& option,
                          const std::vector<std::string>& patterns,
                          const std::set<std::string>& names,
                          const std::string& whose);

/// Returns "a, b, c and 4 more".
std::string names_text(const std::vector<std::string>& names);

}  // namespace lockstep
