// SPDX-License-Identifier: Apache-2.0
#include "loop/job.hpp"

#include "lockstep/cluster/job_limits.hpp"
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/clock_offset.hpp"
#include "lockstep/comm/recorded.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/data_words.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/plan/losses.hpp"
#include "lockstep/plan/run_length.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/train/train.hpp"

#include "loop/run_contract.hpp"
#include "loop/run_data.hpp"
#include "model/device_model.hpp"
#include "model/load_weights.hpp"
#include "model/model_file.hpp"
#include "model/precision.hpp"
#include "replica/arithmetic.hpp"
#include "replica/numerics.hpp"
#include "replica/replica.hpp"
#include "schedule/blank_step.hpp"
#include "task/test_data.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace lockstep {
namespace {

ProgressSettings progress_of(const TrainSettings& settings, const CpuShare& cpus, int ranks) {
    // A GPU's streams go on by themselves.
    if (ranks == 1 || settings.comm_thread == CommThread::off ||
        settings.device == DeviceKind::cuda)
        return {};
    if (settings.comm_thread == CommThread::on) return {ProgressMode::thread, cpus.last};
    return {progress_mode_for(cpus.cpus, settings.threads), cpus.last};
}

// Who failed so: " (ranks 2-3 on node2 only)".
std::string failed_ranks(const Error& error) {
    const auto* agreed = dynamic_cast<const AgreedError*>(&error);
    return agreed == nullptr || agreed->ranks().empty() ? "" : " (" + agreed->ranks() + ")";
}

// How many dimensions each of the model's tensors has.
std::vector<std::size_t> dimensions_of(const Model& model) {
    std::vector<std::size_t> dimensions;
    for (const auto& [name, tensor] : model.parameters())
        dimensions.push_back(static_cast<std::size_t>(tensor.dim()));
    return dimensions;
}

std::vector<std::string> names_of(const NamedTensors& tensors) {
    std::vector<std::string> names;
    for (const NamedTensor& one : tensors) names.push_back(one.name);
    return names;
}

constexpr double least_long_s = 1;  // a first pass of small models is slow by what it prepares

// Ranks of a killed job need a moment to die; the other ranks wait for rank 0 meanwhile.
double lock_wait_s(const TrainSettings& settings) {
    constexpr double usual_s = 20;
    return settings.comm_timeout_s > 0 ? std::min(usual_s, 3 * settings.comm_timeout_s) : usual_s;
}

}  // namespace

Job::Job(const TrainSettings& given, const Communicator& communicator)
    : mesh_{.world = communicator, .data = communicator}, settings_(given) {
    settings_.transform =
        agree(communicator, [&] { return TransformPipeline::parse(given.transform).text(); });
    check_same_settings(mesh_.world, settings_);
    early_.emplace(mesh_.world, settings_);
    open_data();
    agree(communicator, [&] { check_normalises(given.transform, *data_, settings_.inputs); });
    const RunAge age = settle_contract();
    make_model();
    cut_steps(age);
    prove_model();
    settle_data();
    open_run();
}

LoopParts Job::prepare() {
    introduce();
    start_flight();
    build_replica();
    load_data();
    restore();
    rehearse();
    rehearse_graph();
    start_ledger();
    return {.settings = settings_,
            .world = mesh_.world,
            .data = *data_,
            .length = length_,
            .run = run_,
            .progress = progress_,
            .stretches = stretches_,
            .links = links_,
            .clock = clock_,
            .recorder = flight_->recorder(),
            .stream = *stream_,
            .feed = *sample_feed_,
            .step = *step_,
            .replica = *replica_,
            .evaluator = evaluator_.get(),
            .ledger = ledger_ ? &*ledger_ : nullptr,
            .check_data = [this] { feed_->check_files(); },
            .save = [this] { save(); },
            .roll_back = [this] { roll_back(); },
            .after_first_step = [this] { tell_of_network(); }};
}

// May take as long as it likes: the watchdog ends no phase of data.
void Job::load_data() {
    const PhaseScope scope(clock_, Phase::data);
    feed_ = std::make_unique<DataFeed>(
        mesh_.world, data_, settings_, node_.usable_memory_bytes(), std::max(cpus_.cpus, 1));
}

