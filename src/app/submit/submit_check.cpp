// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/manifest.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/plan/losses.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/plan/run_length.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_status.hpp"

#include "submit/submit_plan.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep {
namespace {

// A path whose parent is missing here may be on a file system that only the nodes have.
void check_data(const fs::path& data) {
    const fs::path train = fs::absolute(data).lexically_normal() / "train";
    if (::access(train.c_str(), F_OK) != 0 && errno == EACCES)
        throw system_error("look into", train.string(), EACCES);
    const bool is_seen = fs::exists(status_of(data));
    const fs::path parent = fs::absolute(data).lexically_normal().parent_path();
    if (!is_seen && !fs::exists(status_of(parent))) return;
    check(is_seen && fs::exists(status_of(data / "train")),
          "E201",
          fmt::format("there is no '{}'", printable((data / "train").string())),
          "the template trains on train/ of --data, and evaluates on test/",
          "give --data the folder that has both");
}

// The nearest folder above that is there has to take new ones.
void check_place(fs::path folder) {
    while (folder.has_relative_path() && !fs::exists(status_of(folder)))
        folder = folder.parent_path();
    check(::access(folder.c_str(), W_OK | X_OK) == 0 && fs::is_directory(status_of(folder)), [&] {
        return system_error(
            "make the run directory in", folder.string(), errno == 0 ? ENOTDIR : errno);
    });
}

// A job that waits for others may wait for the one that holds the run.
void check_run(const SubmitOptions& options, const JobRequest& request) {
    const fs::path root = fs::absolute(options.run).lexically_normal();
    errno = 0;
    check_place(root);
    std::error_code missing;
    if (request.last_task || !fs::exists(root, missing)) return;
    check(is_run(root) || fs::is_empty(root, missing),
          "E407",
          fmt::format("'{}' has files in it, but is no run", root.string()),
          "a run directory is made in an empty or new folder",
          "give the name of a new folder");
    if (!is_run(root) || options.chain > 1 || !request.awaited_jobs.empty()) return;
    const RunStatus status = status_of_run(root, StatusDepth::now);
    check(!status.is_held,
          "E404",
          fmt::format("run '{}' is in use", root.string()),
          status.holder,
          "--dependency afterany:JOB of that job, or another --run");
}

void check_virtual_ranks(const SubmitOptions& options,
                         const JobRequest& request,
                         const TrainSettings& settings) {
    std::int64_t most = settings.virtual_ranks;
    const bool goes_on = !options.run.empty() && is_run(options.run) && !request.last_task;
    if (goes_on && fs::exists(status_of(RunPaths{options.run}.record())))
        most = read_run_record(options.run).contract.value("virtual_ranks", most);
    std::int64_t ranks = 0;
    for (const JobPart& part : request.parts)
        ranks += part.tasks.value_or(part.ranks_per_node() * part.node_count());
    check(most <= 0 || ranks <= most,
          "E640",
          fmt::format("{} ranks are requested, but the run has {} virtual ranks", ranks, most),
          "every rank needs a virtual rank of its own",
          fmt::format("--ntasks {}, or a new run with more --virtual-ranks", most));
}

// Settings that were given and decide bits, beside those of the run that goes on. What ranks settle
// is not known yet, and a complete run may become longer.
void check_settings_of_run(const SubmitOptions& options,
                           const JobRequest& request,
                           const TrainSettings& settings) {
    constexpr std::array later{"epochs", "max-steps", "threads"};
    const fs::path record = RunPaths{options.run}.record();
    if (options.run.empty() || request.last_task || !fs::exists(status_of(record))) return;
    const Json recorded = read_run_record(options.run).deciding;
    const Json now = deciding_facts(settings, Json::object(), "", recorded);
    Json ours = Json::object(), theirs = Json::object();
    for (const auto& [name, entry] : settings.origins) {
        const bool is_open = entry.origin == "default" ||
                             std::ranges::find(later, name) != later.end() ||
                             std::ranges::find(settled_settings, name) != settled_settings.end();
        if (is_open || !recorded.contains(name) || !now.contains(name)) continue;
        if (now[name] == "auto") continue;  // ranks take that of the run
        ours[name] = recorded[name];
        theirs[name] = now[name];
    }
    check_same_deciding(options.run, ours, theirs, origins_of(settings));
}

void check_memory(const SubmitOptions& options,
                  const JobRequest& request,
                  const TrainSettings& settings) {
    for (const JobPart& part : request.parts) {
        const auto needed =
            estimate_job(settings, part, options.parameters).node_memory_bytes >> 20;
        const auto asked = static_cast<std::uint64_t>(part.node_memory_mb);
        check(asked == 0 || asked >= needed,
              "E528",
              fmt::format("{} MB of memory per node are requested", asked),
              fmt::format("{} rank(s) of a node take about {} MB (--dry-run shows why)",
                          part.ranks_per_node(),
                          needed),
              fmt::format("--mem {}M, or fewer ranks on each node", needed));
    }
}

// GPUs that ranks would not use, and ranks that would not get the GPUs that they must have.
void check_gpus(const JobRequest& request, const TrainSettings& settings) {
    for (const JobPart& part : request.parts) {
        check(part.node_gpus == 0 || settings.device != DeviceKind::cpu,
              "E548",
              fmt::format("{} GPUs per node are requested", part.node_gpus),
              "--device cpu is given: the GPUs would not be used",
              "drop --gpus-per-node and --gres, or give --device cuda");
        check(part.node_gpus > 0 || settings.device != DeviceKind::cuda,
              "E548",
              "--device cuda is given, but no GPUs are requested",
              "SLURM hides GPUs that a job did not request",
              fmt::format("--gpus-per-node {} before --, or drop --device cuda",
                          part.ranks_per_node()));
    }
}

// Root is where file systems are that only the nodes may have.
bool has_seen_folder_above(fs::path folder) {
    while (folder.has_relative_path() && !fs::exists(status_of(folder)))
        folder = folder.parent_path();
    return folder.has_relative_path();
}

// A built-in model or a file, for ranks are started by the template's 'lockstep train'.
void check_model(const std::string& name) {
    if (fs::path(name).has_extension()) {
        const bool is_elsewhere = !fs::exists(status_of(fs::absolute(name).parent_path()));
        check(is_elsewhere || fs::exists(status_of(name)),
              "E201",
              fmt::format("cannot open '{}': there is no such file", printable(name)),
              "--model names a plug-in, a program of torch.export or a TorchScript file",
              "give the path of one that is there: --model FILE");
        return;
    }
    std::vector<std::string> names;
    for (const ModelFacts& model : built_in_models()) names.emplace_back(model.name);
    check(find_built_in(name) != nullptr, [&] {
        return Error("E103",
                     fmt::format("no model '{}'", printable(name)),
                     fmt::format("there are {}", fmt::join(names, ", ")),
                     did_you_mean(name, names, "'lockstep models' lists them"));
    });
}

// A rank with LibTorch and MPI: what the step line of the quick start shows, less its small model.
constexpr std::uint64_t bare_rank_bytes = 220u << 20;

struct DataShape {
    ModelShape model;
    std::uint64_t bytes = 0;
};

// Puts what `field` says of a model's inputs and outputs into `shape`.
void add_field(const Field& field, ModelShape& shape) {
    if (field.classes() > 0) shape.classes = field.classes();
    if (field.name == "tokens" && field.shape.size() == 1) {
        shape.vocabulary = field.classes();
        shape.width = field.shape[0] - 1;  // the last is only predicted
    }
    if (field.shape.size() != 3) return;
    shape.channels = field.shape[0];
    shape.height = field.shape[1];
    shape.width = field.shape[2];
}

// `usual` where the data cannot be seen from this host, or are no packed shards.
DataShape data_shape(const fs::path& folder, const ModelShape& usual) {
    DataShape shape{.model = usual};
    if (!fs::exists(status_of(folder / manifest_name))) return shape;
    const Manifest data =
        parse_manifest(read_manifest_text(folder), (folder / manifest_name).string());
    shape.bytes = data.samples * data.bytes_per_sample();
    for (const Field& field : data.fields) add_field(field, shape.model);
    return shape;
}

// The built-in model; nullptr where it is another, or where settings give it other sizes.
const ModelFacts* usual_model(const ModelSettings& model) {
    const bool is_usual =
        model.channels.empty() && model.layers == 0 && model.heads == 0 && model.width == 0;
    return is_usual ? find_built_in(model.name) : nullptr;
}

// Vectors as long as the parameters that the optimizer keeps.
std::uint64_t state_vectors(const OptimizerSettings& optimizer) {
    const std::uint64_t averages = optimizer.average_decay > 0 ? 1 : 0;
    if (optimizer.kind == OptimizerKind::sgd) return averages + (optimizer.momentum > 0 ? 1 : 0);
    return averages + (optimizer.kind == OptimizerKind::lars ? 1 : 2);
}

std::uint64_t gradient_slots(const TrainSettings& settings,
                             std::uint64_t parameters,
                             std::uint64_t ranks) {
    const ModelTraits traits{.parameters = static_cast<std::int64_t>(parameters)};
    const auto job = static_cast<int>(ranks);
    const int leaves = settings.virtual_ranks > 0
                           ? settings.virtual_ranks
                           : default_virtual_ranks(settings, settings.batch, traits, job);
    return static_cast<std::uint64_t>(TreePlan(leaves, std::min(job, leaves)).slots());
}

int kept_checkpoints(const TrainSettings& settings) {
    const bool rolls_back = settings.on_nonfinite == NonFinite::rollback;
    const bool is_counted =
        settings.keep.every.unit == Period::Unit::epochs && settings.max_steps == 0;
    const std::int64_t periods =
        is_counted ? settings.epochs / settings.keep.every.count : std::int64_t{0};
    return settings.keep.last + best_kept(settings) + (rolls_back ? 1 : 0) +
           static_cast<int>(std::min<std::int64_t>(periods, 1'000'000));
}

}  // namespace

