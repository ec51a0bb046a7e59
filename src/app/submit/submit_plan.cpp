// SPDX-License-Identifier: Apache-2.0
#include "submit/submit_plan.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process.hpp"

#include "option_groups.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

bool is_path(const std::string& name, const std::string& ending) {
    return name.find('/') != name.npos || name.ends_with(ending);
}

// A file of `folder` by its name, or any by its path.
fs::path named_file(const fs::path& folder,
                    const std::string& kind,
                    const std::string& name,
                    const std::string& ending) {
    const fs::path path = is_path(name, ending) ? fs::path(name) : folder / (name + ending);
    std::error_code missing;
    if (fs::is_regular_file(path, missing)) return path;
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder, missing))
        if (entry.path().extension() == ending) names.push_back(entry.path().stem().string());
    std::ranges::sort(names);
    const std::string nearest = did_you_mean(name, names);
    throw Error("E539",
                fmt::format("there is no {} '{}'", kind, printable(name)),
                fmt::format("'{}' is no file", printable(path.string())),
                nearest.empty() ? fmt::format("ls {}", folder.string()) : nearest);
}

std::string chosen_template(const SubmitOptions& options,
                            const std::string& nodes,
                            Launcher launcher) {
    if (!options.template_name.empty()) return options.template_name;
    if (!options.het_partition.empty()) return "heterogeneous";
    if (options.chain > 1) return "time-limit-chain";
    if (nodes.empty() || nodes == "1") return "single-node";
    return launcher == Launcher::mpirun ? "multi-node-mpirun" : "multi-node-srun";
}

// The names that templates have for kinds of partitions, as the site calls them.
std::string site_partitions(const std::string& names, const SitePreset& site) {
    std::string found, name;
    for (const char c : names + ",") {
        if (c != ',') {
            name += c;
            continue;
        }
        const std::string& own = name == "debug"     ? site.partition
                                 : name == "gpu"     ? site.gpu_partition
                                 : name == "preempt" ? site.preemptible_partition
                                                     : name;
        found += (found.empty() ? "" : ",") + (own.empty() ? name : own);
        name.clear();
    }
    return found;
}

void apply_site(JobTemplate& script, const SitePreset& site) {
    for (SbatchOptions& part : script.parts)
        if (const auto names = value_of(part, "partition"))
            set_option(part, "partition", site_partitions(*names, site));
    SbatchOptions& first = script.parts.front();
    if (!value_of(first, "partition") && !site.partition.empty())
        set_option(first, "partition", site.partition);
    const std::pair<const char*, const std::string&> usual[] = {{"account", site.account},
                                                                {"qos", site.qos},
                                                                {"constraint", site.constraint},
                                                                {"mem", site.memory}};
    for (const auto& [name, value] : usual)
        if (!value.empty()) set_option(first, name, value);
}

// Options that were given, an empty text too.
void apply_flags(JobTemplate& script, const SubmitOptions& options, const Invocation& call) {
    SbatchOptions& first = script.parts.front();
    const auto gives = [&](const char* name) {
        return std::ranges::any_of(call.options, [&](const ResolvedOption& option) {
            return option.name == name && option.origin != "default";
        });
    };
    // All tasks of a job by their number: how the template spreads its own no longer says anything.
    if (gives("ntasks") && !gives("ntasks-per-node")) remove_option(first, "ntasks-per-node");
    if (gives("ntasks") && !gives("nodes") && options.template_name.empty())
        remove_option(first, "nodes");
    if (gives("mem-per-cpu") && !gives("mem")) remove_option(first, "mem");
    for (const ResolvedOption& option : call.options)
        if (option.origin != "default" && std::ranges::count(slurm_option_names(), option.name) > 0)
            set_option(first, option.name, option.text);
    if (options.exclusive) set_option(first, "exclusive", std::nullopt);
}

void apply_second_part(JobTemplate& script, const SubmitOptions& options) {
    const bool is_asked = !options.het_partition.empty();
    check_fits(is_asked || (options.het_nodes.empty() && options.het_node_tasks.empty()),
               "--het-nodes is given without --het-partition",
               "",
               "give both");
    if (!is_asked) return;
    script.parts.resize(2);
    SbatchOptions& part = script.parts.back();
    set_option(part, "partition", options.het_partition);
    if (!options.het_nodes.empty()) set_option(part, "nodes", options.het_nodes);
    if (!options.het_node_tasks.empty())
        set_option(part, "ntasks-per-node", options.het_node_tasks);
}