void Job::note_failure(const Error& error) {
    if (flight_) flight_->recorder().mark_failed(static_cast<int>(error.exit_code()));
    ErrorEvent event = event_of(error);
    const auto* const agreed = dynamic_cast<const AgreedError*>(&error);
    if (agreed != nullptr) event.ranks = agreed->failed();
    log_event(event);
    try {
        if (!run_.directory && agreed == nullptr) note_failure_alone(error);
        if (!run_.directory) return;
        run_.directory->write_state(
            {.phase = RunPhase::failed,
             .step = progress_.step,
             .epoch = progress_.epoch,
             .reason = error.code() + ": " + error.what() + failed_ranks(error),
             .exit = static_cast<int>(error.exit_code()),
             .steps_total = length_.total_steps});
    } catch (const Error&) {
        // The run was taken over or its disk is gone: the first error is the one to show.
    }
}

// Rank 0 is about to be ended by the launcher, and will not know why.
void Job::note_failure_alone(const Error& error) const {
    if (run_.paths.root.empty()) return;
    write_failed_state(
        run_.paths.root,
        run_.incarnation,
        fmt::format("{}: rank {}: {}", error.code(), mesh_.world.rank(), error.what()),
        error.exit_code());
}

LeafRange Job::leaves() const {
    return leaves_of(mesh_.data.rank(), mesh_.data.size(), settings_.virtual_ranks);
}

const InputKernels* Job::kernels() const {
    return gpu_ ? &gpu_->input_kernels() : nullptr;
}

at::Device Job::device() const {
    return gpu_ ? gpu_->device() : at::Device(at::kCPU);
}

void Job::open_data() {
    data_ = open_dataset(
        mesh_.world, settings_.data, settings_.fields, links_of(settings_.follows_links));
    samples_ = data_->samples();
    const bool is_elsewhere = !settings_.test_data.empty();
    if (settings_.split > 0)
        split_data();
    else if (has_test_data(settings_))
        test_data_ = open_test_dataset(mesh_.world,
                                       is_elsewhere ? settings_.test_data : settings_.data,
                                       settings_.fields,
                                       settings_.test_fields,
                                       links_of(settings_.follows_links));
}

// Part of the data are the test data: one index, two parts of its samples.
void Job::split_data() {
    test_data_ = data_;
    samples_ = samples_in(data_->blocks(), trained_part(settings_));
    const std::uint64_t tested = data_->samples() - samples_;
    agree(mesh_.world, [&] {
        check(samples_ > 0 && tested > 0, [&] {
            return Error("E215",
                         fmt::format("--split {} leaves {} samples to train on and {} to test on",
                                     settings_.split,
                                     grouped(samples_),
                                     grouped(tested)),
                         "a hash of its number decides which part a sample belongs to",
                         "use another share, or give --test-data");
        });
    });
    notes_.push_back(
        fmt::format("split {}: {} samples to train on, {} to test on, by a hash of their numbers",
                    settings_.split,
                    grouped(samples_),
                    grouped(tested)));
    const bool has_statistics = std::ranges::any_of(
        data_->fields(), [](const Field& field) { return !field.mean.empty(); });
    if (has_statistics)
        notes_.push_back(
            "split: mean and deviation of a field are those of all samples, which "
            "were found when the data were packed; pack two data sets for others");
}

// What the run has already, and the instruction set: from here on LibTorch may compute.
RunAge Job::settle_contract() {
    recorded_ = parse_json(
        from_root(mesh_.world,
                  [&] { return recorded_settings(recorded_contracts(settings_.run)).dump(); }),
        "run.json");
    agree(mesh_.world, [&] {
        take_recorded(settings_, recorded_);
        settings_.task.kind = choose_task(settings_.task, *data_);
    });
    weights_ = settle_initial_weights(mesh_.world, settings_, recorded_);
    most_useful_ = most_useful(settings_);
    settle_arithmetic(mesh_.world, node_.instruction_set, settings_);
    gpu_ = settle_device(mesh_.world, settings_);
    return recorded_.empty() ? RunAge::created : RunAge::resumed;
}

