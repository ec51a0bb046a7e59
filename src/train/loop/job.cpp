// SPDX-License-Identifier: Apache-2.0
#include "loop/job.hpp"

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/recorded.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "checkpoint/recorded_contract.hpp"
#include "loop/job_checkpoint.hpp"
#include "replica/arithmetic.hpp"
#include "replica/lossy_sum.hpp"
#include "replica/numerics.hpp"
#include "replica/shared_replica.hpp"
#include "schedule/blank_step.hpp"
#include "schedule/canary.hpp"
#include "settings/setting_effects.hpp"
#include "task/test_data.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>
#include <torch/version.h>

namespace lockstep {
namespace {

ProgressSettings progress_of(const TrainSettings& settings, const CpuShare& cpus, int ranks) {
    if (ranks == 1 || settings.comm_thread == CommThread::off) return {};
    if (settings.comm_thread == CommThread::on) return {ProgressMode::thread, cpus.last};
    return {progress_mode_for(cpus.cpus, settings.threads), cpus.last};
}

constexpr double lock_wait_s = 20;  // ranks of a killed job need a moment to die

// What was not given is as the run has it; else V is the least that has room for `ranks`.
void take_recorded(TrainSettings& settings, const Json& recorded, int ranks) {
    if (settings.virtual_ranks == 0)
        settings.virtual_ranks =
            recorded.contains("virtual-ranks")
                ? static_cast<int>(json_field<std::int64_t>(recorded, "virtual-ranks", "run.json"))
                : static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks)));
    if (!settings.instruction_set && recorded.contains("isa"))
        set_setting(settings, "isa", json_field<std::string>(recorded, "isa", "run.json"));
}

void check_batch(const TrainSettings& settings, std::uint64_t samples) {
    const int leaves = settings.virtual_ranks;
    check(settings.batch % leaves == 0, [&] {
        return Error(
            "E106",
            fmt::format("--batch {} does not divide into {} virtual ranks", settings.batch, leaves),
            "every leaf of a step has the same number of samples",
            fmt::format("use --batch {} or another multiple of {}",
                        (settings.batch / leaves + 1) * leaves,
                        leaves));
    });
    check(samples >= static_cast<std::uint64_t>(leaves), [&] {
        return Error("E215",
                     fmt::format("{} samples for {} virtual ranks", samples, leaves),
                     "each needs at least one in a step",
                     fmt::format("use --virtual-ranks {} or fewer ranks",
                                 std::bit_floor(std::max<std::uint64_t>(samples, 1))));
    });
}

Json numeric_contract(const TrainSettings& settings, const BitContract& contract) {
    return {{"virtual_ranks", settings.virtual_ranks},
            {"threads", settings.threads},
            {"instruction_set", instruction_set_name(*settings.instruction_set)},
            {"seed", settings.seed},
            {"order", order_name(settings.order)},
            {"transform", settings.transform},
            {"canary", contract.canary},
            {"processor", contract.processor}};
}

Json versions() {
    return {{"lockstep", version_text()},
            {"libtorch", TORCH_VERSION},
            {"mpi", MpiSession::library_version()}};
}

Json given_config(const TrainSettings& settings) {
    Json config = Json::object();
    for (const auto& [key, entry] : settings.origins)
        config[key] = {{"value", config_text(entry.value)}, {"origin", entry.origin}};
    return config;
}

Json origins_of(const TrainSettings& settings) {
    Json origins = Json::object();
    for (const auto& [key, entry] : settings.origins) origins[key] = entry.origin;
    return origins;
}

Json json_of(const std::vector<NamedValue>& values) {
    Json json = Json::object();
    for (const NamedValue& named : values)
        json[named.name] = std::visit([](const auto& value) { return Json(value); }, named.value);
    return json;
}

// Environment variables and files can differ between nodes.
void check_same_settings(const Communicator& ranks, const TrainSettings& settings) {
    const Json mine = json_of(shared_settings(settings));
    const Json roots = parse_json(ranks.broadcast(mine.dump()), "settings of rank 0");
    agree(ranks, [&] {
        check_settings(settings);
        for (const auto& [name, value] : mine.items())
            check(value == roots.value(name, Json()), [&] {
                return Error(
                    "E605",
                    fmt::format("ranks have different settings: {} is {} here and {} on rank 0",
                                name,
                                value.dump(),
                                roots.value(name, Json()).dump()),
                    "environment variables and files can differ between nodes",
                    "give settings on the command line, or export them with mpirun -x");
            });
    });
}

