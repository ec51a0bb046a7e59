// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints: safetensors shards and a JSON manifest, whole or not at all.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/order_kind.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A tensor of the checkpoint as a whole.
struct TensorMeta {
    std::string name;                 ///< as the model calls it
    std::vector<std::int64_t> shape;  ///< slowest dimension first
    std::uint64_t count() const;      ///< elements
};

/// A run of fp32 elements of tensor `tensor` (index into a list of TensorMeta) in memory.
struct TensorPiece {
    std::size_t tensor = 0;   ///< index into the list
    std::uint64_t start = 0;  ///< its first element in the tensor
    std::uint64_t count = 0;  ///< elements
    float* data = nullptr;    ///< borrowed
};

/// Which samples come next, and what that follows from.
struct OrderState {
    OrderKind kind = OrderKind::lanes;  ///< how samples are shuffled
    std::string data_digest;            ///< of the data set's manifest
    std::uint64_t seed = 1;             ///< of the run
    int lanes = 64;                     ///< G
    int window_blocks = 5;              ///< K
    std::uint64_t epoch = 0;            ///< from 0
    std::uint64_t consumed = 0;         ///< samples of that epoch
};

/// The conditions of a run's bits, as its checkpoints keep them next to run.json.
struct BitContract {
    Json deciding = Json::object();  ///< {key: value}: settings that decide the bits
    std::string canary;     ///< hash of a blank step on the nodes that computed; "": not known
    std::string processor;  ///< of rank 0, its model
};

/// What an evaluation on test data found.
struct EvaluationRecord {
    std::map<std::string, double> metrics;  ///< "loss", "accuracy", "r2", ...
    std::string text;                       ///< of them, for people; "": there was none
};

/// The best of a run's evaluations so far, by one metric.
struct BestEvaluation {
    std::string metric;          ///< "" before the first
    std::int64_t step = 0;       ///< after which it was
    double value = 0;            ///< of the metric
    std::int64_t not_since = 0;  ///< evaluations after it, none of them better
};

/// What the loss is multiplied by before backward.
struct LossScale {
    double factor = 1;            ///< 1 if nothing is scaled
    std::int64_t good_steps = 0;  ///< since it changed
    bool operator==(const LossScale&) const = default;
};

/// The state of a job besides its tensors, between two steps.
struct CheckpointState {
    std::int64_t step = 0;                         ///< done
    std::int64_t epoch = 0;                        ///< done
    std::int64_t updates = 0;                      ///< in the optimizer's state: see UpdateStep
    OrderState order;                              ///< the position in the data
    BitContract contract;                          ///< empty in those of earlier versions
    EvaluationRecord evaluated;                    ///< the last one
    BestEvaluation best;                           ///< with --keep-best or --early-stop
    LossScale loss_scale;                          ///< with --precision fp16
    int ranks = 1;                                 ///< that wrote it
    int virtual_ranks = 1;                         ///< V
    std::string parameter_hash;                    ///< XXH3-128 of all values, hexadecimal
    std::map<std::string, std::int64_t> counters;  ///< of the model, by name
};

/// The place of checkpoints, and the rank that may write them.
struct CheckpointPlace {
    std::filesystem::path root;              ///< run/ckpt
    std::int64_t incarnation = 1;            ///< names temporary folders
    std::function<void()> check_still_ours;  ///< called on rank 0 before the commit; throws E408
    int keep = 3;                            ///< newest whole checkpoints that stay
    std::vector<std::int64_t> kept_steps;    ///< whose checkpoints stay beside these
    /// Which step's checkpoint a run needs, too, that goes on from the one of `step`. Empty: none.
    std::function<std::int64_t(std::int64_t step)> needed_by;
    PhaseClock* clock = nullptr;  ///< counts waiting for other ranks' shards as Phase::wait
};

/// One committed checkpoint, for listings.
struct CheckpointInfo {
    std::filesystem::path path;  ///< its folder
    std::int64_t step = 0;       ///< steps done when it was written
};

/// Committed checkpoints below `root`, oldest first.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& root);

/// The state in a checkpoint, whose manifest's own digest is checked. Errors: E310, E305, E222,
/// E201, E309.
CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint);

/// Reads and hashes every piece with index % parts == part; `has_read` hears after each how many
/// bytes that are in all. Errors: E310 naming file, tensor and range; E309; E220.
void verify_checkpoint(const std::filesystem::path& checkpoint,
                       int part = 0,
                       int parts = 1,
                       const std::function<void(std::uint64_t)>& has_read = {});

/// What export_checkpoint() writes.
enum class WeightsFormat { safetensors, npz };

/// Parameters and buffers; the same with the moving average of --ema in place of the parameters; or
/// what the optimizer keeps, too ("optimizer.STATE.NAME").
enum class ExportedTensors { of_model, averaged, all };

/// How a checkpoint becomes a file for others.
struct WeightsExport {
    WeightsFormat format = WeightsFormat::safetensors;    ///< of the file
    ExportedTensors tensors = ExportedTensors::of_model;  ///< which
    /// Hears how many bytes of the file are written, and about how many there will be.
    std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

/// What was exported.
struct ExportSummary {
    std::int64_t step = 0;    ///< of the checkpoint
    std::size_t tensors = 0;  ///< in the file
    std::uint64_t bytes = 0;  ///< of the file
};

/// Writes the checkpoint's tensors, f32 under the model's names, and its counters as i64 into the
/// new file `file`; each piece's hash is compared. Errors: E106 (no average, or too large for npz),
/// E310, E305, E309, E401, E402, E405, E407.
ExportSummary export_checkpoint(const std::filesystem::path& checkpoint,
                                const std::filesystem::path& file,
                                const WeightsExport& options = {});

/// Removes what a killed save left below `root`. Only while no one else writes there. Errors: E220
/// if `root` is a link: files of these names at its target belong to others.
void remove_unfinished_checkpoints(const std::filesystem::path& root);

/// What to do where a run would go on with other bits.
enum class OtherBits { refuse, accept };

/// run.json's contract, and that of the newest checkpoint that can be read; either may be missing,
/// and both are for a new run. Errors: E222 of run.json; E306 for a run of an earlier version that
/// rounded gradients between ranks.
std::vector<BitContract> recorded_contracts(const std::filesystem::path& run);

/// The settings of the first of `recorded` that has some; an empty object where none has.
Json recorded_settings(const std::vector<BitContract>& recorded);

/// Compares `now` with each of `recorded`, and its canary with that of the last: what the run goes
/// on from. Returns a warning about a canary that is accepted. Errors: E306 naming settings and
/// their `origins`; E710 naming both processors.
std::optional<std::string> check_recorded(const std::filesystem::path& run,
                                          const std::vector<BitContract>& recorded,
                                          const BitContract& now,
                                          const Json& origins,
                                          OtherBits other);

}  // namespace lockstep
