// SPDX-License-Identifier: Apache-2.0
// Makes model, replica and step. Before the first step each rank tries, on made-up samples, which
// ways to compute its leaves give the bits of computing them one by one, and what they cost.

#include "lockstep/comm/recorded.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/plan/losses.hpp"

#include "loop/loop.hpp"
#include "model/load_weights.hpp"
#include "model/model.hpp"
#include "model/model_file.hpp"
#include "replica/gpu.hpp"
#include "schedule/blank_step.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// How many dimensions each of the model's tensors has.
std::vector<std::size_t> dimensions_of(const Model& model) {
    std::vector<std::size_t> dimensions;
    for (const auto& [name, tensor] : model.parameters())
        dimensions.push_back(static_cast<std::size_t>(tensor.dim()));
    return dimensions;
}

constexpr double least_long_s = 1;  // a first pass of small models is slow by what it prepares

void make_model(Engine& engine, Start& start, const Inputs& inputs) {
    TrainSettings& settings = start.settings;
    const DatasetIndex& data = *inputs.data;
    agree_on_torch(start.ranks, [&] {
        const auto pipeline = TransformPipeline::parse(settings.transform);
        engine.task = make_task(settings, data, pipeline);
        const Task& task = *engine.task;
        if (std::string text = task.class_warning(); !text.empty())
            settings.warnings.push_back(std::move(text));
        engine.input = std::make_unique<InputReader>(data, pipeline, settings, data, task);
        if (inputs.test_data) {
            check_test_inputs(*inputs.test_data, data, settings, task);
            task.check_test_data(*inputs.test_data);
        }
        auto model = open_model(settings.model, engine.input->shape(), settings.seed);
        freeze_named(*model, settings.freeze);
        engine.rate_factors = rate_factors(settings.optimizer, names_of(model->parameters()));
        check_input_count(model->input_names(), data, settings);
        engine.model = on_device(std::move(model), engine.device());
        name_outputs(*engine.task, *engine.model, engine.input->shape());
        if (inputs.test_data) check_metric(settings, task.evaluation(task.no_sums(), 1).metrics);
        check_optimizer(settings.optimizer);
    });
}

// What it is worth here is measured, on all ranks at once. Some operators take so long in fp16 that
// the user should know what is waited for, and that one pass says it all.
void reduce_precision(Engine& engine, Start& start, std::int64_t rows) {
    TrainSettings& settings = start.settings;
    const auto reduce = [&] {
        engine.model = with_precision(
            std::move(engine.model),
            settings.precision,
            engine.task->takes_16_bits() ? ReducedOutputs::as_is_to_learn : ReducedOutputs::fp32);
    };
    if (engine.gpu) return reduce();
    const std::string name =
        config_text(find_option(setting_table(settings), "precision").current());
    if (start.ranks.is_root())
        once(Level::info, "timing micro-batches of {} sample(s) in fp32 and in {}", rows, name);
    agree(start.ranks, [&] {
        const auto seconds = [&](double enough_s) {
            return blank_step_seconds(
                *engine.model, *engine.task, engine.input->shape(), rows, enough_s);
        };
        const double full_s = seconds(std::numeric_limits<double>::infinity());
        reduce();
        const double reduced_s = seconds(std::max(10 * full_s, least_long_s));
        const std::string slower = slower_text(name, full_s, reduced_s);
        if (!slower.empty()) settings.warnings.push_back(slower);
    });
}

// Everything else that can be wrong with the model and its data, before a run is made for it.
void prove_model(Engine& engine, Start& start, Contract& contract) {
    const TrainSettings& settings = start.settings;
    const Communicator& world = start.ranks;
    const std::int64_t leaf = settings.batch / settings.virtual_ranks;
    const std::int64_t rows = (leaf + settings.micro_batches - 1) / settings.micro_batches;
    if (has_16_bits(settings.precision)) reduce_precision(engine, start, rows);
    const BlankStep blank = agree(world, [&] {
        return run_blank_step(
            *engine.model, *engine.task, engine.input->shape(), rows, settings.optimizer);
    });
    contract.bits.canary = blank.hash;
    contract.bits.processor = engine.gpu ? engine.gpu->text() : start.node.cpu_model;
    check_same_canary(
        world,
        make_canary(blank.hash, start.node.host, contract.bits.processor, Environment()),
        engine.model->author());
    // After the canary, which a resumed run computes without the file.
    agree(world, [&] {
        if (!contract.weights.file.empty())
            start.notes.push_back(load_weights(*engine.model,
                                               WeightsFile(contract.weights.file),
                                               settings.load_skip,
                                               WeightsFor::training,
                                               settings.load_prefix));
        if (!contract.weights.checkpoint.empty())
            start.notes.push_back(
                load_from_run(*engine.model, contract.weights.checkpoint, settings.load_skip));
    });
    // One rank's order for all; it decides how buckets are cut, never a bit.
    engine.order = parse_json(world.broadcast(Json(blank.order).dump()), "order of gradients")
                       .get<std::vector<std::size_t>>();
}

