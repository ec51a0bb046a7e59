// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/data_words.hpp"
#include "lockstep/train/settings.hpp"

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
    Option option;
    option.name = "split";
    option.value = "SHARE";
    option.default_value = share_text(share);
    option.help =
        "train on about this share of the samples, as 0.9, and test on the others, by a hash of a "
        "sample's number; none: there are no others";
    option.assign = [&share](const GivenValue& given) {
        const auto number = parse_real(given.text);
        check(given.text == "none" || (number && *number > 0 && *number < 1), [&] {
            return Error("E103",
                         fmt::format("--split is '{}' (from {})", given.text, given.origin),
                         "it must be a number above 0 and below 1, or none",
                         "for example --split 0.9 trains on nine samples of ten");
        });
        share = number.value_or(0);
    };
    option.current = [&share]() -> ConfigValue { return share_text(share); };
    return option;
}

OptionSection where(TrainSettings& s) {
    return {"Where",
            {data_option("data",
                         s.data,
                         "training data: a data set made by 'lockstep data pack', or a file, a "
                         "folder or a pattern of HDF5 files that others wrote, with --field"),
             shared(field_option(
                 "field", s.fields, "field in HDF5 files that others wrote: images=/x/data:CHW")),
             shared(links_option(s.follows_links)),
             shared(data_option("test-data", s.test_data, "data to evaluate on, like --data")),
             shared(field_option("test-field",
                                 s.test_fields,
                                 "field of --test-data, where it is not that of --field; without "
                                 "--test-data: of --data")),
             shared(path_option("run", "DIR", s.run, "run directory; an existing run is resumed")),
             path_option("load-weights",
                         "FILE",
                         s.load_weights,
                         "safetensors with the weights that a new run begins with"),
             list_option("load-skip",
                         "GLOB",
                         s.load_skip,
                         "tensors such as 'fc.*' that --load-weights leaves as they are")}};
}

std::vector<Option> task(TrainSettings& s) {
    return {choice_option<TaskKind>("task",
                                    s.task.kind,
                                    {{"auto", TaskKind::automatic},
                                     {"classification", TaskKind::classification},
                                     {"multi-label", TaskKind::multi_label},
                                     {"regression", TaskKind::regression},
                                     {"segmentation", TaskKind::segmentation},
                                     {"next-token", TaskKind::next_token}},
                                    "what is learned; auto: what the data's fields say"),
            list_option("inputs",
                        "FIELD",
                        s.inputs,
                        "field that the model is given, of several in this order; unset: images, "
                        "features or tokens, the first that is there"),
            choice_option<RegressionLoss>("loss",
                                          s.task.loss,
                                          {{"mse", RegressionLoss::mse},
                                           {"mae", RegressionLoss::mae},
                                           {"huber", RegressionLoss::huber}},
                                          "of regression"),
            real_option("huber-delta",
                        s.task.huber_delta,
                        1e-30,
                        1e30,
                        "distance from which --loss huber grows linearly"),
            real_option("label-smoothing",
                        s.task.label_smoothing,
                        0,
                        1,
                        "share of a class's probability that all classes get"),
            text_option("class-weights",
                        "W0,W1,...",
                        s.task.class_weights,
                        "of each class in the loss; balanced: the rarer the more; or none")};
}

std::vector<Option> model(TrainSettings& s) {
    return {text_option("model",
                        "NAME",
                        s.model.name,
                        "one that 'lockstep models' lists, a plug-in (FILE.so), a program of "
                        "torch.export (FILE.pt2) or TorchScript (FILE.pt)"),
            unset_flag_option("no-bias", s.model.bias, "layers without bias"),
            list_option("channels",
                        "N[,N]",
                        s.model.channels,
                        "of each layer but the last: of cnn and cnn-bn, unset 32,64,512; of mlp, "
                        "unset 256"),
            whole_option("layers", s.model.layers, 0, 1024, "of gpt; 0: 6"),
            whole_option("heads", s.model.heads, 0, 1024, "of gpt's attentions; 0: 6"),
            whole_option("width",
                         s.model.width,
                         0,
                         1 << 20,
                         "of gpt, 0: 384; or channels of unet's first level, 0: 64")};
}