void check_output_folders(const JobTemplate& script) {
    for (const SbatchOptions& part : script.parts)
        for (const char* name : {"output", "error"}) {
            const std::string file = value_of(part, name).value_or("");
            const fs::path folder = (fs::current_path() / value_of(part, "chdir").value_or("") /
                                     file.substr(0, file.find('%')))
                                        .parent_path();
            if (fs::exists(status_of(folder))) continue;
            const Error error(
                "E201",
                fmt::format("there is no folder '{}' for --{}", printable(folder.string()), name),
                "SLURM does not make it: the job would end at once, without a message",
                fmt::format("mkdir -p {}", shell_word(folder.string())));
            if (has_seen_folder_above(folder)) throw error;
            once(Level::warn,
                 "{}; if the job's nodes lack it, too, the job ends at once; fix: there, {}",
                 error.what(),
                 error.fix());
        }
}

void check_ranks_will_run(const SubmitOptions& options,
                          const JobRequest& request,
                          const TrainSettings& settings) {
    if (!options.data.empty()) check_data(options.data);
    if (!options.run.empty()) check_run(options, request);
    check_virtual_ranks(options, request, settings);
    check_settings_of_run(options, request, settings);
    check_memory(options, request, settings);
    check_gpus(request, settings);
    check_model(settings.model.name);
}

