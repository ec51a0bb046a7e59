// SPDX-License-Identifier: Apache-2.0
/// @file
/// Everything a training run can be told, as plain values.
#pragma once

#include "lockstep/core/config.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep {

/// "500steps", "1epoch", "10m": how often something happens. never: not at all.
struct Period {
    /// What is counted.
    enum class Unit { never, steps, epochs, seconds };
    Unit unit = Unit::never;
    std::int64_t count = 0;
    bool operator==(const Period&) const = default;
};

/// What make_optimizer() is told.
struct OptimizerSettings {
    std::string name = "adam";  ///< "adam", "adamw" or "sgd"
    double learning_rate = 1e-3;
    double momentum = 0.9;  ///< sgd
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    double weight_decay = 0;
};

/// How the learning rate changes; see learning_rate().
struct ScheduleSettings {
    std::string name = "constant";  ///< "constant" or "cosine"
    std::int64_t warmup_steps = 0;
};

/// What make_model() is told.
struct ModelSettings {
    std::string name = "cnn";
    bool bias = true;
};

/// Settings of `lockstep train`. Where a comment says "decides", another value gives other bits.
struct TrainSettings {
    std::filesystem::path data;       ///< training data set; its digest decides
    std::string fields;               ///< of foreign HDF5: "NAME=PATH,..."; "": packed shards
    std::filesystem::path test_data;  ///< evaluated after epochs; may be empty
    std::filesystem::path run;        ///< run directory

    ModelSettings model;             ///< decides
    OptimizerSettings optimizer;     ///< decides
    ScheduleSettings schedule;       ///< decides
    std::int64_t batch = 128;        ///< global batch; decides
    std::uint64_t seed = 1;          ///< decides
    int virtual_ranks = 0;           ///< V; 0: ranks at creation, rounded up to 2^k; decides
    int threads = 1;                 ///< intra-op threads of each rank; decides
    std::string instruction_set;     ///< "": the least among the ranks; decides
    std::string order = "lanes";     ///< or "uniform", of resident data; decides
    std::string transform = "none";  ///< text or preset, see TransformPipeline; decides
    int lanes = 64;                  ///< G; decides
    int window_blocks = 5;           ///< K; decides
    bool plain_summation = false;    ///< negative control; decides
    int micro_batches = 1;           ///< a leaf is computed in so many parts; decides
    std::string wire = "f32";  ///< WireFormat by name; others than f32 are plain only; decides
    int powersgd_rank = 4;     ///< of the wire format "powersgd"; decides
    double clip_norm = 0;      ///< largest norm of the gradient; 0: any; decides

    std::int64_t epochs = 1;
    std::int64_t max_steps = 0;  ///< 0: epochs decides
    std::int64_t deadline = 0;   ///< Unix time before which to save and stop; 0: none
    Period checkpoint_every{Period::Unit::epochs, 1};
    int keep_checkpoints = 3;
    Period evaluate_every{Period::Unit::epochs, 1};
    std::int64_t log_every =
        0;               ///< steps between step lines; 0: one line every 30 s and each epoch
    int io_threads = 0;  ///< 0: as many as the data needs
    std::uint64_t data_memory = 256u << 20;  ///< bytes of each rank
    std::string data_mode = "auto";          ///< "auto", "stream" or "resident"
    std::string page_cache = "keep";         ///< or "drop"
    std::string on_bad_data = "fail";        ///< or "mask"
    bool ledger = false;                     ///< keep a record of every sample trained on
    std::string transport = "auto";          ///< "auto", "shared-memory", "hierarchical", "mpi"
    std::string comm_thread = "auto";        ///< "auto", "on" or "off"

    double comm_timeout_s = 600;          ///< a collective that lasts longer ends the job; 0: never
    std::uint32_t flight_entries = 4096;  ///< collectives that each rank's flight record keeps

    bool shows_live = true;  ///< whether stdout is a terminal that a person looks at

    std::string rank_table;             ///< who runs where, shown at the start
    std::vector<std::string> warnings;  ///< about that, logged at the start

    std::map<std::string, ConfigEntry> origins;  ///< what was given for each option, and where
};

/// The settings that decide a run's bits, as they are kept in run.json.
nlohmann::ordered_json deciding_settings(const TrainSettings& settings,
                                         const std::string& data_digest);

/// How a call of train_model ended.
enum class TrainEnd { complete, saved_for_requeue, interrupted };

}  // namespace lockstep