void Job::make_model() {
    digests_ = agreed_digests(mesh_.world, settings_);
    if (!weights_.fact.empty()) digests_["load-weights"] = weights_.fact;
    agree_on_torch(mesh_.world, [&] {
        const auto pipeline = TransformPipeline::parse(settings_.transform);
        task_ = make_task(settings_, *data_, pipeline);
        if (std::string text = task_->class_warning(); !text.empty())
            settings_.warnings.push_back(std::move(text));
        input_ = std::make_unique<InputReader>(*data_, pipeline, settings_, *data_, *task_);
        if (test_data_) check_metric(settings_, task_->evaluation(task_->no_sums(), 1).metrics);
        if (test_data_) check_test_data(*test_data_, *data_, settings_, *task_);
        auto model = open_model(settings_.model, input_->shape(), settings_.seed);
        freeze_named(*model, settings_.freeze);
        rate_factors_ = rate_factors(settings_.optimizer, names_of(model->parameters()));
        check_input_count(model->input_names(), *data_, settings_.inputs);
        model_ = on_device(std::move(model), device());
        optimizer_ = make_optimizer(settings_.optimizer);
    });
}

// V, and the checks that need it.
void Job::cut_steps(RunAge age) {
    const auto samples = static_cast<std::int64_t>(samples_);
    if (settings_.virtual_ranks == 0) {
        const VirtualRanks chosen =
            choose_virtual_ranks(mesh_.data, settings_, samples_, *model_, *task_, input_->shape());
        settings_.virtual_ranks = chosen.count;
        notes_.push_back(chosen.note);
    }
    length_ = length_of(settings_, samples);
    const EffectFacts facts{.samples = samples_, .total_steps = length_.total_steps, .age = age};
    agree(mesh_.world, [&] {
        plan_ = std::make_unique<TreePlan>(
            settings_.virtual_ranks,
            mesh_.data.size(),
            settings_.plain_summation ? Summation::plain : Summation::tree);
        check_batch(settings_, samples_);
        for (std::string& note : check_effects(settings_, facts))
            settings_.warnings.push_back(std::move(note));
    });
    agree(mesh_.world, [&] {
        const auto single = single_rows(settings_, samples, length_);
        if (single && !takes_single_rows(*model_, input_->shape())) throw *single;
    });
}

// Everything else that can be wrong with the model and its data, before a run is made for it.
void Job::prove_model() {
    const std::int64_t leaf = settings_.batch / settings_.virtual_ranks;
    const std::int64_t rows = (leaf + settings_.micro_batches - 1) / settings_.micro_batches;
    if (settings_.precision != Precision::fp32) reduce_precision(rows);
    const BlankStep blank = agree(mesh_.world, [&] {
        return run_blank_step(*model_, *task_, input_->shape(), rows, *optimizer_);
    });
    contract_.canary = blank.hash;
    contract_.processor = gpu_ ? gpu_->text() : node_.cpu_model;
    check_same_canary(mesh_.world,
                      make_canary(blank.hash, node_.host, contract_.processor, Environment()),
                      model_->author());
    // After the canary, which a resumed run computes without the file.
    agree(mesh_.world, [&] {
        if (!weights_.file.empty())
            notes_.push_back(load_weights(*model_,
                                          SafetensorsFile(weights_.file),
                                          settings_.load_skip,
                                          WeightsFor::training,
                                          settings_.load_prefix));
    });
    // One rank's order for all; it decides how buckets are cut, never a bit.
    order_ = parse_json(mesh_.world.broadcast(Json(blank.order).dump()), "order of gradients")
                 .get<std::vector<std::size_t>>();
}

void Job::settle_data() {
    const RunData found = settle_run_data(mesh_.world, settings_, data_, recorded_);
    digests_.update(found.facts);
    if (!found.note.empty()) settings_.warnings.push_back(found.note);
}

// Of the files that the run was made with, where others hold the same.
std::string Job::data_digest() const {
    return digests_.at("data-digest").get<std::string>();
}

// What it is worth here is measured, on all ranks at once. Some operators take so long in fp16 that
// the user should know what is waited for, and that one pass says it all.
void Job::reduce_precision(std::int64_t rows) {
    if (settings_.precision == Precision::fp16) progress_.loss_scale.factor = settings_.loss_scale;
    if (gpu_) {
        model_ = with_precision(std::move(model_), settings_.precision);
        return;
    }
    const std::string name =
        config_text(find_option(setting_table(settings_), "precision").current());
    if (mesh_.world.is_root())
        once(Level::info, "timing micro-batches of {} sample(s) in fp32 and in {}", rows, name);
    agree(mesh_.world, [&] {
        const auto seconds = [&](double enough_s) {
            return blank_step_seconds(*model_, *task_, input_->shape(), rows, enough_s);
        };
        const double full_s = seconds(std::numeric_limits<double>::infinity());
        model_ = with_precision(std::move(model_), settings_.precision);
        const double reduced_s = seconds(std::max(10 * full_s, least_long_s));
        const std::string slower = slower_text(name, full_s, reduced_s);
        if (!slower.empty()) settings_.warnings.push_back(slower);
    });
}

