// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/plan/settings.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::int64_t many = 1'000'000'000'000;

// All rows of a section have its scope.
OptionSection scoped(OptionScope scope, OptionSection section) {
    for (Option& option : section.options) option.scope = scope;
    return section;
}

Option shared(Option option) {
    return with_scope(OptionScope::shared, std::move(option));
}

std::string share_text(double share) {
    return share > 0 ? fmt::format("{}", share) : "none";
}

// A share above 0 and below 1: there is something on either side.
Option split_option(double& share) {
    const auto assign = [&share](const GivenValue& given) {
        const auto number = parse_real(given.text);
        check(given.text == "none" || (number && *number > 0 && *number < 1),
              "E103",
              fmt::format("--split is '{}' (from {})", given.text, given.origin),
              "it must be a number above 0 and below 1, or none",
              "for example --split 0.9 trains on nine samples of ten");
        share = number.value_or(0);
    };
    return {.name = "split",
            .value = "SHARE",
            .default_value = share_text(share),
            .help =
                "share of the samples to train on, such as 0.9; the others are test data; a hash "
                "of a sample's number decides; none: train on all",
            .assign = assign,
            .current = [&share]() -> ConfigValue { return share_text(share); }};
}

OptionSection where(TrainSettings& s) {
    return {
        "Where",
        {data_option("data",
                     s.data,
                     "training data: a data set made by 'lockstep data pack', or, with --field, a "
                     "file, folder or pattern of other HDF5 files"),
         shared(field_option("field",
                             s.fields,
                             "field in HDF5 files that others wrote, such as images=/x/data:CHW")),
         shared(links_option(s.follows_links)),
         shared(data_option("test-data", s.test_data, "data to evaluate on, like --data")),
         shared(field_option("test-field",
                             s.test_fields,
                             "field of --test-data; unset: the one of --field; without "
                             "--test-data: field of --data")),
         shared(path_option("run DIR", s.run, "run directory; an existing run is resumed")),
         path_option(
             "load-weights FILE",
             s.load_weights,
             "initial weights of a new run: a safetensors file, the index of several, or .npz"),
         text_option("from RUN[@best|@STEP]",
                     s.from,
                     "run whose weights and settings a new --run begins with, and whose optimizer "
                     "state if the optimizer is the same"),
         list_option("load-skip GLOB",
                     s.load_skip,
                     "tensors that --load-weights or --from does not load, such as 'fc.*'"),
         text_option("load-prefix PREFIX",
                     s.load_prefix,
                     "prefix that --load-weights removes from the file's names, such as module.")}};
}

std::vector<Option> task(TrainSettings& s) {
    return {
        enum_option(
            "task auto|classification|multi-label|regression|segmentation|next-token|program",
            s.task.kind,
            "task to train; auto: chosen by the data's fields; program: FILE.pt2 or "
            "FILE.so returns the loss of each sample"),
        list_option("inputs FIELD",
                    s.inputs,
                    "input field of the model; several are passed in this order; unset: the first "
                    "one found of images, features and tokens"),
        enum_option("loss mse|mae|huber", s.task.loss, "loss function of regression"),
        real_option("huber-delta",
                    s.task.huber_delta,
                    {1e-30, 1e30},
                    "error above which --loss huber is linear"),
        flag_option("scale-targets",
                    s.task.scales_targets,
                    "learn targets of regression reduced to mean 0 and deviation 1; metrics and "
                    "predictions keep their units"),
        real_option("label-smoothing",
                    s.task.label_smoothing,
                    {0, 1},
                    "share of the target probability that is spread over all classes"),
        text_option(
            "class-weights W0,W1,...",
            s.task.class_weights,
            "weight of each class in the loss; balanced: rare classes weigh more; none: all equal"),
        whole_option("ignore-index",
                     s.task.ignore_index,
                     {-1, 1 << 20},
                     "class of masks that counts in no loss and no metric, such as 255; -1: none")};
}

std::vector<Option> model(TrainSettings& s) {
    return {
        text_option("model NAME",
                    s.model.name,
                    "built-in ('lockstep models'), plug-in (FILE.so), program of torch.export "
                    "(FILE.pt2) or TorchScript (FILE.pt, deprecated)"),
        text_option("output NAME",
                    s.model.output,
                    "output of --model FILE.pt2 or FILE.so that is used; unset: the only one, or "
                    "all with --task program"),
        enum_option("model-mode train|as-exported",
                    s.model.program_mode,
                    "mode of --model FILE.pt2; as-exported: one that was exported for evaluation "
                    "learns with batch norm and dropout switched off"),
        unset_flag_option("no-bias", s.model.bias, "use layers without bias"),
        list_option("channels N[,N]",
                    s.model.channels,
                    "channels of each layer but the last; unset: 32,64,512 for cnn and cnn-bn, 256 "
                    "for mlp"),
        whole_option("layers", s.model.layers, {0, 1024}, "number of gpt layers; 0: 6"),
        whole_option("heads", s.model.heads, {0, 1024}, "attention heads of each gpt layer; 0: 6"),
        whole_option("width",
                     s.model.width,
                     {0, 1 << 20},
                     "width of gpt, 0: 384; or channels of the first level of unet, 0: 64")};
}

