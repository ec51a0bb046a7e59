// SPDX-License-Identifier: Apache-2.0
/// @file
/// All settings of a training run, as plain values.
#pragma once

#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/instruction_set.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/order.hpp"
#include "lockstep/data/resident.hpp"
#include "lockstep/run/trace.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The update rule; see make_optimizer().
enum class OptimizerKind { adam, adamw, lamb, lars, sgd };

/// Settings of make_optimizer().
struct OptimizerSettings {
    OptimizerKind kind = OptimizerKind::adam;  ///< the update rule
    double learning_rate = 1e-3;               ///< before the schedule changes it
    double momentum = 0.9;                     ///< sgd, lars
    bool nesterov = false;                     ///< sgd: looks ahead along the momentum
    double beta1 = 0.9;                        ///< adam, adamw, lamb
    double beta2 = 0.999;                      ///< adam, adamw, lamb
    double epsilon = 1e-8;                     ///< adam, adamw, lamb
    double trust = 1e-3;                       ///< lars: a tensor's rate by its norms
    double weight_decay = 0;                   ///< adamw, lamb: decoupled; others: L2 penalty
    double average_decay = 0;                  ///< of the weights' moving average; 0: none is kept
    std::string rate_factors;  ///< "fc.*=0.1": of the learning rate, for tensors of these names
    bool decays_all = false;   ///< biases and norms, too; see parameter_group()
};

/// What the learning rate does after its warm-up; see learning_rate().
enum class ScheduleKind { constant, step, cosine, linear, polynomial, one_cycle };

/// How the learning rate follows the batch.
enum class RateScale { none, linear, square_root };

/// How the learning rate changes.
struct ScheduleSettings {
    ScheduleKind kind = ScheduleKind::constant;  ///< after the warm-up
    std::int64_t warmup_steps = 0;               ///< in which the rate grows linearly; 0: none
    Period every{Period::Unit::epochs, 30};      ///< step: multiplies by gamma
    double gamma = 0.1;                          ///< step
    double power = 2;                            ///< polynomial
    double end = 0;                              ///< the rate at the end, if there is one
    RateScale scale = RateScale::none;           ///< from the reference batch to the run's
    std::int64_t reference_batch = 256;          ///< that the given rate is for
};

/// Whether the rate depends on how long the run is.
bool has_end(ScheduleKind kind);

/// Settings of make_model().
struct ModelSettings {
    std::string name = "cnn";  ///< one of model_names()
    bool bias = true;          ///< whether layers have one
    /// "16,32,256": of the layers of cnn, cnn-bn and mlp but the last; "": the model's own.
    std::string channels;
    std::int64_t layers = 0;  ///< of gpt; 0: its own number
    std::int64_t heads = 0;   ///< of each attention of gpt; 0: its own number
    std::int64_t width = 0;   ///< of gpt, or of unet's first level; 0: the model's own
    std::string output;       ///< of a program's outputs, the one that is used; "": all
};

/// The meaning of a model's outputs; see make_task(). automatic: by the data's fields.
enum class TaskKind {
    automatic,
    classification,
    multi_label,
    regression,
    segmentation,
    next_token,
    program,  ///< a program of torch.export computes its own loss
};

/// How far a predicted number is from the true one; see make_task().
enum class RegressionLoss { mse, mae, huber };

/// Settings of make_task().
struct TaskSettings {
    TaskKind kind = TaskKind::automatic;        ///< what the model learns
    RegressionLoss loss = RegressionLoss::mse;  ///< of regression
    double huber_delta = 1;                     ///< where Huber's loss becomes linear
    double label_smoothing = 0;                 ///< of classes, 0 to 1
    std::string class_weights = "none";         ///< "none", "balanced" or "W0,W1,..."
};

/// How a step is handled whose loss or gradient is not finite.
enum class NonFinite {
    stop,  ///< a loss that is not ends the run
    skip,  ///< the step changes nothing
    /// Skipped, too, and training continues from the weights of the last checkpoint that was due.
    rollback,
};

