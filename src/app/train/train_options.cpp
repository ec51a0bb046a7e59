// SPDX-License-Identifier: Apache-2.0
#include "train/train_options.hpp"

#include "lockstep/core/log.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::int64_t many = 1'000'000'000'000;

OptionSection where(TrainOptions& options) {
    TrainSettings& s = options.settings;
    return {"Where",
            {path_option("data", "DIR", s.data, "training data set, made by 'lockstep data pack'"),
             list_option("field",
                         "NAME=PATH",
                         s.fields,
                         "field in HDF5 files that others wrote, e.g. images=/x/data:CHW; "
                         "--data is then a file, a folder or a pattern"),
             path_option("test-data", "DIR", s.test_data, "data set to evaluate on"),
             path_option("run", "DIR", s.run, "run directory; an existing run is resumed"),
             path_option("config",
                         "FILE",
                         options.config,
                         "TOML file with any of these options as 'name = value'")}};
}

OptionSection what(TrainOptions& options) {
    TrainSettings& s = options.settings;
    return {
        "Model and optimizer (fixed when a run is created)",
        {text_option("model", "NAME", s.model.name, "cnn, cnn-bn or mlp"),
         unset_flag_option("no-bias", s.model.bias, "layers without bias"),
         choice_option("optimizer", s.optimizer.name, {"adam", "adamw", "sgd"}, "update rule"),
         real_option("lr", s.optimizer.learning_rate, 0, 1e6, "learning rate"),
         real_option("momentum", s.optimizer.momentum, 0, 1, "of sgd"),
         real_option("beta1", s.optimizer.beta1, 0, 0.999999, "of adam"),
         real_option("beta2", s.optimizer.beta2, 0, 0.9999999, "of adam"),
         real_option("epsilon", s.optimizer.epsilon, 1e-30, 1, "of adam"),
         real_option("weight-decay", s.optimizer.weight_decay, 0, 1e6, "L2 penalty"),
         choice_option("schedule", s.schedule.name, {"constant", "cosine"}, "of the learning rate"),
         real_option("clip-norm",
                     s.clip_norm,
                     0,
                     1e30,
                     "scale the gradient down to this norm where it is larger; 0: never"),
         whole_option("warmup-steps", s.schedule.warmup_steps, 0, many, "steps of linear warm-up"),
         whole_option("batch", s.batch, 1, 1 << 24, "global batch: samples of a step, all ranks"),
         whole_option("seed", s.seed, 0, many, "of weights, order and dropout")}};
}

OptionSection bits(TrainOptions& options) {
    TrainSettings& s = options.settings;
    return {"What the bits depend on (fixed when a run is created)",
            {whole_option("virtual-ranks",
                          s.virtual_ranks,
                          0,
                          65536,
                          "V, a power of two: the run gives the same bits on 1 to V ranks; "
                          "0: the ranks at creation, rounded up"),
             whole_option("threads", s.threads, 1, 1024, "threads that one operator may use"),
             text_option("isa",
                         "NAME",
                         s.instruction_set,
                         "default, avx2 or avx512; unset: the least among the ranks"),
             choice_option("order",
                           s.order,
                           {"lanes", "uniform"},
                           "of samples; uniform: one permutation of all, for data in memory"),
             text_option("transform",
                         "LIST",
                         s.transform,
                         "of images: 'crop 32 pad 4, flip', ... or none, cifar, book; see "
                         "docs/data.md"),
             whole_option("lanes", s.lanes, 1, 65536, "of the shuffled order"),
             whole_option("window-blocks", s.window_blocks, 1, 65536, "blocks shuffled together"),
             whole_option("micro-batches",
                          s.micro_batches,
                          1,
                          65536,
                          "compute each virtual rank's samples in N parts and accumulate: less "
                          "memory"),
             flag_option("plain",
                         s.plain_summation,
                         "sum gradients as ranks come: ordinary training, NOT invariant"),
             choice_option("wire",
                           s.wire,
                           {"f32", "bf16", "fp16", "powersgd"},
                           "with --plain: what gradients travel as between ranks"),
             whole_option("powersgd-rank",
                          s.powersgd_rank,
                          1,
                          1024,
                          "of the matrices that --wire powersgd sends instead of a gradient")}};
}

