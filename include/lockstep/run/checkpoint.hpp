// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints: safetensors shards and a JSON manifest, written by any number of ranks and read by
/// any other number, whole or not at all.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/order.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
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

/// What a run's bits depend on, as its checkpoints keep it beside run.json.
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
    double factor = 1;            ///< 1 where nothing is scaled
    std::int64_t good_steps = 0;  ///< since it changed
    bool operator==(const LossScale&) const = default;
};

/// The state of a job beside its tensors, between two steps.
struct CheckpointState {
    std::int64_t step = 0;                         ///< done
    std::int64_t epoch = 0;                        ///< done
    std::int64_t updates = 0;                      ///< in the optimizer's state: see UpdateStep
    OrderState order;                              ///< where the data go on
    BitContract contract;                          ///< empty in those of earlier versions
    EvaluationRecord evaluated;                    ///< the last one
    BestEvaluation best;                           ///< with --keep-best or --early-stop
    LossScale loss_scale;                          ///< with --precision fp16
    int ranks = 1;                                 ///< that wrote it
    int virtual_ranks = 1;                         ///< V
    std::string parameter_hash;                    ///< XXH3-128 of all values, hexadecimal
    std::map<std::string, std::int64_t> counters;  ///< of the model, by name
};

/// Where checkpoints go and who may write them.
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

/// Collective. Writes root/step-NNNNNN from everybody's `pieces`, which together cover `tensors`
/// exactly once. `state` comes back from load_checkpoint(). Commit order:
/// temporary shards, hashes, fsync, all ranks well, fencing, manifest, fsync, rename, fsync,
/// `latest`, retention. Errors (on all ranks): E701 non-finite values, E403, E405, E402, E408.
void save_checkpoint(const Communicator& ranks,
                     const CheckpointPlace& place,
                     const CheckpointState& state,
                     std::span<const TensorMeta> tensors,
                     std::span<const TensorPiece> pieces);

/// Collective. Finds the newest whole checkpoint below `root`, or that of `step` alone, fills
/// `pieces` from it and returns its state; nothing if there is none. Damaged ones are passed over
/// with a warning. Errors: E303 all damaged, where no `step` is given; E304 other tensors than
/// `tensors`, E305 format.
std::optional<CheckpointState> load_checkpoint(const Communicator& ranks,
                                               const std::filesystem::path& root,
                                               std::span<const TensorMeta> tensors,
                                               std::span<const TensorPiece> pieces,
                                               std::optional<std::int64_t> step = {});

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
/// if `root` is a link: what is called so at its target is somebody else's.
void remove_unfinished_checkpoints(const std::filesystem::path& root);

}  // namespace lockstep
