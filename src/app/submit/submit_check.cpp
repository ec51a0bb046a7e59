// SPDX-License-Identifier: Apache-2.0
#include "submit/submit_check.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_status.hpp"

#include "submit/submit_estimate.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep {
namespace {

// A path whose parent is missing here may be on a file system that only the nodes have.
void check_data(const fs::path& data) {
    std::error_code missing;
    const fs::path train = fs::absolute(data).lexically_normal() / "train";
    if (::access(train.c_str(), F_OK) != 0 && errno == EACCES)
        throw system_error("look into", train.string(), EACCES);
    const bool is_seen = fs::exists(data, missing);
    const fs::path parent = fs::absolute(data).lexically_normal().parent_path();
    if (!is_seen && !fs::exists(parent, missing)) return;
    check(is_seen && fs::exists(data / "train", missing), [&] {
        return Error("E201",
                     fmt::format("there is no '{}'", printable((data / "train").string())),
                     "the template trains on train/ of --data, and evaluates on test/",
                     "give --data the folder that has both");
    });
}

// The nearest folder above that is there has to take new ones.
void check_place(fs::path folder) {
    std::error_code missing;
    while (folder.has_relative_path() && !fs::exists(folder, missing))
        folder = folder.parent_path();
    check(::access(folder.c_str(), W_OK | X_OK) == 0 && fs::is_directory(folder, missing), [&] {
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
    check(is_run(root) || fs::is_empty(root, missing), [&] {
        return Error("E407",
                     fmt::format("'{}' has files in it, but is no run", root.string()),
                     "a run directory is made in an empty or new folder",
                     "give the name of a new folder");
    });
    if (!is_run(root) || options.chain > 1 || !request.awaited_jobs.empty()) return;
    const RunStatus status = status_of_run(root, StatusDepth::now);
    check(!status.is_held, [&] {
        return Error("E404",
                     fmt::format("run '{}' is in use", root.string()),
                     status.holder,
                     "--dependency afterany:JOB of that job, or another --run");
    });
}

std::int64_t least_ranks(const JobRequest& request) {
    std::int64_t ranks = 0;
    for (const JobPart& part : request.parts)
        ranks += part.tasks.value_or(part.ranks_per_node() * part.node_count());
    return ranks;
}

void check_virtual_ranks(const SubmitOptions& options,
                         const JobRequest& request,
                         const TrainSettings& settings) {
    std::int64_t most = settings.virtual_ranks;
    const bool goes_on = !options.run.empty() && is_run(options.run) && !request.last_task;
    if (std::error_code missing; goes_on && fs::exists(RunPaths{options.run}.record(), missing)) {
        const Json contract = read_run_record(options.run).contract;
        if (contract.contains("virtual-ranks"))
            most = json_field<std::int64_t>(contract, "virtual-ranks", "run.json");
    }
    const std::int64_t ranks = least_ranks(request);
    check(most <= 0 || ranks <= most, [&] {
        return Error(
            "E640",
            fmt::format("{} ranks are requested, but the run has {} virtual ranks", ranks, most),
            "every rank needs a virtual rank of its own",
            fmt::format("--ntasks {}, or a new run with more --virtual-ranks", most));
    });
}

void check_memory(const SubmitOptions& options,
                  const JobRequest& request,
                  const TrainSettings& settings) {
    for (const JobPart& part : request.parts) {
        const auto needed =
            estimate_job(settings, part, options.parameters).node_memory_bytes >> 20;
        const auto asked = static_cast<std::uint64_t>(part.node_memory_mb);
        check(asked == 0 || asked >= needed, [&] {
            return Error("E528",
                         fmt::format("{} MB of memory per node are requested", asked),
                         fmt::format("{} rank(s) of a node take about {} MB (--dry-run shows why)",
                                     part.ranks_per_node(),
                                     needed),
                         fmt::format("--mem {}M, or fewer ranks on each node", needed));
        });
    }
}

// GPUs that ranks would not use, and ranks that would not get the GPUs that they must have.
void check_gpus(const JobRequest& request, const TrainSettings& settings) {
    for (const JobPart& part : request.parts) {
        check(part.node_gpus == 0 || settings.device != DeviceKind::cpu, [&] {
            return Error("E548",
                         fmt::format("{} GPUs per node are requested", part.node_gpus),
                         "--device cpu is given: the GPUs would not be used",
                         "drop --gpus-per-node and --gres, or give --device cuda");
        });
        check(part.node_gpus > 0 || settings.device != DeviceKind::cuda, [&] {
            return Error("E548",
                         "--device cuda is given, but no GPUs are requested",
                         "SLURM hides GPUs that a job did not request",
                         fmt::format("--gpus-per-node {} before --, or drop --device cuda",
                                     part.ranks_per_node()));
        });
    }
}

// A built-in model or a file, for ranks are started by the template's 'lockstep train'.
void check_model(const std::string& name) {
    std::error_code missing;
    if (fs::path(name).has_extension()) {
        const bool is_elsewhere = !fs::exists(fs::absolute(name).parent_path(), missing);
        check(is_elsewhere || fs::exists(name, missing), [&] {
            return Error("E201",
                         fmt::format("cannot open '{}': there is no such file", printable(name)),
                         "--model names a plug-in, a program of torch.export or a TorchScript file",
                         "give the path of one that is there: --model FILE");
        });
        return;
    }
    std::vector<std::string> names;
    for (const ModelFacts& model : built_in_models()) names.emplace_back(model.name);
    check(find_built_in(name) != nullptr, [&] {
        const std::string nearest = did_you_mean(name, names);
        return Error("E103",
                     fmt::format("no model '{}'", printable(name)),
                     fmt::format("there are {}", fmt::join(names, ", ")),
                     nearest.empty() ? "'lockstep models' lists them" : nearest);
    });
}

}  // namespace

void check_ranks_will_run(const SubmitOptions& options,
                          const JobRequest& request,
                          const TrainSettings& settings) {
    if (!options.data.empty()) check_data(options.data);
    if (!options.run.empty()) check_run(options, request);
    check_virtual_ranks(options, request, settings);
    check_memory(options, request, settings);
    check_gpus(request, settings);
    check_model(settings.model.name);
}

}  // namespace lockstep
