// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints: safetensors shards and a JSON manifest, complete or absent.
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
    std::string name;                 ///< name in the model
    std::vector<std::int64_t> shape;  ///< slowest dimension first
    std::uint64_t count() const;      ///< number of elements
};

/// A range of fp32 elements of tensor `tensor` (index into a list of TensorMeta) in memory.
struct TensorPiece {
    std::size_t tensor = 0;   ///< index into the list
    std::uint64_t start = 0;  ///< its first element in the tensor
    std::uint64_t count = 0;  ///< number of elements
    float* data = nullptr;    ///< borrowed
};

/// The position in the data: the next samples, and the settings that determine them.
struct OrderState {
    OrderKind kind = OrderKind::lanes;  ///< how samples are shuffled
    std::string data_digest;            ///< digest of the data set's manifest
    std::uint64_t seed = 1;             ///< seed of the run
    int lanes = 64;                     ///< G
    int window_blocks = 5;              ///< K
    std::uint64_t epoch = 0;            ///< from 0
    std::uint64_t consumed = 0;         ///< samples of that epoch used so far
};

/// The conditions of a run's bits, as its checkpoints record them besides run.json.
struct BitContract {
    Json deciding = Json::object();  ///< {key: value}: settings that decide the bits
    std::string canary;     ///< hash of a blank step on the nodes that computed; "": unknown
    std::string processor;  ///< processor model of rank 0
};

/// The result of an evaluation on test data.
struct EvaluationRecord {
    std::map<std::string, double> metrics;  ///< "loss", "accuracy", "r2", ...
    std::string text;  ///< the metrics as text for people; "": there was no evaluation
};

/// One metric of an evaluation.
struct EvaluatedStep {
    std::int64_t step = 0;  ///< step after which it was measured
    double value = 0;       ///< value of the metric
    bool operator==(const EvaluatedStep&) const = default;
};

/// The best of a run's evaluations so far, by one metric.
struct BestEvaluation {
    std::string metric;                 ///< "" before the first
    std::int64_t step = 0;              ///< step after which it was measured
    double value = 0;                   ///< value of the metric
    std::int64_t not_since = 0;         ///< number of evaluations after it, none of them better
    std::vector<EvaluatedStep> next{};  ///< of --keep best=N: those that follow it, best first
};

/// The factor by which the loss is multiplied before backward.
struct LossScale {
    double factor = 1;            ///< 1: no scaling
    std::int64_t good_steps = 0;  ///< steps since it changed
    bool operator==(const LossScale&) const = default;
};

/// What keeps checkpoints of a run. Periods are in steps; 0: there is none.
struct Retention {
    int last = 3;                      ///< number of the newest, at least 1
    std::int64_t every = 0;            ///< of each such period the first one stays for good
    std::int64_t rollback = 0;         ///< one of the newest needs the one that was due before it
    std::int64_t read = 0;             ///< step of the last one that was read whole; 0: none
    std::vector<std::int64_t> best{};  ///< steps of the best evaluations
};

/// The reasons why a checkpoint stays.
struct KeptBecause {
    bool newest = false;    ///< one of the newest
    bool best = false;      ///< of one of the best evaluations
    bool every = false;     ///< the first after a period's end
    bool read = false;      ///< the last one that was read whole
    bool rollback = false;  ///< a rollback may need it

    /// Returns true if there is a reason.
    bool any() const { return newest || best || every || read || rollback; }
    /// Returns "newest, best"; "-" for none.
    std::string text() const;
};

/// Returns what keeps the checkpoint of each of `steps`, which ascend. The last one always stays.
std::vector<KeptBecause> kept_because(const Retention& retention,
                                      const std::vector<std::int64_t>& steps);

/// The state of a job besides its tensors, between two steps.
struct CheckpointState {
    std::int64_t step = 0;       ///< steps done
    std::int64_t epoch = 0;      ///< epochs done
    std::int64_t updates = 0;    ///< updates in the optimizer's state: see UpdateStep
    OrderState order;            ///< the position in the data
    BitContract contract;        ///< empty in checkpoints of earlier versions
    EvaluationRecord evaluated;  ///< the last evaluation
    BestEvaluation best;         ///< with --keep-best or --early-stop
    LossScale loss_scale;        ///< with --precision fp16
    Retention retention;         ///< by which older ones went when it was committed
    int ranks = 1;               ///< number of ranks that wrote it
    int virtual_ranks = 1;       ///< V
    std::string parameter_hash;  ///< XXH3-128 of all values, hexadecimal
    std::map<std::string, std::int64_t> counters;  ///< counters of the model, by name
};

/// The place of checkpoints, and the rank that may write them.
struct CheckpointPlace {
    std::filesystem::path root;              ///< run/ckpt
    std::int64_t incarnation = 1;            ///< number of the start, which names temporary folders
    std::function<void()> check_still_ours;  ///< called on rank 0 before the commit; throws E408
    PhaseClock* clock = nullptr;  ///< counts waiting for other ranks' shards as Phase::wait
    std::function<void()> note_committed{};  ///< called on rank 0 after the commit
};