void Job::open_run() {
    const std::string incarnation = from_root(mesh_.world, [&] {
        run_.directory.emplace(RunDirectory::open(settings_.run, lock_wait_s(settings_)));
        RunDirectory& directory = *run_.directory;
        const std::vector<BitContract> recorded = recorded_contracts(settings_.run);
        contract_.deciding =
            deciding_facts(settings_, digests_, torch_version_text(), recorded_settings(recorded));
        const auto warning =
            check_recorded(settings_.run,
                           recorded,
                           contract_,
                           origins_of(settings_),
                           settings_.accepts_other_bits ? OtherBits::accept : OtherBits::refuse);
        if (warning) settings_.warnings.push_back(*warning);
        if (directory.is_new())
            directory.create(run_facts(settings_, contract_, torch_version_text()));
        remove_unfinished_checkpoints(directory.paths().checkpoints());
        return Json(directory.begin_incarnation()).dump();
    });
    run_.incarnation = parse_json(incarnation, "incarnation").get<std::int64_t>();
    run_.paths = {settings_.run};
    early_->name_start(run_.incarnation);
}

// The rank table, and what the run is about.
void Job::introduce() {
    agree(mesh_.world, [&] {
        open_log({.rank = mesh_.world.rank(),
                  .world_size = mesh_.world.size(),
                  .start = run_.incarnation,
                  .host = node_.host,
                  .directory = run_.paths.logs(run_.incarnation),
                  .shows_live = settings_.shows_live,
                  .keeps_stderr = settings_.keeps_stderr});
    });
    const ClockOffset offset =
        measure_clock_offset(mesh_.world, mesh_.world.split_by_node(), unix_time_s);
    log_event(ClockEvent{offset.ahead_s, offset.error_s});
    const RankRow mine = make_rank_row(node_, mesh_.world.rank());
    std::vector<RankRow> rows;
    for (const std::string& text : mesh_.world.all_gather(serialize(mine)))
        rows.push_back(deserialize_rank_row(text));
    cpus_ = cpu_share(rows, mesh_.world.rank());
    cores_ = core_share(rows, mesh_.world.rank(), node_.control_group);
    log_event(PlaceEvent{.cores = static_cast<int>(mine.cpus.size()),
                         .sharers = ranks_sharing_cpus(rows, mine.rank),
                         .quota = node_.control_group.cpu_quota});
    const auto here = std::ranges::count(rows, mine.host_id, &RankRow::host_id);
    memory_share_ = mine.memory_bytes / static_cast<std::uint64_t>(here);
    print_once(settings_.rank_table);
    for (const std::string& warning : settings_.warnings) once(Level::warn, "{}", warning);
    for (const std::string& warning : hardware_warnings(rows, most_useful_))
        once(Level::warn, "{}", warning);
    if (run_.directory)
        for (const std::string& warning : run_.directory->warnings())
            once(Level::warn, "{}", warning);
    once(
        Level::info,
        "run {} | incarnation {} | {} of {} samples | V = {}, {} thread(s) a rank, {} | {} rank(s)",
        settings_.run.string(),
        run_.incarnation,
        data_->name(),
        grouped(samples_),
        settings_.virtual_ranks,
        settings_.threads,
        instruction_set_name(*settings_.instruction_set),
        mesh_.world.size());
    for (const std::string& input : input_texts(*data_, settings_))
        once(Level::info, "input {}", input);
    if (const std::string classes = task_->classes_text(); !classes.empty())
        once(Level::info, "{}", classes);
}

// From here on a rank that hangs or dies is named.
void Job::start_flight() {
    agree(mesh_.world, [&] {
        flight_ = std::make_unique<Flight>(
            run_.paths, run_.incarnation, mesh_.world, settings_, clock_, early_->nodes());
    });
    early_->hand_over();
    early_.reset();
}