// SLURM requeues neither heterogeneous jobs nor, here, the members of a chain.
void settle_requeue(JobTemplate& script, const SubmitOptions& options) {
    SbatchOptions& first = script.parts.front();
    const bool is_array = value_of(first, "array").has_value();
    check_fits(options.chain == 1 || (!is_array && script.parts.size() == 1),
               "--chain goes neither with --array nor with --het-partition",
               "a chain is several jobs on one run");
    if (script.parts.size() > 1 || options.chain > 1) remove_option(first, "requeue");
    if (is_array && value_of(first, "output") == "%x-%j.out")
        set_option(first, "output", "%x-%A_%a.out");
    if (options.chain == 1) return;
    set_option(first, "no-requeue", std::nullopt);
    const auto awaited = value_of(first, "dependency");
    check_fits(!awaited || awaited->find('?') == awaited->npos,
               "--chain does not go with '?' in --dependency",
               "a chain also waits for its own last job, and SLURM accepts either '?' or ','",
               "wait for all of them, with ','");
    set_option(first, "dependency", awaited ? *awaited + ",singleton" : "singleton");
}

// mpirun passes the script's signal on; srun's ranks get it from SLURM.
void settle_signal(JobTemplate& script, Launcher launcher, const SitePreset& site) {
    SbatchOptions& first = script.parts.front();
    const auto signal = value_of(first, "signal");
    if (!signal || launcher == Launcher::none) return;
    const auto at = signal->find('@');
    const std::string lead = site.signal_s > 0    ? fmt::format("{}", site.signal_s)
                             : at == signal->npos ? "120"
                                                  : signal->substr(at + 1);
    set_option(first, "signal", (launcher == Launcher::srun ? "USR2@" : "B:USR1@") + lead);
}

ContainerRuntime runtime_of(const SubmitOptions& options, const SitePreset& site) {
    if (options.image.empty()) return ContainerRuntime::none;
    for (const ContainerRuntime runtime : {options.runtime, site.container_runtime})
        if (runtime != ContainerRuntime::none) return runtime;
    return ContainerRuntime::apptainer;
}

void check_image(const SubmitOptions& options, ContainerRuntime runtime) {
    const bool is_file = runtime == ContainerRuntime::apptainer
                             ? options.image.find("://") == options.image.npos
                             : options.image.ends_with(".sqsh");
    check(runtime == ContainerRuntime::none || !is_file || fs::exists(status_of(options.image)),
          [&] {
              return Error("E539",
                           fmt::format("there is no image '{}'", printable(options.image)),
                           "",
                           "give the path of a .sif or .sqsh file, or docker://NAME");
          });
    check(!options.image.starts_with('-'), [&] {
        return Error("E532",
                     fmt::format("--container is '{}'", printable(options.image)),
                     "it looks like an option",
                     "write ./ before it");
    });
}

// Returns the launcher of the ranks: the given one, the required one, the site's, or the
// template's.
Launcher settled_launcher(const SubmitOptions& options,
                          const SitePreset& site,
                          const JobTemplate& script,
                          ContainerRuntime runtime) {
    const bool needs_srun = script.parts.size() > 1 || runtime == ContainerRuntime::pyxis;
    check(!needs_srun || options.launcher != Launcher::mpirun, [&] {
        return Error("E537",
                     "--launcher mpirun cannot start this job",
                     script.parts.size() > 1 ? "mpirun sees the first part of the nodes only"
                                             : "pyxis is a part of srun",
                     script.parts.size() > 1
                         ? "--launcher srun, or --partition A,B where either would do"
                         : "--launcher srun, or --container-runtime apptainer");
    });
    if (needs_srun) return Launcher::srun;
    if (options.launcher != Launcher::none) return options.launcher;
    const Launcher own = launcher_of(script);
    const bool site_decides =
        own != Launcher::none && options.template_name.empty() && site.launcher != Launcher::none;
    return site_decides ? site.launcher : own;
}