JobEstimate estimate_job(const TrainSettings& settings,
                         const JobPart& part,
                         std::uint64_t parameters) {
    const ModelFacts* const model = usual_model(settings.model);
    const DataShape data = data_shape(settings.data, model ? model->usual : ModelShape{});
    JobEstimate estimate{.parameters = parameters, .data_bytes = data.bytes};
    if (model && parameters == 0)
        estimate.parameters = static_cast<std::uint64_t>(model->parameters(data.model));
    const auto node_ranks = static_cast<std::uint64_t>(part.ranks_per_node());
    const std::uint64_t ranks = node_ranks * static_cast<std::uint64_t>(part.node_count());
    const std::uint64_t vector_bytes = 4 * estimate.parameters;
    const std::uint64_t states = state_vectors(settings.optimizer);
    const std::uint64_t reading = node_ranks * settings.data_memory;
    const bool has_all = settings.shard_state == ShardState::node;
    const auto owners = static_cast<std::uint64_t>(has_all ? 1 : part.node_count());
    estimate.node_memory_bytes =
        node_ranks * bare_rank_bytes + vector_bytes + states * vector_bytes / owners +
        node_ranks * gradient_slots(settings, estimate.parameters, ranks) * vector_bytes +
        (data.bytes > 0 ? std::min(data.bytes, reading) : reading);
    estimate.checkpoint_bytes = (1 + states) * vector_bytes;
    if (saves_beside_steps(settings)) estimate.copy_bytes = estimate.checkpoint_bytes / owners;
    // Those that are kept, while one more is written.
    estimate.disk_bytes =
        (static_cast<std::uint64_t>(kept_checkpoints(settings)) + 1) * estimate.checkpoint_bytes;
    return estimate;
}

std::string estimate_text(const JobEstimate& estimate, const TrainSettings& settings) {
    if (estimate.parameters == 0)
        return fmt::format("# model '{}': give --parameters N for an estimate of memory and disk\n",
                           settings.model.name);
    return fmt::format(
        "# memory of a node  about {} ({} parameters; data {}), and {} for copies of saves\n"
        "# disk of the run   about {} ({} checkpoints of {}, and one being written)\n",
        bytes_text(estimate.node_memory_bytes),
        grouped(estimate.parameters),
        estimate.data_bytes > 0 ? bytes_text(estimate.data_bytes) : "not visible from here",
        bytes_text(estimate.copy_bytes),
        bytes_text(estimate.disk_bytes),
        kept_checkpoints(settings),
        bytes_text(estimate.checkpoint_bytes));
}

}  // namespace lockstep