std::vector<Option> update_rule(OptimizerSettings& s) {
    return {choice_option<OptimizerKind>("optimizer",
                                         s.kind,
                                         {{"adam", OptimizerKind::adam},
                                          {"adamw", OptimizerKind::adamw},
                                          {"lamb", OptimizerKind::lamb},
                                          {"lars", OptimizerKind::lars},
                                          {"sgd", OptimizerKind::sgd}},
                                         "update rule"),
            real_option("lr", s.learning_rate, 0, 1e6, "learning rate"),
            real_option("momentum", s.momentum, 0, 1, "of sgd and lars"),
            flag_option("nesterov", s.nesterov, "sgd looks ahead along its momentum"),
            real_option("beta1", s.beta1, 0, 0.999999, "of adam, adamw and lamb"),
            real_option("beta2", s.beta2, 0, 0.9999999, "of adam, adamw and lamb"),
            real_option("epsilon", s.epsilon, 1e-30, 1, "of adam, adamw and lamb"),
            real_option("trust", s.trust, 0, 1e6, "coefficient of lars: a tensor's own rate"),
            real_option("weight-decay",
                        s.weight_decay,
                        0,
                        1e6,
                        "L2 penalty of adam, lars and sgd; of adamw and lamb decoupled"),
            real_option("ema",
                        s.average_decay,
                        0,
                        0.9999999,
                        "decay of a moving average of the weights, which evaluation uses; 0: none"),
            flag_option("decay-all",
                        s.decays_all,
                        "adamw, lamb and lars treat biases and norms, tensors of one dimension, "
                        "like all others: with weight decay and with rates of their own")};
}

std::vector<Option> schedule(ScheduleSettings& s) {
    return {choice_option<ScheduleKind>("schedule",
                                        s.kind,
                                        {{"constant", ScheduleKind::constant},
                                         {"step", ScheduleKind::step},
                                         {"cosine", ScheduleKind::cosine},
                                         {"linear", ScheduleKind::linear},
                                         {"polynomial", ScheduleKind::polynomial},
                                         {"one-cycle", ScheduleKind::one_cycle}},
                                        "of the learning rate, after the warm-up"),
            whole_option("warmup-steps", s.warmup_steps, 0, 1 << 30, "steps of linear warm-up"),
            period_option("lr-every",
                          s.every,
                          "--schedule step multiplies the rate by --lr-gamma so often: 30epochs, "
                          "5000steps"),
            real_option("lr-gamma", s.gamma, 0, 1, "of --schedule step"),
            real_option("lr-power", s.power, 0.01, 100, "of --schedule polynomial"),
            choice_option<RateScale>("lr-scale",
                                     s.scale,
                                     {{"none", RateScale::none},
                                      {"linear", RateScale::linear},
                                      {"sqrt", RateScale::square_root}},
                                     "multiply --lr by --batch over --reference-batch, or by its "
                                     "root"),
            whole_option("reference-batch",
                         s.reference_batch,
                         1,
                         1 << 24,
                         "batch that --lr is for, with --lr-scale"),
            real_option("lr-end",
                        s.end,
                        0,
                        1e6,
                        "learning rate at the end of cosine, linear, polynomial and one-cycle")};
}

std::vector<Option> step(TrainSettings& s) {
    return {
        real_option("clip-norm",
                    s.clip_norm,
                    0,
                    1e30,
                    "scale the gradient down to this norm where it is larger; 0: never"),
        whole_option("batch", s.batch, 1, 1 << 24, "global batch: samples of a step, all ranks"),
        whole_option("seed", s.seed, 0, many, "of weights, order and dropout")};
}

OptionSection section_of(const std::string& title, const std::vector<std::vector<Option>>& parts) {
    OptionSection section{title, {}};
    for (const auto& part : parts)
        section.options.insert(section.options.end(), part.begin(), part.end());
    return section;
}

OptionSection what(TrainSettings& s) {
    return section_of("Task, model and optimizer (fixed when a run is created)",
                      {task(s), model(s), update_rule(s.optimizer), schedule(s.schedule), step(s)});
}