ProgressSettings progress_of(const TrainSettings& settings, const CpuShare& cpus, int ranks) {
    // A GPU's streams go on by themselves.
    if (ranks == 1 || settings.comm_thread == CommThread::off ||
        settings.device == DeviceKind::cuda)
        return {};
    if (settings.comm_thread == CommThread::on) return {ProgressMode::thread, cpus.last};
    return {progress_mode_for(cpus.cpus, settings.threads), cpus.last};
}

std::unique_ptr<Exchange> make_sums(const LoopParts& parts, const FlatLayout& flat) {
    const Communicator& ranks = parts.start.ranks;
    const TreePlan& plan = *parts.contract.plan;
    const fs::path nccl_log =
        parts.run.paths.logs(parts.run.incarnation) / fmt::format("nccl-{:05}.log", ranks.rank());
    const TrainSettings& settings = parts.start.settings;
    const bool has_state = !state_names(parts.start.settings.optimizer).empty();
    const ShardState shards =
        settings.shard_state.value_or(has_state ? ShardState::all : ShardState::node);
    std::unique_ptr<Exchange> sums =
        parts.engine.gpu ? parts.engine.gpu->make_exchange(flat, plan, nccl_log)
                         : make_exchange(ranks.duplicate(), flat, plan, settings.transport, shards);
    return recorded(std::move(sums), flat, parts.run.recorder());
}

// Collective. The most that any rank will take, before it does.
void tell_memory(const LoopParts& parts, const FlatLayout& flat, const Exchange& sums) {
    const Communicator& ranks = parts.start.ranks;
    std::int64_t owned = 0, parameters = 0;
    for (std::size_t bucket = 0; bucket < flat.state_bucket(); ++bucket) {
        owned += static_cast<std::int64_t>(sums.own_stripe(bucket).size());
        parameters += static_cast<std::int64_t>(flat.bucket(bucket).size());
    }
    std::array most = {owned}, all = {owned};
    ranks.all_reduce_max(most);
    ranks.all_reduce_sum(all);
    const auto bytes = [](std::size_t vectors, auto floats) {
        return bytes_text(vectors * static_cast<std::uint64_t>(floats) * sizeof(float));
    };
    const std::size_t states = state_names(parts.start.settings.optimizer).size();
    const std::int64_t copies = all[0] / std::max<std::int64_t>(parameters, 1);
    once(Level::info,
         "planned memory of a rank: {} for parameters{}, {} for gradients, {} of {} for optimizer "
         "state{}{}",
         bytes(1, flat.size()),
         sums.sharers() > 1 ? fmt::format(" that {} ranks share", sums.sharers()) : "",
         bytes(static_cast<std::size_t>(parts.contract.plan->slots()), flat.size()),
         bytes(states, most[0]),
         bytes(states, parameters),
         copies > 1 && states > 0 ? fmt::format(", which {} nodes each have", copies) : "",
         saves_beside_steps(parts.start.settings)
             ? fmt::format(", {} for the copy of a save", bytes(1 + states, most[0]))
             : "");
    if (parts.start.settings.shard_state == ShardState::all && sums.sharers() == ranks.size())
        once(Level::info,
             "--shard-state all has no effect: one node has all ranks, and one copy of the state");
}

void make_replica(const LoopParts& parts) {
    Engine& engine = parts.engine;
    const Start& start = parts.start;
    auto layout = std::make_unique<const ModelLayout>(*engine.model, engine.order);
    std::unique_ptr<Exchange> sums = make_sums(parts, layout->flat());
    tell_memory(parts, layout->flat(), *sums);
    engine.replica = std::make_unique<Replica>(Replica::Parts{
        .model = std::move(engine.model),
        .layout = std::move(layout),
        .plan = *parts.contract.plan,
        .exchange = std::move(sums),
        .optimizer = start.settings.optimizer,
        .ranks = start.ranks,
        .progress = progress_of(start.settings, parts.run.share.cpus, start.ranks.size()),
        .rate_factors = engine.rate_factors,
        .device = engine.device(),
        .loops = engine.gpu ? engine.gpu->loops() : host_loops()});
    engine.step = std::make_unique<TrainStep>(
        TrainStep::Parts{.settings = start.settings,
                         .replica = *engine.replica,
                         .shape = engine.input->shape(),
                         .task = *engine.task,
                         .clock = parts.run.clock,
                         .scale = parts.course.progress.loss_scale,
                         .updates = parts.course.progress.updates,
                         .leaves = start.leaves().size(),
                         .ranks = start.ranks.size(),
                         .before_update = [&course = parts.course, &clock = parts.run.clock] {
                             course.wait_for_copy(clock);
                         }});
}