std::vector<Option> update_rule(OptimizerSettings& s) {
    return {enum_option("optimizer adam|adamw|lamb|lars|sgd", s.kind, "update rule"),
            real_option("lr", s.learning_rate, {0, 1e6}, "learning rate"),
            list_option("lr-group GLOB=FACTOR",
                        s.rate_factors,
                        "factor of the learning rate of tensors such as 'features.*'; if several "
                        "match, the last one holds"),
            real_option("momentum", s.momentum, {0, 1}, "momentum of sgd and lars"),
            flag_option("nesterov", s.nesterov, "use Nesterov momentum with sgd"),
            real_option("beta1", s.beta1, {0, 0.999999}, "beta1 of adam, adamw and lamb"),
            real_option("beta2", s.beta2, {0, 0.9999999}, "beta2 of adam, adamw and lamb"),
            real_option("epsilon", s.epsilon, {1e-30, 1}, "epsilon of adam, adamw and lamb"),
            real_option("trust", s.trust, {0, 1e6}, "trust coefficient of lars"),
            real_option("weight-decay",
                        s.weight_decay,
                        {0, 1e6},
                        "L2 penalty with adam, lars and sgd; decoupled decay with adamw and lamb"),
            real_option("ema",
                        s.average_decay,
                        {0, 0.9999999},
                        "decay of the weights' moving average, which evaluation uses; 0: none"),
            flag_option("decay-all",
                        s.decays_all,
                        "with adamw, lamb and lars: apply weight decay and rates per tensor also "
                        "to biases and norms (tensors of one dimension)")};
}

std::vector<Option> schedule(ScheduleSettings& s) {
    return {enum_option("schedule constant|step|cosine|linear|polynomial|one-cycle",
                        s.kind,
                        "learning rate schedule after the warm-up"),
            whole_option("warmup-steps", s.warmup_steps, {0, 1 << 30}, "steps of linear warm-up"),
            period_option("lr-every",
                          s.every,
                          "period after which --schedule step multiplies the rate by --lr-gamma: "
                          "30epochs, 5000steps"),
            real_option("lr-gamma", s.gamma, {0, 1}, "factor of --schedule step"),
            real_option("lr-power", s.power, {0.01, 100}, "exponent of --schedule polynomial"),
            enum_option("lr-scale none|linear|sqrt",
                        s.scale,
                        "multiply --lr by --batch / --reference-batch, or by its square root"),
            whole_option("reference-batch",
                         s.reference_batch,
                         {1, 1 << 24},
                         "batch that --lr is meant for; --lr-scale uses it"),
            real_option("lr-end",
                        s.end,
                        {0, 1e6},
                        "final learning rate of cosine, linear, polynomial and one-cycle")};
}

std::vector<Option> step(TrainSettings& s) {
    return {
        real_option("clip-norm",
                    s.clip_norm,
                    {0, 1e30},
                    "largest norm of the gradient; larger gradients are scaled down; 0: no limit"),
        list_option("freeze GLOB", s.freeze, "parameters that do not learn, such as 'features.*'"),
        whole_option(
            "batch", s.batch, {1, 1 << 24}, "global batch: samples per step over all ranks"),
        whole_option(
            "seed", s.seed, {0, many}, "seed of initial weights, sample order and dropout")};
}

OptionSection section_of(const std::string& title, const std::vector<std::vector<Option>>& parts) {
    OptionSection section{title, {}};
    for (const auto& part : parts)
        section.options.insert(section.options.end(), part.begin(), part.end());
    return section;
}