// What decides the bits of the run, in run.json's words. A setting without an effect decides
// nothing, whatever was `recorded`: the run goes on without it.
Json deciding_facts(const TrainSettings& settings,
                    const std::string& data_digest,
                    const Json& recorded) {
    Json deciding = {{"data-digest", data_digest}};
    deciding.update(json_of(deciding_settings(settings)));
    deciding["libtorch"] = TORCH_VERSION;
    for (const std::string& idle : idle_settings(settings))
        if (deciding.contains(idle) && recorded.contains(idle)) deciding[idle] = recorded[idle];
    return deciding;
}

}  // namespace

Job::Job(const TrainSettings& given, const Communicator& communicator)
    : ranks(communicator), settings(given) {
    settings.transform =
        agree(communicator, [&] { return TransformPipeline::parse(given.transform).text(); });
    check_same_settings(ranks, settings);
    early_watch.emplace(ranks, settings);
    open_data();
    settle_contract();
    build_model();
    open_run();
}

void Job::prepare() {
    introduce();
    start_flight();
    build_replica();
    feed = std::make_unique<DataFeed>(
        ranks, data, settings, node.usable_memory_bytes(), std::max(cpus.cpus, 1));
    restore();
    start_ledger();
}

void Job::open_data() {
    data = open_dataset(ranks, settings.data, settings.fields);
    if (!settings.test_data.empty())
        test_data = open_dataset(ranks, settings.test_data, settings.fields);
}

// V, instruction set and the checks that need them, before anything is written.
void Job::settle_contract() {
    const Json recorded = parse_json(
        from_root(ranks,
                  [&] { return recorded_settings(recorded_contracts(settings.run)).dump(); }),
        "run.json");
    agree(ranks, [&] {
        take_recorded(settings, recorded, ranks.size());
        plan = std::make_unique<TreePlan>(
            settings.virtual_ranks,
            ranks.size(),
            settings.plain_summation ? Summation::plain : Summation::tree);
        check_wire_format(settings);
        check_batch(settings, data->samples());
    });
    settle_arithmetic();
    const auto samples = static_cast<std::int64_t>(data->samples());
    steps_per_epoch = (samples + settings.batch - 1) / settings.batch;
    total_steps = settings.max_steps > 0 ? settings.max_steps : settings.epochs * steps_per_epoch;
    const EffectFacts facts{.samples = data->samples(),
                            .total_steps = total_steps,
                            .age = recorded.empty() ? RunAge::created : RunAge::resumed};
    agree(ranks, [&] {
        for (std::string& note : check_effects(settings, facts))
            settings.warnings.push_back(std::move(note));
    });
}

// From here on LibTorch may compute.
void Job::settle_arithmetic() {
    const InstructionSet level =
        agree_instruction_set(ranks, node.instruction_set, settings.instruction_set);
    settings.instruction_set = level;
    agree(ranks, [&] {
        for (std::string& note : forget_kernel_variables())
            settings.warnings.push_back(std::move(note));
        set_instruction_set(level);
        set_compute_threads(settings.threads, level);
        check_arithmetic(settings.threads);
    });
}

// Everything that can be wrong with the model and its data, before a run is made for it.
void Job::build_model() {
    agree(ranks, [&] {
        task = make_task(*data);
        input = std::make_unique<InputReader>(
            *data, TransformPipeline::parse(settings.transform), settings.seed, *data, *task);
        if (test_data) check_test_data(*test_data, *data, settings, *task);
        model = model_of(make_model(settings.model, input->shape(), settings.seed));
        optimizer = make_optimizer(settings.optimizer);
    });
    const std::int64_t leaf = settings.batch / settings.virtual_ranks;
    const BlankStep blank = agree(ranks, [&] {
        return run_blank_step(*model,
                              *task,
                              input->shape(),
                              (leaf + settings.micro_batches - 1) / settings.micro_batches,
                              *optimizer);
    });
    check_same_canary(ranks, make_canary(blank.hash, node, Environment()));
    contract.canary = blank.hash;
    contract.processor = node.cpu_model;
    // One rank's order for all; it decides how buckets are cut, never a bit.
    order = parse_json(ranks.broadcast(Json(blank.order).dump()), "order of gradients")
                .get<std::vector<std::size_t>>();
}

void Job::open_run() {
    const std::string incarnation = from_root(ranks, [&] {
        run.directory.emplace(RunDirectory::open(settings.run, lock_wait_s));
        RunDirectory& directory = *run.directory;
        const std::vector<BitContract> recorded = recorded_contracts(settings.run);
        contract.deciding = deciding_facts(settings, data->digest(), recorded_settings(recorded));
        const auto warning =
            check_recorded(settings.run,
                           recorded,
                           contract,
                           origins_of(settings),
                           settings.accepts_other_bits ? OtherBits::accept : OtherBits::refuse);
        if (warning) settings.warnings.push_back(*warning);
        if (directory.is_new())
            directory.create({.config = given_config(settings),
                              .deciding = contract.deciding,
                              .contract = numeric_contract(settings, contract),
                              .versions = versions()});
        remove_unfinished_checkpoints(directory.paths().checkpoints());
        return Json(directory.begin_incarnation()).dump();
    });
    run.incarnation = parse_json(incarnation, "incarnation").get<std::int64_t>();
    run.paths = {settings.run};
}

