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

/// The update rule; see update_pieces().
enum class OptimizerKind { adam, adamw, lamb, lars, sgd };

/// Settings of update_pieces().
struct OptimizerSettings {
    OptimizerKind kind = OptimizerKind::adam;  ///< the update rule
    double learning_rate = 1e-3;               ///< before the schedule changes it
    double momentum = 0.9;                     ///< sgd, lars
    bool nesterov = false;                     ///< sgd: looks ahead along the momentum
    double beta1 = 0.9;                        ///< adam, adamw, lamb
    double beta2 = 0.999;                      ///< adam, adamw, lamb
    double epsilon = 1e-8;                     ///< adam, adamw, lamb
    double trust = 1e-3;       ///< lars: trust coefficient of the rate of each tensor
    double weight_decay = 0;   ///< adamw, lamb: decoupled; others: L2 penalty
    double average_decay = 0;  ///< decay of the weights' moving average; 0: none is kept
    std::string rate_factors;  ///< "fc.*=0.1": factors of the learning rate for tensors by name
    bool decays_all = false;   ///< decays biases and norms too
};

/// The schedule of the learning rate after its warm-up; see learning_rate().
enum class ScheduleKind { constant, step, cosine, linear, polynomial, one_cycle };

/// The dependence of the learning rate on the batch size.
enum class RateScale { none, linear, square_root };

/// Settings of the learning rate's schedule.
struct ScheduleSettings {
    ScheduleKind kind = ScheduleKind::constant;  ///< after the warm-up
    std::int64_t warmup_steps = 0;           ///< steps in which the rate grows linearly; 0: none
    Period every{Period::Unit::epochs, 30};  ///< step: interval between multiplications by gamma
    double gamma = 0.1;                      ///< step: factor
    double power = 2;                        ///< polynomial: exponent
    double end = 0;                          ///< the rate at the end, if the schedule has one
    RateScale scale = RateScale::none;       ///< scaling from the reference batch to the run's
    std::int64_t reference_batch = 256;      ///< batch that the given rate is meant for
};

/// Returns true if the rate depends on the length of the run.
bool has_end(ScheduleKind kind);

/// How a program of torch.export is trained. train: it must have been exported for training.
/// as_exported: with the batch norm and dropout that are switched off in it.
enum class ProgramMode { train, as_exported };

/// Settings of make_model().
struct ModelSettings {
    std::string name = "cnn";  ///< one of model_names()
    bool bias = true;          ///< true if layers have biases
    /// "16,32,256": channels of the layers of cnn, cnn-bn and mlp but the last; "": the model's
    /// own.
    std::string channels;
    std::int64_t layers = 0;  ///< layers of gpt; 0: the model's own number
    std::int64_t heads = 0;   ///< heads of each attention of gpt; 0: the model's own number
    std::int64_t width = 0;   ///< width of gpt, or of unet's first level; 0: the model's own
    std::string output;       ///< the output of a program that is used; "": all
    ProgramMode program_mode = ProgramMode::train;
};

/// The meaning of a model's outputs; see make_task(). automatic: decided by the data's fields.
enum class TaskKind {
    automatic,
    classification,
    multi_label,
    regression,
    segmentation,
    next_token,
    program,  ///< a program of torch.export computes its own loss
};

/// The distance between a predicted number and the true one; see make_task().
enum class RegressionLoss { mse, mae, huber };

/// Settings of make_task().
struct TaskSettings {
    TaskKind kind = TaskKind::automatic;        ///< what the model learns
    RegressionLoss loss = RegressionLoss::mse;  ///< loss of regression
    double huber_delta = 1;                     ///< error above which Huber's loss is linear
    bool scales_targets = false;                ///< regression learns (target - mean) / deviation
    double label_smoothing = 0;                 ///< label smoothing of classes, 0 to 1
    std::string class_weights = "none";         ///< "none", "balanced" or "W0,W1,..."
    std::int64_t ignore_index = -1;             ///< class of masks that does not count; -1: none
};

/// Handling of a step whose loss or gradient is not finite.
enum class NonFinite {
    stop,  ///< a loss that is not finite ends the run
    skip,  ///< the step changes nothing
    /// The step is skipped, and training continues from the weights of the last due checkpoint.
    rollback,
};

/// The number format of operators that gain by it. tf32: factors of matrix products and
/// convolutions on GPUs. bf16, fp16: those that torch.autocast chooses (attention, too). automatic:
/// tf32 if all ranks' GPUs have it, else fp32. Parameters, gradients, sums and optimizers are
/// always fp32.
enum class Precision { automatic, fp32, tf32, bf16, fp16 };