/// What operators compute in that gain by it (matrix products, convolutions, attention), as
/// torch.autocast chooses them. Parameters, gradients, sums and optimizers are fp32 always.
enum class Precision { fp32, bf16, fp16 };

/// The device of the ranks; automatic: GPUs, if every rank has its own that LibTorch can
/// use.
enum class DeviceKind { automatic, cpu, cuda };

/// Whether gradients are summed on a thread of their own; automatic: if the rank has a core for it.
enum class CommThread { automatic, on, off };

/// How a rank computes the leaves that it has; automatic: together, if a trial shows that no
/// bit differs, or else one by one; together: an error then.
enum class LeafMode { automatic, together, one_by_one };

/// Whether a GPU's leaves are recorded once and replayed; automatic: those whose gradients no other
/// rank waits for, where a rehearsal shows that no bit differs and that they take less time.
enum class GraphMode { automatic, on, off };

/// Settings of `lockstep train`. If a comment says "decides", another value gives other bits.
/// What each may be is said once, in setting_table().
struct TrainSettings {
    std::filesystem::path data;       ///< training data set; its digest decides
    std::string fields;               ///< of foreign HDF5: "NAME=PATH,..."; "": packed shards
    std::filesystem::path test_data;  ///< evaluated after epochs; may be empty
    std::string
        test_fields;  ///< of foreign test data, where they are not `fields`; alone: of `data`
    bool follows_links = false;  ///< of foreign files, test data among them
    std::filesystem::path run;   ///< run directory

    TaskSettings task;   ///< decides
    std::string inputs;  ///< "images,age": fields that the model is given; "": the first; decides
    /// Safetensors that a new run begins with; "": random ones of the seed. Its digest decides.
    std::filesystem::path load_weights;
    std::string load_skip;    ///< "fc.*,head.*": names that stay as the seed has them; decides
    std::string load_prefix;  ///< "module.": taken off the file's names; decides
    std::string freeze;       ///< "features.*": parameters that do not learn; decides

    ModelSettings model;          ///< decides
    OptimizerSettings optimizer;  ///< decides
    ScheduleSettings schedule;    ///< decides
    std::int64_t batch = 128;     ///< global batch; decides
    std::uint64_t seed = 1;       ///< decides
    int virtual_ranks = 0;        ///< V; 0: as many as cost little; decides
    int threads = 1;              ///< intra-op threads of each rank; decides
    /// Nothing: the least among the ranks; decides.
    std::optional<InstructionSet> instruction_set;
    DeviceKind device = DeviceKind::automatic;  ///< decides
    Precision precision = Precision::fp32;      ///< decides
    double loss_scale = 65536;                  ///< the first, with fp16; decides
    OrderKind order = OrderKind::lanes;         ///< or uniform, of resident data; decides
    double split = 0;  ///< this share is trained on, the rest is test data; 0: all is; decides
    bool drops_last = false;         ///< an epoch's last step, if it is short; decides
    std::string transform = "none";  ///< text or preset, see TransformPipeline; decides
    int lanes = 64;                  ///< G; decides
    int window_blocks = 5;           ///< K; decides
    bool plain_summation = false;    ///< negative control; decides
    int micro_batches = 1;           ///< a leaf is computed in so many parts; decides
    double clip_norm = 0;            ///< largest norm of the gradient; 0: any; decides