// The rank table, and what the run is about.
void Job::introduce() {
    agree(ranks, [&] {
        open_log({.rank = ranks.rank(),
                  .world_size = ranks.size(),
                  .host = node.host,
                  .directory = run.paths.logs(run.incarnation),
                  .shows_live = settings.shows_live});
    });
    const RankRow mine = make_rank_row(node, ranks.rank());
    std::vector<RankRow> rows;
    for (const std::string& text : ranks.all_gather(serialize(mine)))
        rows.push_back(deserialize_rank_row(text));
    cpus = cpu_share(rows, ranks.rank());
    print_once(settings.rank_table);
    for (const std::string& warning : settings.warnings) once(Level::warn, "{}", warning);
    for (const std::string& warning : hardware_warnings(rows)) once(Level::warn, "{}", warning);
    if (run.directory)
        for (const std::string& warning : run.directory->warnings())
            once(Level::warn, "{}", warning);
    once(
        Level::info,
        "run {} | incarnation {} | {} of {} samples | V = {}, {} thread(s) a rank, {} | {} rank(s)",
        settings.run.string(),
        run.incarnation,
        data->name(),
        grouped(data->samples()),
        settings.virtual_ranks,
        settings.threads,
        instruction_set_name(*settings.instruction_set),
        ranks.size());
}

// From here on a rank that hangs or dies is named.
void Job::start_flight() {
    agree(ranks, [&] {
        flight = std::make_unique<Flight>(
            run.paths, run.incarnation, ranks, settings, clock, early_watch->take());
    });
    early_watch.reset();
}

void Job::build_replica() {
    auto layout = std::make_unique<const ModelLayout>(*model, order);
    LossySum lossy = make_lossy_sum(ranks, *layout, settings);
    std::unique_ptr<Exchange> sums =
        make_exchange(ranks.duplicate(), layout->flat(), *plan, settings.transport);
    if (lossy.hook)
        sums = make_hooked_exchange(std::move(sums), layout->flat(), *plan, *lossy.hook);
    sums = recorded(std::move(sums), layout->flat(), flight->recorder());
    replica = std::make_unique<SharedReplica>(
        SharedReplica::Parts{.model = std::move(model),
                             .layout = std::move(layout),
                             .plan = *plan,
                             .lossy = std::move(lossy),
                             .exchange = std::move(sums),
                             .optimizer = std::move(optimizer),
                             .ranks = ranks,
                             .progress = progress_of(settings, cpus, ranks.size())});
    step = std::make_unique<TrainStep>(TrainStep::Parts{*replica, *input, *task, clock},
                                       StepSettings{.seed = settings.seed,
                                                    .threads = settings.threads,
                                                    .micro_batches = settings.micro_batches,
                                                    .clip_norm = settings.clip_norm});
    const LeafRange leaves = leaves_of(ranks.rank(), ranks.size(), settings.virtual_ranks);
    agree(ranks, [&] {
        if (test_data)
            evaluator =
                std::make_unique<Evaluator>(test_data, *data, ranks, leaves, settings, *task);
    });
    once(Level::info,
         "model {} with {} | {} steps an epoch, {} in all",
         settings.model.name,
         replica->description(),
         steps_per_epoch,
         total_steps);
}

// From the newest whole checkpoint, or from the initial weights.
void Job::restore() {
    if (load_job(*this))
        once(Level::info, "resumed from step {} (epoch {})", progress.step, progress.epoch);
    const LeafRange leaves = leaves_of(ranks.rank(), ranks.size(), settings.virtual_ranks);
    agree(ranks, [&] { stream = feed->batches(leaves, progress.position); });
}

// A resumed run's ledger goes on in files of its own.
void Job::start_ledger() {
    agree(ranks, [&] {
        if (!settings.ledger) return;
        ledger.emplace(run.paths.ledger(),
                       LedgerHead{.samples = data->samples(),
                                  .data_digest = data->digest(),
                                  .rank = ranks.rank(),
                                  .ranks = ranks.size(),
                                  .incarnation = static_cast<std::uint64_t>(run.incarnation),
                                  .start = progress.position});
    });
}

}  // namespace lockstep