std::vector<Option> numerics(TrainSettings& s) {
    return {
        whole_option("virtual-ranks",
                     s.virtual_ranks,
                     {0, 65536},
                     "V, a power of two: the run gives the same bits on 1 to V ranks; 0: at least "
                     "the ranks at creation, up to 64 if that costs little"),
        whole_option(
            "threads", s.threads, {1, 1024}, "threads that one operator uses in each rank"),
        choice_option(
            "isa",
            s.instruction_set,
            {{"default", InstructionSet::basic},
             {"avx2", InstructionSet::avx2},
             {"avx512", InstructionSet::avx512},
             {"avx512-bf16", InstructionSet::avx512_bf16},
             {"amx", InstructionSet::amx}},
            "instruction set; unset: the best that all ranks have, at most avx512 for fp32"),
        enum_option("device auto|cpu|cuda",
                    s.device,
                    "device of the ranks; auto: cuda if each has a GPU that LibTorch can use"),
        enum_option(
            "precision auto|fp32|tf32|bf16|fp16",
            s.precision,
            "precision of matrix products and convolutions; weights, gradients and updates are "
            "fp32; auto: tf32 on GPUs of compute capability 8.0 and above, else fp32"),
        real_option("loss-scale",
                    s.loss_scale,
                    {1, 1 << 30},
                    "initial loss scale of fp16, a power of two; halved after an overflow, doubled "
                    "after 2,000 steps without one")};
}

std::vector<Option> sample_order(TrainSettings& s) {
    return {
        enum_option("order lanes|uniform",
                    s.order,
                    "order of samples; lanes: permuted blocks; uniform: one permutation of all "
                    "samples, for data in memory"),
        text_option(
            "normalise HOW",
            s.normalise,
            "auto: inputs are normalised by the mean and deviation that the data have; none: they "
            "stay as stored; required: it is an error if an input has none; dataset: one pass of "
            "the training data finds what they lack; FIELD=MEAN/DEVIATION for each field, with "
            "commas between; or a file that has them: a run's data.json, or a manifest.json"),
        text_option("transform LIST",
                    s.transform,
                    "image transforms, such as 'crop 32 pad 4, flip', or a preset: none, cifar, "
                    "book; see docs/data.md"),
        flag_option("drop-last",
                    s.drops_last,
                    "leave out the samples of an epoch that do not fill its last batch"),
        split_option(s.split),
        whole_option("lanes", s.lanes, {1, 65536}, "lanes of the shuffled order"),
        whole_option("window-blocks", s.window_blocks, {1, 65536}, "blocks shuffled together")};
}

std::vector<Option> summation(TrainSettings& s) {
    return {whole_option("micro-batches",
                         s.micro_batches,
                         {1, 65536},
                         "accumulate the gradient of each virtual rank over N parts of its "
                         "samples, to save memory"),
            flag_option("plain",
                        s.plain_summation,
                        "sum gradients in an order that depends on the number of ranks: ordinary "
                        "training, bits are NOT invariant")};
}

// Makes the option for traced steps.
Option trace_option(TraceSteps& steps) {
    return {.name = "trace",
            .value = "steps=A-B",
            .default_value = trace_steps_text(steps),
            .help = "steps that each rank records for 'trace merge'; none: no trace",
            .assign = [&steps](const GivenValue& given) { steps = parse_trace_steps(given); },
            .current = [&steps]() -> ConfigValue { return trace_steps_text(steps); }};
}

std::vector<Option> saving(TrainSettings& s) {
    return {shared(period_option(
                "checkpoint-every",
                s.checkpoint_every,
                "period between checkpoints: 500steps, 1epoch, 10m, never, or auto: by what saves "
                "cost and --mtbf; the end of the run always writes one")),
            duration_option("mtbf",
                            s.mtbf_s,
                            "mean time between failures, for --checkpoint-every auto; 0: that of "
                            "the run's own starts, 24h for the first one"),
            real_option("checkpoint-overhead",
                        s.checkpoint_overhead,
                        {1e-5, 0.5},
                        "largest share of time that saves of --checkpoint-every auto may cost"),
            shared(enum_option("checkpoint-mode overlapped|blocking",
                               s.checkpoint_mode,
                               "write checkpoints beside the steps that follow, from a copy in "
                               "memory, or between two steps")),
            shared(keep_option(s.keep))};
}

std::vector<Option> looking(TrainSettings& s) {
    return {
        shared(period_option("evaluate-every",
                             s.evaluate_every,
                             "period between evaluations: 500steps, 1epoch or never")),
        shared(text_option(
            "keep-best METRIC",
            s.keep_best,
            "keep the checkpoint with the best value of this metric, or of --keep best=N; loss, "
            "accuracy, r2, ...; kl:min, score:max: a metric of --task program")),
        shared(whole_option("early-stop",
                            s.early_stop,
                            {0, 1'000'000},
                            "stop after N evaluations without a better --keep-best metric (unset: "
                            "loss); 0: never")),
        shared(enum_option(
            "on-nonfinite stop|skip|rollback",
            s.on_nonfinite,
            "if loss or gradient is not finite: stop (loss only); skip such steps, at most 100 in "
            "a row; or rollback: skip, and return to the weights of the last --checkpoint-every")),
        shared(steps_option("noise-scale-every",
                            s.noise_scale_every,
                            "steps between estimates of the gradient noise scale, the largest "
                            "useful batch; 0: none")),
        shared(steps_option(
            "log-every", s.log_every, "steps between step lines; 0: every 30 s and each epoch")),
        shared(
            steps_option("histograms-every",
                         s.histograms_every,
                         "steps between TensorBoard histograms of each layer's weights; 0: none")),
        shared(trace_option(s.trace))};
}