/// Returns true if operators compute on copies of 16 bits.
constexpr bool has_16_bits(Precision precision) {
    return precision == Precision::bf16 || precision == Precision::fp16;
}

/// Saving beside the steps that follow, or between two steps.
enum class CheckpointMode { overlapped, blocking };

/// The device of the ranks. automatic: GPUs, if every rank has its own that LibTorch can use.
enum class DeviceKind { automatic, cpu, cuda };

/// Use of a separate thread that sums gradients. automatic: if the rank has a core for it.
enum class CommThread { automatic, on, off };

/// How a rank computes its leaves. automatic: together if a trial shows that no bit differs, else
/// one by one. together: an error if a bit differs.
enum class LeafMode { automatic, together, one_by_one };

/// Recording and replay of a GPU's leaves. automatic: leaves whose gradients no other rank waits
/// for, if a rehearsal shows equal bits and less time.
enum class GraphMode { automatic, on, off };

/// Checkpoints that a run keeps: --keep.
struct KeepSettings {
    int last = 3;               ///< number of the newest
    Period every;               ///< epochs or steps; of each the first one stays for good
    std::optional<int> best{};  ///< number of the best; nothing: 1 with --keep-best, else 0
};

/// Settings of `lockstep train`. If a comment says "decides", another value gives other bits.
/// setting_table() defines the possible values.
struct TrainSettings {
    fs::path data;            ///< training data set; its digest decides
    std::string fields;       ///< fields of foreign HDF5: "NAME=PATH,..."; "": packed shards
    fs::path test_data;       ///< evaluated after epochs; may be empty
    std::string test_fields;  ///< fields of foreign test data if they differ from `fields`; without
                              ///< test_data: of `data`
    bool follows_links = false;  ///< for foreign files, test data included
    fs::path run;                ///< run directory

    TaskSettings task;   ///< decides
    std::string inputs;  ///< "images,age": the model's input fields; "": the first; decides
    /// Safetensors with the initial weights of a new run; "": random weights of the seed. Its
    /// digest decides.
    fs::path load_weights;
    std::string load_skip;    ///< "fc.*,head.*": names that keep the seed's weights; decides
    std::string load_prefix;  ///< "module.": prefix removed from the file's names; decides
    std::string from;         ///< "RUN@best": run that a new run begins with, see run_source(); the
                              ///< hash of its checkpoint decides
    std::string freeze;       ///< "features.*": parameters that are not trained; decides

    ModelSettings model;          ///< decides
    OptimizerSettings optimizer;  ///< decides
    ScheduleSettings schedule;    ///< decides
    std::int64_t batch = 128;     ///< global batch; decides
    std::uint64_t seed = 1;       ///< decides
    int virtual_ranks = 0;        ///< V; 0: chosen by default_virtual_ranks(); decides
    int threads = 1;              ///< intra-op threads of each rank; decides
    /// Nothing: the lowest level among the ranks; decides.
    std::optional<InstructionSet> instruction_set;
    DeviceKind device = DeviceKind::automatic;   ///< decides
    Precision precision = Precision::automatic;  ///< decides
    double loss_scale = 65536;                   ///< initial scale with fp16; decides
    OrderKind order = OrderKind::lanes;          ///< uniform needs resident data; decides
    double split = 0;  ///< share to train on, the rest is test data; 0: train on all; decides
    bool drops_last = false;  ///< leaves out an epoch's last step if it is short; decides
    /// "auto", "none", "required", "dataset", FIELD=MEAN/DEVIATION,... or a file.
    std::string normalise = "auto";
    std::string transform = "none";  ///< text or preset, see TransformPipeline; decides
    int lanes = 64;                  ///< G; decides
    int window_blocks = 5;           ///< K; decides
    bool plain_summation = false;    ///< negative control; decides
    int micro_batches = 1;           ///< number of parts in which a leaf is computed; decides
    double clip_norm = 0;            ///< largest norm of the gradient; 0: no limit; decides