std::unique_ptr<Exchange> Job::make_sums(const ModelLayout& layout) {
    const FlatLayout& flat = layout.flat();
    std::unique_ptr<Exchange> sums =
        gpu_ ? gpu_->make_exchange(flat, *plan_, nccl_log())
             : make_exchange(mesh_.data.duplicate(), flat, *plan_, settings_.transport);
    return recorded(std::move(sums), flat, flight_->recorder());
}

fs::path Job::nccl_log() const {
    return run_.paths.logs(run_.incarnation) / fmt::format("nccl-{:05}.log", mesh_.data.rank());
}

// By then all ranks that exchange anything have met.
void Job::tell_of_network() {
    if (!gpu_ || mesh_.data.size() == 1) return;
    const NetworkSummary network = gpu_->network(mesh_.data);
    if (!mesh_.data.is_root()) return;
    once(Level::info, "network: {}", network.text);
    for (const std::string& warning : network.warnings) once(Level::warn, "{}", warning);
    log_event("network", json_of_record(network));
}

void Job::build_replica() {
    const std::string groups = group_text(settings_.optimizer, dimensions_of(*model_));
    auto layout = std::make_unique<const ModelLayout>(*model_, order_);
    std::unique_ptr<Exchange> sums = make_sums(*layout);
    UpdateLoops& loops = gpu_ ? gpu_->loops() : host_loops();
    replica_ = std::make_unique<Replica>(
        Replica::Parts{.model = std::move(model_),
                       .layout = std::move(layout),
                       .plan = *plan_,
                       .exchange = std::move(sums),
                       .optimizer = std::move(optimizer_),
                       .ranks = mesh_.data,
                       .progress = progress_of(settings_, cpus_, mesh_.data.size()),
                       .rate_factors = rate_factors_,
                       .device = device(),
                       .loops = loops});
    step_ = std::make_unique<TrainStep>(TrainStep::Parts{.settings = settings_,
                                                         .replica = *replica_,
                                                         .shape = input_->shape(),
                                                         .task = *task_,
                                                         .clock = clock_,
                                                         .scale = progress_.loss_scale,
                                                         .updates = progress_.updates,
                                                         .leaves = leaves().size(),
                                                         .ranks = mesh_.data.size()});
    agree(mesh_.world, [&] {
        if (test_data_)
            evaluator_ = std::make_unique<Evaluator>(test_data_,
                                                     *data_,
                                                     mesh_.data,
                                                     leaves(),
                                                     settings_,
                                                     *task_,
                                                     tested_part(settings_),
                                                     kernels());
    });
    if (gpu_) here(Level::info, "computes on {}", gpu_->text());
    once(Level::info,
         "model {} with {} | {} steps an epoch, {} in all",
         settings_.model.name,
         replica_->description(),
         length_.steps_per_epoch,
         length_.total_steps);
    notes_.insert(notes_.end(), {groups, scale_text(settings_, length_)});
    for (const std::string& line : notes_)
        if (!line.empty()) once(Level::info, "{}", line);
}

// From the newest whole checkpoint, or from the initial weights.
void Job::restore() {
    if (load())
        once(Level::info, "resumed from step {} (epoch {})", progress_.step, progress_.epoch);
    agree_on_torch(mesh_.world, [&] {
        const PageLock page_lock = gpu_ ? kernels()->page_lock : PageLock();
        stream_ = feed_->batches(leaves(), progress_.position, page_lock);
        sample_feed_ = make_feed(*stream_, *input_, kernels());
    });
}

// A resumed run's ledger goes on in files of its own.
void Job::start_ledger() {
    agree(mesh_.world, [&] {
        if (!settings_.ledger) return;
        ledger_.emplace(
            run_.paths.ledger(),
            LedgerHead{.samples = data_->samples(),
                       .data_digest = data_digest(),
                       .rank = mesh_.world.rank(),
                       .ranks = mesh_.world.size(),
                       .incarnation = static_cast<std::uint64_t>(run_.incarnation),
                       .start = progress_.position,
                       .dropped = dropped_samples(settings_, samples_) +
                                  static_cast<std::uint32_t>(data_->samples() - samples_)});
    });
}

}  // namespace lockstep