OptionSection how_long(TrainSettings& s) {
    OptionSection section{
        "How long, how often",
        {with_scope(OptionScope::decides_length,
                    whole_option("epochs", s.epochs, {1, 1'000'000}, "passes over the data")),
         with_scope(
             OptionScope::decides_length,
             whole_option(
                 "max-steps", s.max_steps, {0, many}, "stop after N steps; 0: --epochs decides")),
         whole_option("deadline",
                      s.deadline,
                      {0, many},
                      "Unix time before which to save and stop (exit code 75); 'lockstep slurm "
                      "prolog' prints it; 0: none")}};
    for (const auto& more : {saving(s), looking(s)})
        section.options.insert(section.options.end(), more.begin(), more.end());
    return section;
}

std::vector<Option> communication(TrainSettings& s) {
    return {
        shared(
            enum_option("transport auto|shared-memory|hierarchical|mpi",
                        s.transport,
                        "how ranks exchange gradients; auto: the best for the nodes and devices")),
        shared(choice_option(
            "shard-state",
            s.shard_state,
            {{"auto", {}}, {"node", ShardState::node}, {"all", ShardState::all}},
            "keep the optimizer's state once on each node, or once in all: each of N nodes then "
            "needs 1/N of it, and weights travel after the update; auto: all if there is state")),
        enum_option("comm-thread auto|on|off",
                    s.comm_thread,
                    "sum gradients on a separate thread; auto: if the rank has a core for it"),
        enum_option("leaves auto|together|one-by-one",
                    s.leaves,
                    "compute a rank's leaves in one pass; auto: if a test before training shows "
                    "the same bits"),
        enum_option(
            "graph auto|on|off",
            s.graph,
            "replay a leaf's GPU work as a CUDA graph, with the same bits; auto: if that is faster "
            "and no other rank waits for its gradients"),
        shared(flag_option("share-gpu",
                           s.shares_gpus,
                           "with --device cuda: let ranks of a node share a GPU, to test bits; "
                           "slow, as NCCL then uses sockets")),
        shared(flag_option("accept-other-bits",
                           s.accepts_other_bits,
                           "resume although these processors compute other bits than before")),
        shared(duration_option("comm-timeout",
                               s.comm_timeout_s,
                               "longest time that a rank waits for others before it ends the job "
                               "and names them; it warns after a tenth; 0: no limit")),
        whole_option("flight-entries",
                     s.flight_entries,
                     {64, 1 << 20},
                     "collectives that each rank's flight record keeps for 'diagnose'")};
}

std::vector<Option> reading(TrainSettings& s) {
    return {
        whole_option("io-threads",
                     s.io_threads,
                     {0, 256},
                     "threads of each rank that read data; 0: as many as needed"),
        bytes_option(
            "data-memory",
            s.data_memory,
            "memory of each rank for data; data that fit the node's ranks together stay in memory"),
        choice_option(
            "data-mode",
            s.data_mode,
            {{"auto", {}}, {"stream", DataMode::stream}, {"resident", DataMode::resident}},
            "stream data from files, or keep them resident in memory that the node shares; auto: "
            "resident if they fit"),
        enum_option("page-cache keep|drop",
                    s.page_cache,
                    "keep or drop pages of data that were read in the system's page cache"),
        shared(enum_option("on-bad-data fail|mask",
                           s.on_bad_data,
                           "with damaged samples: fail, or mask them, so that they do not count")),
        shared(flag_option("accept-data",
                           s.accepts_data,
                           "if files of --field have other names or times than in the run: compare "
                           "all samples and continue if they are equal; a new run keeps the hashes "
                           "for that, also above 1 GiB")),
        shared(flag_option(
            "ledger", s.ledger, "record every sample that is trained on, for 'data ledger'"))};
}

}  // namespace

OptionTable setting_table(TrainSettings& s) {
    return {
        where(s),
        scoped(OptionScope::decides,
               section_of(
                   "Task, model and optimizer (fixed when a run is created)",
                   {task(s), model(s), update_rule(s.optimizer), schedule(s.schedule), step(s)})),
        scoped(OptionScope::decides,
               section_of("What the bits depend on (fixed when a run is created)",
                          {numerics(s), sample_order(s), summation(s)})),
        how_long(s),
        section_of("Ranks and resources (free to change on resume)",
                   {communication(s), reading(s)})};
}

}  // namespace lockstep