std::vector<Option> numerics(TrainSettings& s) {
    return {
        whole_option("virtual-ranks",
                     s.virtual_ranks,
                     0,
                     65536,
                     "V, a power of two: the run gives the same bits on 1 to V ranks; "
                     "0: up to 64 where that costs little, and no fewer than the ranks at "
                     "creation"),
        whole_option("threads", s.threads, 1, 1024, "threads that one operator may use"),
        choice_option<std::optional<InstructionSet>>("isa",
                                                     s.instruction_set,
                                                     {{"default", InstructionSet::basic},
                                                      {"avx2", InstructionSet::avx2},
                                                      {"avx512", InstructionSet::avx512},
                                                      {"avx512-bf16", InstructionSet::avx512_bf16},
                                                      {"amx", InstructionSet::amx}},
                                                     "instructions; unset: the least among the "
                                                     "ranks, for fp32 avx512 at most"),
        choice_option<DeviceKind>(
            "device",
            s.device,
            {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}},
            "what ranks compute on; auto: cuda where each has a GPU that LibTorch can use"),
        choice_option<Precision>(
            "precision",
            s.precision,
            {{"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}},
            "of matrix products and convolutions; weights, gradients and updates are fp32"),
        real_option("loss-scale",
                    s.loss_scale,
                    1,
                    1 << 30,
                    "factor of fp16's loss at the start, a power of two; halved at overflow, "
                    "doubled after 2,000 steps without")};
}

std::vector<Option> sample_order(TrainSettings& s) {
    return {
        choice_option<OrderKind>("order",
                                 s.order,
                                 {{"lanes", OrderKind::lanes}, {"uniform", OrderKind::uniform}},
                                 "of samples; uniform: one permutation of all, for data in memory"),
        text_option("transform",
                    "LIST",
                    s.transform,
                    "of images: 'crop 32 pad 4, flip', ... or none, cifar, book; see "
                    "docs/data.md"),
        flag_option("drop-last",
                    s.drops_last,
                    "an epoch's samples that do not fill a step of --batch are left out"),
        split_option(s.split),
        whole_option("lanes", s.lanes, 1, 65536, "of the shuffled order"),
        whole_option("window-blocks", s.window_blocks, 1, 65536, "blocks shuffled together")};
}

std::vector<Option> summation(TrainSettings& s) {
    return {whole_option("micro-batches",
                         s.micro_batches,
                         1,
                         65536,
                         "compute each virtual rank's samples in N parts and accumulate: less "
                         "memory"),
            flag_option("plain",
                        s.plain_summation,
                        "sum gradients as ranks come: ordinary training, NOT invariant")};
}

OptionSection bits(TrainSettings& s) {
    return section_of("What the bits depend on (fixed when a run is created)",
                      {numerics(s), sample_order(s), summation(s)});
}

// Which steps are traced.
Option trace_option(TraceSteps& steps) {
    Option option;
    option.name = "trace";
    option.value = "steps=A-B";
    option.default_value = trace_steps_text(steps);
    option.help =
        "steps of which each rank keeps a trace, moment by moment, see 'trace merge'; none: no "
        "trace";
    option.assign = [&steps](const GivenValue& given) { steps = parse_trace_steps(given); };
    option.current = [&steps]() -> ConfigValue { return trace_steps_text(steps); };
    return option;
}

OptionSection how_long(TrainSettings& s) {
    return {
        "How long, how often",
        {with_scope(OptionScope::decides_length,
                    whole_option("epochs", s.epochs, 1, 1'000'000, "passes over the data")),
         with_scope(OptionScope::decides_length,
                    whole_option(
                        "max-steps", s.max_steps, 0, many, "stop after N steps; 0: epochs decide")),
         whole_option("deadline",
                      s.deadline,
                      0,
                      many,
                      "Unix time before which to save and stop (exit code 75), as "
                      "'lockstep slurm prolog' tells it; 0: none"),
         shared(period_option("checkpoint-every",
                              s.checkpoint_every,
                              "500steps, 1epoch, 10m or never; one is always written at the end")),
         whole_option("keep-checkpoints", s.keep_checkpoints, 1, 1000, "newest ones to keep"),
         shared(period_option("evaluate-every", s.evaluate_every, "500steps, 1epoch or never")),
         shared(text_option("keep-best",
                            "METRIC",
                            s.keep_best,
                            "keep the checkpoint of the best evaluation, too: loss, accuracy, r2, "
                            "...")),
         shared(whole_option("early-stop",
                             s.early_stop,
                             0,
                             1'000'000,
                             "stop after N evaluations without a better --keep-best, or loss; 0: "
                             "never")),
         shared(choice_option<NonFinite>(
             "on-nonfinite",
             s.on_nonfinite,
             {{"stop", NonFinite::stop},
              {"skip", NonFinite::skip},
              {"rollback", NonFinite::rollback}},
             "a loss that is not finite: stop; or skip such a step, or one whose gradient is not, "
             "100 in a row at most; or go back to the weights of the last --checkpoint-every, "
             "too")),
         shared(whole_option("noise-scale-every",
                             s.noise_scale_every,
                             0,
                             many,
                             "steps between estimates of the gradient noise scale, the largest "
                             "useful batch; 0: none")),
         shared(whole_option("log-every",
                             s.log_every,
                             0,
                             many,
                             "steps between step lines; 0: every 30 s and each epoch")),
         shared(whole_option("histograms-every",
                             s.histograms_every,
                             0,
                             many,
                             "steps between TensorBoard histograms of each layer's weights; 0: "
                             "none")),
         shared(trace_option(s.trace))}};
}

std::vector<Option> communication(TrainSettings& s) {
    return {shared(choice_option<Transport>("transport",
                                            s.transport,
                                            {{"auto", Transport::automatic},
                                             {"shared-memory", Transport::shared_memory},
                                             {"hierarchical", Transport::hierarchical},
                                             {"mpi", Transport::mpi}},
                                            "how gradients travel")),
            choice_option<CommThread>(
                "comm-thread",
                s.comm_thread,
                {{"auto", CommThread::automatic}, {"on", CommThread::on}, {"off", CommThread::off}},
                "sum gradients on a thread of its own; auto: if the rank has a core for it"),
            choice_option<LeafMode>(
                "leaves",
                s.leaves,
                {{"auto", LeafMode::automatic},
                 {"together", LeafMode::together},
                 {"one-by-one", LeafMode::one_by_one}},
                "compute a rank's leaves in one pass, with the same bits; auto: where a rehearsal "
                "shows them"),
            choice_option<GraphMode>(
                "graph",
                s.graph,
                {{"auto", GraphMode::automatic}, {"on", GraphMode::on}, {"off", GraphMode::off}},
                "record a leaf's work for a GPU once and replay it (CUDA graphs), with the same "
                "bits; auto: where that is quicker and no other rank waits for its gradients"),
            shared(flag_option("share-gpu",
                               s.shares_gpus,
                               "with --device cuda: ranks of a node may have one GPU, as a trial "
                               "of bits; slow, for NCCL then goes through sockets")),
            shared(flag_option("accept-other-bits",
                               s.accepts_other_bits,
                               "resume where the processors compute other last bits than before")),
            shared(duration_option("comm-timeout",
                                   s.comm_timeout_s,
                                   "a rank that waits longer for others ends the job and names "
                                   "them; warns after a tenth of it; 0: never")),
            whole_option("flight-entries",
                         s.flight_entries,
                         64,
                         1 << 20,
                         "collectives that each rank's flight record keeps, see 'diagnose'")};
}

std::vector<Option> reading(TrainSettings& s) {
    return {
        whole_option("io-threads",
                     s.io_threads,
                     0,
                     256,
                     "threads that read data, for each rank; 0: as many as it takes"),
        bytes_option("data-memory",
                     s.data_memory,
                     "for data, each rank; what fits its node's ranks together is kept in memory"),
        choice_option<std::optional<DataMode>>(
            "data-mode",
            s.data_mode,
            {{"auto", {}}, {"stream", DataMode::stream}, {"resident", DataMode::resident}},
            "read as needed, or keep all of it in memory that the node shares"),
        choice_option<PageCache>("page-cache",
                                 s.page_cache,
                                 {{"keep", PageCache::keep}, {"drop", PageCache::drop}},
                                 "whether the system may keep what was read"),
        shared(choice_option<BadData>("on-bad-data",
                                      s.on_bad_data,
                                      {{"fail", BadData::fail}, {"mask", BadData::mask}},
                                      "damaged samples: stop, or count them as nothing")),
        shared(flag_option("accept-data",
                           s.accepts_data,
                           "foreign files with other names or times than the run was made with: "
                           "compare all samples, go on if they are the same; of a new run: keep "
                           "what that takes, also for more than 1 GiB")),
        shared(
            flag_option("ledger", s.ledger, "record every sample trained on, see 'data ledger'"))};
}

OptionSection on_what(TrainSettings& s) {
    return section_of("Ranks and resources (free to change on resume)",
                      {communication(s), reading(s)});
}

}  // namespace

OptionTable setting_table(TrainSettings& settings) {
    return {where(settings),
            scoped(OptionScope::decides, what(settings)),
            scoped(OptionScope::decides, bits(settings)),
            how_long(settings),
            on_what(settings)};
}

}  // namespace lockstep