    std::int64_t epochs = 1;     ///< passes over the data
    std::int64_t max_steps = 0;  ///< 0: epochs decides
    std::int64_t deadline = 0;   ///< Unix time before which to save and stop; 0: none
    Period checkpoint_every{Period::Unit::epochs, 1};  ///< one is always written at the end
    int keep_checkpoints = 3;                          ///< newest ones that stay
    Period evaluate_every{Period::Unit::epochs, 1};    ///< on test_data
    std::string keep_best;        ///< metric whose best checkpoint stays, too; "": none
    std::int64_t early_stop = 0;  ///< evaluations without a better one that end the run; 0: none do
    std::int64_t noise_scale_every = 0;  ///< steps between measurements of it; 0: none
    std::int64_t log_every =
        0;  ///< steps between step lines; 0: one line every 30 s and each epoch
    std::int64_t histograms_every = 0;         ///< steps between those of weights; 0: none
    TraceSteps trace;                          ///< of which each rank keeps a trace; none: no trace
    int io_threads = 0;                        ///< 0: as many as the data needs
    std::uint64_t data_memory = 256u << 20;    ///< bytes of each rank
    std::optional<DataMode> data_mode;         ///< nothing: resident if it fits
    PageCache page_cache = PageCache::keep;    ///< whether the system may keep what was read
    BadData on_bad_data = BadData::fail;       ///< what becomes of damaged samples
    bool accepts_data = false;                 ///< foreign files of other times, if the same
    NonFinite on_nonfinite = NonFinite::stop;  ///< losses and gradients
    bool accepts_other_bits = false;           ///< of a resume on other processors
    bool ledger = false;                       ///< keep a record of every sample trained on
    Transport transport = Transport::automatic;      ///< how gradients travel
    CommThread comm_thread = CommThread::automatic;  ///< the thread that sums them
    LeafMode leaves = LeafMode::automatic;           ///< of this rank
    GraphMode graph = GraphMode::automatic;          ///< of this rank
    bool shares_gpus = false;                        ///< with --device cuda, for trials

    double comm_timeout_s = 600;          ///< a collective that lasts longer ends the job; 0: never
    std::uint32_t flight_entries = 4096;  ///< collectives that each rank's flight record keeps

    bool shows_live = true;     ///< whether stdout is a terminal with a user
    bool keeps_stderr = false;  ///< LogTarget::keeps_stderr

    PlannedGpu gpu;                       ///< of this rank, by the placement; empty: none
    std::vector<std::string> rdma_ports;  ///< "mlx5_0:1", active ones of this rank's node
    std::string rank_table;               ///< placement of the ranks, shown at the start
    std::vector<std::string> warnings;    ///< about that, logged at the start

    std::map<std::string, ConfigEntry> origins;  ///< the value of each option, and its origin
};

/// Whether a run with these is evaluated.
bool has_test_data(const TrainSettings& settings);

/// One row for each setting: how it is read, shown, compared between ranks and kept with the run.
/// Refers to `settings`, whose values are the defaults.
OptionTable setting_table(TrainSettings& settings);

/// Sets one setting by its name and a text, as the command line and run.json have them. Errors:
/// E101 unknown name, E102 and E103 a value that it cannot have.
void set_setting(TrainSettings& settings, const std::string& name, const std::string& text);

/// For settings made by a program: none is out of its range. Errors: E102, E103.
void check_settings(const TrainSettings& settings);

/// The settings that decide a run's bits, as run.json keeps them.
std::vector<NamedValue> deciding_settings(const TrainSettings& settings);

/// Those and all others that ranks must have alike.
std::vector<NamedValue> shared_settings(const TrainSettings& settings);

/// How a call of train_model ended.
enum class TrainEnd { complete, saved_for_requeue, interrupted };

/// Whether a run began with this start.
enum class RunAge { created, resumed };

/// What the effect of a setting depends on besides other settings.
struct EffectFacts {
    std::uint64_t samples = 0;
    std::int64_t total_steps = 0;
    RunAge age = RunAge::created;
};

/// Names of settings that others leave without an effect, given or not.
std::vector<std::string> idle_settings(const TrainSettings& settings);

/// Virtual ranks are settled. One sentence for each given setting without an effect that might be
/// meant so: it came from a file or a variable, which serve other runs, too; or the run exists and
/// must go on with what it was made with. Errors: E107 for any other; E102 a deadline that is no
/// Unix time.
std::vector<std::string> check_effects(const TrainSettings& settings, const EffectFacts& facts);

}  // namespace lockstep