// With fewer, kernels for vectors give other bits than those for matrices.
constexpr std::int64_t least_leaf_rows = 4;

Error way_error(const char* way, const std::string& why, const char* fix) {
    return {"E103", fmt::format("this rank's leaves cannot be {}", way), why, fix};
}

Error graph_error(const std::string& why) {
    return way_error(
        "recorded and replayed", why, "use --graph auto, which computes them as always then");
}

std::string rate_text(double per_s) {
    return grouped(static_cast<std::uint64_t>(per_s));
}

// What computing leaves together costs, and what would not.
std::string speed_text(const std::optional<LeafSpeed>& speed, int ranks) {
    constexpr double worth_a_word = 0.9;
    if (!speed) return "";
    return fmt::format(", at {} samples/s forward and backward; as one leaf {}{}",
                       rate_text(speed->together),
                       rate_text(speed->as_one),
                       speed->together < worth_a_word * speed->as_one
                           ? fmt::format(" (--virtual-ranks {} of a new run)",
                                         std::bit_ceil(static_cast<unsigned>(ranks)))
                           : "");
}

// Each rank for itself: how it computes its leaves decides no bit. Returns the speed of leaves that
// are computed together; nothing where they are not, or where that takes too long to measure.
std::optional<LeafSpeed> rehearse_leaves(const LoopParts& parts) {
    const TrainSettings& settings = parts.start.settings;
    TrainStep& step = *parts.engine.step;
    std::optional<LeafSpeed> speed;
    agree_on_torch(parts.start.ranks, [&] {
        const int count = parts.start.leaves().size();
        const bool records_one_by_one =
            settings.graph == GraphMode::on && settings.leaves != LeafMode::together;
        if (settings.leaves == LeafMode::one_by_one || records_one_by_one || count == 1) return;
        const std::int64_t rows = settings.batch / settings.virtual_ranks;
        std::string why;
        if (settings.micro_batches > 1)
            why = "they are cut into micro-batches";
        else if (rows < least_leaf_rows)
            why = fmt::format("{} samples each are too few", rows);
        else
            why = step.rehearse(parts.run.share.memory_bytes / 2);
        check(why.empty() || settings.leaves == LeafMode::automatic, [&] {
            return way_error(
                "computed together", why, "use --leaves auto, which computes them one by one then");
        });
        if (why.empty()) speed = step.leaf_speed();
        once(Level::info,
             "leaves: {} a rank of {} samples, {}",
             count,
             rows,
             why.empty() ? "computed together" + speed_text(speed, parts.start.ranks.size())
                         : "computed one by one: " + why);
    });
    return speed;
}

// Records and replays leaves in the ways that are allowed, and takes the quickest of all.
void record_leaves(const LoopParts& parts,
                   const MakeDeviceGraph& make,
                   const std::optional<LeafSpeed>& together) {
    const TrainSettings& settings = parts.start.settings;
    TrainStep& step = *parts.engine.step;
    const bool is_asked_for = settings.graph == GraphMode::on;
    const bool is_waited_for = parts.start.ranks.size() > 1 && !is_asked_for;
    std::vector<std::string> speeds;  // of ways to compute leaves, forward and backward
    std::string why_not;              // of the first that cannot be recorded
    const auto add = [&](const char* way, double per_s) {
        if (per_s > 0) speeds.push_back(fmt::format("{} {}", way, rate_text(per_s)));
    };
    double quickest = is_asked_for ? 0 : together ? together->together : 0;
    std::optional<CaptureWay> chosen;
    const auto consider = [&](CaptureWay way, const CaptureVerdict& verdict, double per_s) {
        if (why_not.empty()) why_not = verdict.why_not;
        if (per_s > quickest) chosen = way;
        quickest = std::max(quickest, per_s);
    };
    add("computed together", together ? together->together : 0);
    if (!step.is_together() || settings.leaves == LeafMode::automatic) {
        const auto verdict = step.rehearse_capture(make, CaptureWay::one_by_one);
        // The last leaf is computed where other ranks wait for its gradients.
        const double per_s = verdict.speed(parts.start.leaves().size(), is_waited_for ? 1 : 0);
        add("computed one by one", verdict.computed);
        add("replayed one by one", per_s);
        if (!is_asked_for) quickest = std::max(quickest, verdict.computed);
        consider(CaptureWay::one_by_one, verdict, per_s);
    }
    if (step.is_together() && !is_waited_for) {
        const auto verdict = step.rehearse_capture(make, CaptureWay::together);
        add("replayed together", verdict.replayed);
        consider(CaptureWay::together, verdict, verdict.replayed);
    }
    check(chosen || !is_asked_for, [&] { return graph_error(why_not); });
    step.choose_capture(chosen, is_asked_for);
    if (why_not.empty()) why_not = "it is not quicker";
    once(Level::info,
         "graph: {}{}",
         !chosen                          ? "off, " + why_not
         : chosen == CaptureWay::together ? "leaves together are recorded once and replayed"
                                          : "leaves are recorded once and replayed",
         speeds.empty() ? "" : fmt::format("; samples/s: {}", fmt::join(speeds, ", ")));
}