/// One committed checkpoint, for lists.
struct CheckpointInfo {
    std::filesystem::path path;  ///< its folder
    std::int64_t step = 0;       ///< steps done when it was written
};

/// Returns the committed checkpoints below `root`, oldest first.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& root);

/// Returns the checkpoint of `run` that `choice` names: "newest", "best" (by --keep-best or
/// --early-stop) or a step. Errors: E103 for another text; E301 if there is none, E201.
CheckpointInfo chosen_checkpoint(const std::filesystem::path& run, const std::string& choice);

/// Returns the state in a checkpoint, after checking the digest of its manifest. Errors: E310,
/// E305, E222, E201, E309.
CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint);

/// Returns the state in the newest checkpoint below `root` whose manifest is readable; nothing if
/// there is none.
std::optional<CheckpointState> newest_checkpoint_state(const std::filesystem::path& root);

/// Reads and hashes every piece with index % parts == part. `has_read` is called after each piece
/// with the total of bytes so far. Errors: E310 naming file, tensor and range; E309; E220.
void verify_checkpoint(const std::filesystem::path& checkpoint,
                       int part = 0,
                       int parts = 1,
                       const std::function<void(std::uint64_t)>& has_read = {});

/// How a tensor, or a counter, of two checkpoints differs.
struct TensorDifference {
    std::string name;                                  ///< as export_checkpoint() spells it
    std::optional<std::vector<std::int64_t>> first{};  ///< shape; nothing: the first lacks it
    std::optional<std::vector<std::int64_t>> second{};
    std::uint64_t differing = 0;  ///< number of elements with other bits, where shapes are equal
    double largest = 0;           ///< largest |a - b| of these; infinite where one is no number
};

/// The result of a comparison.
struct CheckpointDifference {
    std::size_t tensors = 0;                  ///< number of names in either
    std::vector<TensorDifference> different;  ///< the others have equal bits
};

/// Compares weights, buffers, optimizer state and counters of two checkpoints bit for bit, however
/// many ranks wrote them; hashes are checked. `has_read` is called with bytes done and in all.
/// Errors: those of verify_checkpoint().
CheckpointDifference compare_checkpoints(
    const std::filesystem::path& first,
    const std::filesystem::path& second,
    const std::function<void(std::uint64_t, std::uint64_t)>& has_read = {});

/// File format of export_checkpoint().
enum class WeightsFormat { safetensors, npz };

/// Tensors to export. of_model: parameters and buffers. averaged: the same, with the moving average
/// of --ema in place of the parameters. all: also the optimizer's state ("optimizer.STATE.NAME").
enum class ExportedTensors { of_model, averaged, all };

/// Settings of an export to a file for other programs.
struct WeightsExport {
    WeightsFormat format = WeightsFormat::safetensors;    ///< format of the file
    ExportedTensors tensors = ExportedTensors::of_model;  ///< tensors to export
    /// Called with the bytes of the file written so far, and about how many there will be.
    std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

/// The result of an export.
struct ExportSummary {
    std::int64_t step = 0;    ///< step of the checkpoint
    std::size_t tensors = 0;  ///< number of tensors in the file
    std::uint64_t bytes = 0;  ///< size of the file
};

/// Writes the checkpoint's tensors, f32 under the model's names, and its counters as i64 into the
/// new file `file`; each piece's hash is compared. Errors: E106 (no average, or too large for npz),
/// E310, E305, E309, E401, E402, E405, E407.
ExportSummary export_checkpoint(const std::filesystem::path& checkpoint,
                                const std::filesystem::path& file,
                                const WeightsExport& options = {});

/// Removes the checkpoints of `steps` below `root`, and lets `latest` name the newest that is left.
/// Hold the run's lock. Errors: E402.
void remove_checkpoints(const std::filesystem::path& root, const std::vector<std::int64_t>& steps);

/// Removes the remains of a killed save below `root`. Call it only while no other process writes
/// there. Errors: E220 if `root` is a link, because files of these names at its target belong to
/// others.
void remove_unfinished_checkpoints(const std::filesystem::path& root);

/// Handling of a run that would continue with other bits.
enum class OtherBits { refuse, accept };

/// Returns the contract of run.json and that of the newest readable checkpoint; either may be
/// missing, and both are for a new run. Errors: E222 of run.json; E306 for a run of an earlier
/// version that rounded gradients between ranks.
std::vector<BitContract> recorded_contracts(const std::filesystem::path& run);

/// Returns the settings of the first of `recorded` that has some; else an empty object.
Json recorded_settings(const std::vector<BitContract>& recorded);

/// Compares `now` with each of `recorded`, and its canary with that of the last, from which the run
/// continues. Returns a warning if another canary is accepted. Errors: E306 naming settings and
/// their `origins`; E710 naming both processors.
std::optional<std::string> check_recorded(const std::filesystem::path& run,
                                          const std::vector<BitContract>& recorded,
                                          const BitContract& now,
                                          const Json& origins,
                                          OtherBits other);

}  // namespace lockstep