// Those that job.sh reads.
std::vector<std::pair<std::string, std::string>> variables(const SubmitOptions& options,
                                                           const SitePreset& site,
                                                           const fs::path& root,
                                                           const SubmitPlan& plan) {
    std::vector<std::pair<std::string, std::string>> list = {{"LOCKSTEP_ROOT", root.string()}};
    if (!site.interface.empty()) list.emplace_back("NETWORK_INTERFACE", site.interface);
    if (!site.modules.empty())
        list.emplace_back("MODULES", fmt::format("{}", fmt::join(site.modules, " ")));
    if (!options.data.empty()) list.emplace_back("DATA", options.data.string());
    if (!options.run.empty()) list.emplace_back("RUN", options.run.string());
    // All of a chain share a run.
    else if (options.chain > 1)
        list.emplace_back("RUN", "runs/" + plan.request.job_name);
    if (plan.launcher != launcher_of(plan.script))
        list.emplace_back("LOCKSTEP_LAUNCHER", launcher_name(plan.launcher));
    if (options.image.empty()) return list;
    const bool is_pyxis = runtime_of(options, site) == ContainerRuntime::pyxis;
    list.emplace_back("LOCKSTEP_CONTAINER", options.image);
    list.emplace_back("LOCKSTEP_CONTAINER_RUNTIME", is_pyxis ? "pyxis" : "apptainer");
    return list;
}

// What is asked of the place where a template starts its ranks.
void check_starts_ranks(const JobTemplate& script, const SubmitOptions& options) {
    const bool is_asked = options.launcher != Launcher::none || !options.image.empty() ||
                          !options.het_partition.empty();
    check(!is_asked || launcher_of(script) != Launcher::none, [] {
        return Error("E531",
                     "this template does not say how ranks are started",
                     "it has no line 'run_ranks mpirun lockstep ...', which slurm/job.sh knows",
                     "take one of slurm/, or drop --launcher, --container and --het-partition");
    });
}

JobTemplate read_template(const SubmitOptions& options,
                          const Invocation& call,
                          const SitePreset& site,
                          const fs::path& root) {
    const auto nodes = std::ranges::find(call.options, "nodes", &ResolvedOption::name);
    const Launcher launcher = options.launcher == Launcher::none ? site.launcher : options.launcher;
    const std::string name =
        chosen_template(options, nodes == call.options.end() ? "" : nodes->text, launcher);
    const fs::path path = named_file(root / "slurm", "template", name, ".sbatch");
    return parse_template(path.string(), read_file(path, 1u << 20));
}

}  // namespace

fs::path find_root(const Environment& environment) {
    const fs::path program = fs::path(this_executable()).parent_path();
    std::vector<fs::path> candidates = {
        fs::current_path(), program / "../share/lockstep", program / "../../.."};
    if (const auto named = environment.text("LOCKSTEP_ROOT")) candidates = {*named};
    for (const fs::path& folder : candidates)
        if (fs::exists(status_of(folder / "slurm/job.sh"))) return fs::canonical(folder);
    throw Error("E539",
                "the templates were not found",
                fmt::format("'{}' has no slurm/job.sh", candidates.front().string()),
                "LOCKSTEP_ROOT=DIR, the checkout or the installation's share/lockstep");
}

SubmitPlan plan_submit(const SubmitOptions& options, const Invocation& call, const fs::path& root) {
    SitePreset site;
    if (!options.site.empty())
        site = read_site_preset(named_file(root / "slurm/sites", "site", options.site, ".toml"));
    SubmitPlan plan{.script = read_template(options, call, site, root)};
    apply_site(plan.script, site);
    apply_flags(plan.script, options, call);
    apply_second_part(plan.script, options);
    settle_requeue(plan.script, options);
    const ContainerRuntime runtime = runtime_of(options, site);
    check_image(options, runtime);
    check_starts_ranks(plan.script, options);
    plan.launcher = settled_launcher(options, site, plan.script, runtime);
    settle_signal(plan.script, plan.launcher, site);
    plan.request = read_request(plan.script.parts);
    plan.settings = {.variables = variables(options, site, root, plan), .words = call.job_words};
    return plan;
}

}  // namespace lockstep