OptionSection how_long(TrainOptions& options) {
    TrainSettings& s = options.settings;
    return {
        "How long, how often",
        {whole_option("epochs", s.epochs, 1, 1'000'000, "passes over the data"),
         whole_option("max-steps", s.max_steps, 0, many, "stop after N steps; 0: epochs decide"),
         whole_option("deadline",
                      s.deadline,
                      0,
                      many,
                      "Unix time before which to save and stop (exit code 75), as "
                      "'lockstep slurm prolog' tells it; 0: none"),
         period_option("checkpoint-every",
                       s.checkpoint_every,
                       "500steps, 1epoch, 10m or never; one is always written at the end"),
         whole_option("keep-checkpoints", s.keep_checkpoints, 1, 1000, "newest ones to keep"),
         period_option("evaluate-every", s.evaluate_every, "500steps, 1epoch or never"),
         whole_option("log-every",
                      s.log_every,
                      0,
                      many,
                      "steps between step lines; 0: every 30 s and each epoch")}};
}

OptionSection on_what(TrainOptions& options) {
    TrainSettings& s = options.settings;
    return {
        "Ranks and resources (free to change on resume)",
        {whole_option(
             "np", options.np, 0, 65536, "outside mpirun and srun: start N ranks on this machine"),
         text_option("hosts",
                     "HOST:N[,HOST:N]",
                     options.hosts,
                     "outside mpirun and srun: start N ranks on each, over ssh"),
         flag_option("oversubscribe", options.oversubscribe, "allow more ranks than cores"),
         flag_option("dry-run", options.dry_run, "print the mpirun line of --np and stop"),
         path_option(
             "plan", "FILE", options.plan, "stop unless ranks run as 'lockstep map' planned"),
         list_option("skip-checks",
                     "ID[,ID]",
                     options.skip_checks,
                     "checks of 'lockstep doctor' not to make at the start, or all"),
         choice_option("transport",
                       s.transport,
                       {"auto", "shared-memory", "hierarchical", "mpi"},
                       "how gradients travel"),
         choice_option("comm-thread",
                       s.comm_thread,
                       {"auto", "on", "off"},
                       "sum gradients on a thread of its own; auto: if the rank has a core for it"),
         whole_option("io-threads",
                      s.io_threads,
                      0,
                      256,
                      "threads that read data, for each rank; 0: as many as it takes"),
         bytes_option("data-memory",
                      s.data_memory,
                      "for data, each rank; what fits its node's ranks together is kept in memory"),
         choice_option("data-mode",
                       s.data_mode,
                       {"auto", "stream", "resident"},
                       "read as needed, or keep all of it in memory that the node shares"),
         choice_option("page-cache",
                       s.page_cache,
                       {"keep", "drop"},
                       "whether the system may keep what was read"),
         choice_option("on-bad-data",
                       s.on_bad_data,
                       {"fail", "mask"},
                       "damaged samples: stop, or count them as nothing"),
         flag_option("ledger", s.ledger, "record every sample trained on, see 'data ledger'"),
         duration_option("comm-timeout",
                         s.comm_timeout_s,
                         "a rank that waits longer for others ends the job and names them; warns "
                         "after a tenth of it; 0: never"),
         whole_option("flight-entries",
                      s.flight_entries,
                      64,
                      1 << 20,
                      "collectives that each rank's flight record keeps, see 'diagnose'")}};
}

ConfigValue value_of(const std::string& text) {
    return text;
}

}  // namespace

OptionTable train_option_table(TrainOptions& options) {
    return {where(options), what(options), bits(options), how_long(options), on_what(options)};
}

void keep_origins(TrainSettings& settings, const std::vector<ResolvedOption>& resolved) {
    for (const ResolvedOption& option : resolved) {
        settings.origins[option.name] = {value_of(option.text), option.origin};
        for (const GivenValue& weaker : option.overridden)
            if (weaker.text != option.text)
                once(Level::info,
                     "{} = {} ({}) overrides {} ({})",
                     option.name,
                     option.text,
                     option.origin,
                     weaker.text,
                     weaker.origin);
    }
}

}  // namespace lockstep