// Each rank for itself, too.
void rehearse_graph(const LoopParts& parts, const std::optional<LeafSpeed>& together) {
    const Engine& engine = parts.engine;
    const TrainSettings& settings = parts.start.settings;
    agree_on_torch(parts.start.ranks, [&] {
        const bool is_asked_for = settings.graph == GraphMode::on;
        check(engine.gpu || !is_asked_for, [] { return graph_error("it is for GPUs"); });
        const bool is_lone = parts.start.ranks.size() > 1 && parts.start.leaves().size() == 1;
        // A pass that takes a second waits for no host.
        const bool is_long = engine.step->is_together() && !together;
        if (!engine.gpu || settings.graph == GraphMode::off ||
            (!is_asked_for && (is_lone || is_long)))
            return;
        std::string why;
        const MakeDeviceGraph make = load_device_graphs(own_library(device_graph_library), why);
        check(make || !is_asked_for, [&] { return graph_error(why); });
        if (!make) return once(Level::info, "graph: off, {}", why);
        record_leaves(parts, make, together);
    });
}

}  // namespace

Engine make_engine(Start& start, Inputs& inputs, Contract& contract) {
    Engine engine;
    engine.gpu = settle_device(start.ranks, start.settings);
    if (start.settings.precision == Precision::tf32)
        start.notes.push_back(
            "precision tf32: factors of products and convolutions have 10 bits behind the point; "
            "a new run with --precision fp32 rounds none");
    inputs.digests.update(agreed_digests(start.ranks, start.settings));
    if (!contract.weights.fact.empty())
        inputs.digests[contract.weights.name] = contract.weights.fact;
    make_model(engine, start, inputs);
    cut_steps(start, inputs, contract, *engine.model, *engine.task, engine.input->shape());
    prove_model(engine, start, contract);
    start.notes.push_back(group_text(start.settings.optimizer, dimensions_of(*engine.model)));
    start.notes.push_back(scale_text(start.settings, contract.length));
    if (source_of(start.settings.model.name) == ModelSource::script)
        start.notes.push_back(
            "TorchScript is deprecated in PyTorch: export new models by torch.export to FILE.pt2 "
            "('lockstep export-script')");
    return engine;
}

void start_engine(const LoopParts& parts) {
    const Start& start = parts.start;
    const TrainSettings& settings = start.settings;
    const Inputs& inputs = parts.inputs;
    Engine& engine = parts.engine;
    make_replica(parts);
    agree(start.ranks, [&] {
        if (inputs.test_data)
            engine.evaluator = std::make_unique<Evaluator>(inputs.test_data,
                                                           *inputs.data,
                                                           start.ranks,
                                                           start.leaves(),
                                                           settings,
                                                           *engine.task,
                                                           tested_part(settings),
                                                           engine.kernels());
    });
    if (engine.gpu) here(Level::info, "computes on {}", engine.gpu->text());
    once(Level::info,
         "model {} with {} | {} steps an epoch, {} in all",
         settings.model.name,
         engine.replica->description(),
         parts.contract.length.steps_per_epoch,
         parts.contract.length.total_steps);
    for (const std::string& line : start.notes)
        if (!line.empty()) once(Level::info, "{}", line);
}

void rehearse(const LoopParts& parts) {
    const auto try_all = [&] { rehearse_graph(parts, rehearse_leaves(parts)); };
    if (!parts.engine.gpu) return try_all();
    TrainStep& step = *parts.engine.step;
    const FailedAllocations failed(parts.engine.device());
    std::string hash;
    agree_on_torch(parts.start.ranks, [&] { hash = step.leaf_hash(); });
    try_all();
    // A rehearsal whose memory ends may leave other kernels in LibTorch's cache: of leaves
    // together, which go one by one then, or of a leaf.
    agree_on_torch(parts.start.ranks, [&] {
        if (!failed.any()) return;
        if (step.is_together()) static_cast<void>(step.rehearse(parts.run.share.memory_bytes / 2));
        if (step.leaf_hash() != hash) failed.check_none();
    });
}

}  // namespace lockstep