    std::int64_t epochs = 1;     ///< passes over the data
    std::int64_t max_steps = 0;  ///< 0: epochs decides
    std::int64_t deadline = 0;   ///< Unix time before which to save and stop; 0: none
    Period checkpoint_every{Period::Unit::epochs, 1};  ///< one is always written at the end
    double mtbf_s = 0;  ///< mean time between failures; 0: as this run's starts had it
    double checkpoint_overhead = 0.01;  ///< largest share of time for saves of an automatic period
    CheckpointMode checkpoint_mode = CheckpointMode::overlapped;  ///< bits are the same
    KeepSettings keep;                                            ///< checkpoints that stay
    Period evaluate_every{Period::Unit::epochs, 1};               ///< evaluations on test_data
    std::string keep_best;        ///< metric that says which evaluation is the best; "": loss
    std::int64_t early_stop = 0;  ///< evaluations without improvement that end the run; 0: off
    std::int64_t noise_scale_every = 0;  ///< steps between measurements of the noise scale; 0: none
    std::int64_t log_every = 0;          ///< steps between step lines; 0: every 30 s and each epoch
    std::int64_t histograms_every = 0;   ///< steps between histograms of weights; 0: none
    TraceSteps trace;                    ///< steps of which each rank keeps a trace; none: no trace
    int io_threads = 0;                  ///< 0: as many as the data needs
    std::uint64_t data_memory = 256u << 20;  ///< bytes of each rank
    std::optional<DataMode> data_mode;       ///< nothing: resident if it fits
    PageCache page_cache = PageCache::keep;  ///< rule for the cache of read pages
    BadData on_bad_data = BadData::fail;     ///< handling of damaged samples
    bool accepts_data = false;  ///< accepts foreign files with other file times and equal content
    NonFinite on_nonfinite =
        NonFinite::stop;              ///< handling of losses and gradients that are not finite
    bool accepts_other_bits = false;  ///< allows a resume on other processors
    bool ledger = false;              ///< keep a record of every sample trained on
    Transport transport = Transport::automatic;      ///< how gradients travel
    std::optional<ShardState> shard_state;           ///< nothing: all, if the optimizer has state
    CommThread comm_thread = CommThread::automatic;  ///< the thread that sums them
    LeafMode leaves = LeafMode::automatic;           ///< how this rank computes its leaves
    GraphMode graph = GraphMode::automatic;          ///< recording of this rank's leaves
    bool shares_gpus = false;                        ///< allowed with --device cuda, for trials

    double comm_timeout_s = 600;          ///< a longer collective ends the job; 0: no limit
    std::uint32_t flight_entries = 4096;  ///< collectives that each rank's flight record keeps

    bool shows_live = true;     ///< true if stdout is a terminal with a user
    bool keeps_stderr = false;  ///< LogTarget::keeps_stderr

    PlannedGpu gpu;                       ///< GPU of this rank by the placement; empty: none
    std::vector<std::string> rdma_ports;  ///< active ports of this rank's node: "mlx5_0:1"
    std::string rank_table;               ///< placement of the ranks, shown at the start
    std::vector<std::string> warnings;    ///< warnings about the placement, logged at the start

    std::map<std::string, ConfigEntry> origins;  ///< the value of each option, and its origin
};

/// Makes --keep: the parts last=N, every=PERIOD and best=N, with commas between. Errors of its
/// assign(): E103.
Option keep_option(KeepSettings& target);

/// Returns true if a run with these settings is evaluated.
bool has_test_data(const TrainSettings& settings);

/// Returns true if saves of a run with these settings take a copy, to go on beside the steps.
bool saves_beside_steps(const TrainSettings& settings);

/// Returns one row for each setting: how it is read, shown, compared between ranks and kept with
/// the run. The rows refer to `settings`, whose values are the defaults.
OptionTable setting_table(TrainSettings& settings);

/// Sets one setting by its name and a text in the form of the command line and run.json. Errors:
/// E101 unknown name, E102 and E103 an invalid value.
void set_setting(TrainSettings& settings, const std::string& name, const std::string& text);

/// Checks that all settings of a program are in their ranges. Errors: E102, E103.
void check_settings(const TrainSettings& settings);

/// Returns the settings that decide a run's bits, as run.json keeps them.
std::vector<NamedValue> deciding_settings(const TrainSettings& settings);

/// Returns those and all others that ranks must have alike.
std::vector<NamedValue> shared_settings(const TrainSettings& settings);

/// The end of a call of train_model().
enum class TrainEnd { complete, saved_for_requeue, interrupted };

/// Tells whether the run began with this start.
enum class RunAge { created, resumed };

/// Facts besides other settings that decide whether a setting has an effect.
struct EffectFacts {
    std::uint64_t samples = 0;
    std::int64_t total_steps = 0;
    RunAge age = RunAge::created;
};

/// Returns the names of settings that others make ineffective, given or not.
std::vector<std::string> idle_settings(const TrainSettings& settings);

/// Checks the given settings for effects, once V is known. Returns one sentence for each
/// ineffective setting that may be intended: it came from a file or a variable, which serve other
/// runs too, or the existing run was made with it. Errors: E107 for any other ineffective setting;
/// E102 a deadline that is no Unix time.
std::vector<std::string> check_effects(const TrainSettings& settings, const EffectFacts& facts);

/// Returns true if `normalise` asks for mean and deviation that the data need not have: those of a
/// pass of the data, or of a file.
bool brings_statistics(const std::string& normalise);

}  // namespace lockstep
