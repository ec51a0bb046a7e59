// SPDX-License-Identifier: Apache-2.0
#include "submit/submit_plan.hpp"

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/split.hpp"

#include "option_groups.hpp"

#include <algorithm>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// Name, letter and value of each, and its help.
constexpr std::pair<const char*, const char*> slurm_options[] = {
    {"partition,p A,B", "partitions, of which SLURM takes one"},
    {"nodes,N N", "number of nodes, such as 2, or a range such as 1-4"},
    {"segment N", "nodes that must be in one block, such as the nodes of one NVLink switch"},
    {"ntasks,n N", "ranks of the whole job"},
    {"ntasks-per-node N", "ranks of each node"},
    {"cpus-per-task,c N", "cores of each rank"},
    {"gpus-per-node N", "GPUs of each node, such as 4 or h100:4"},
    {"mem SIZE", "memory of each node, such as 32G"},
    {"time,t TIME", "time limit: MM, HH:MM:SS or D-HH:MM:SS"},
    {"account,A NAME", "account that pays for the job"},
    {"qos,q NAME", "quality of service"},
    {"constraint,C A&B", "features that nodes must have"},
    {"exclude,x NODES", "nodes that the job must not get, such as node[3,7]"},
    {"nodelist,w NODES", "nodes that the job must get"},
    {"reservation NAME", "reservation to use"},
    {"licenses,L NAME:N", "licences that the job needs"},
    {"job-name,J NAME", "name of the job: letters, digits and . _ -"},
    {"array,a LIST", "task numbers of a job array, such as 0-7%2; words after -- may use %a"},
    {"dependency,d LIST", "jobs to wait for: afterok:4711, singleton"},
    {"gres LIST", "generic resources of each node"},
    {"mem-per-cpu SIZE", "memory of each core, such as 4G"},
    {"begin,b TIME", "earliest time of the start"},
    {"comment TEXT", "comment: letters, digits and . _ -"},
    {"mail-type LIST", "events that send a mail: END, FAIL, ..."},
    {"mail-user NAME", "who gets the mail"},
    {"output,o FILE", "output file; %x and %j stand for the job's name and number"},
    {"error,e FILE", "file for stderr; unset: the one of --output"}};

std::vector<Option> slurm_section(SubmitOptions& options) {
    std::vector<std::string>& values = options.slurm_values;
    values.resize(std::size(slurm_options));
    std::vector<Option> section;
    for (const auto& [spec, help] : slurm_options)
        section.push_back(text_option(spec, values[section.size()], help));
    section.push_back(
        flag_option("exclusive", options.exclusive, "use whole nodes for this job alone"));
    return section;
}

bool is_of_slurm(const std::string& name) {
    return std::ranges::any_of(slurm_options, [&](const auto& known) {
        const std::string_view spec = known.first;
        return spec.substr(0, spec.find_first_of(", ")) == name;
    });
}

/// A preset. Empty texts, 0 and none: the file does not say.
struct SitePreset {
    std::string name, interface, account, qos, constraint;
    std::string memory;  ///< of each node, as sbatch reads it
    Launcher launcher = Launcher::none;
    ContainerRuntime container_runtime = ContainerRuntime::none;
    std::string partition, gpu_partition, preemptible_partition;
    std::vector<std::string> modules;  ///< for `module load`
    std::int64_t signal_s = 0;         ///< seconds before the limit that the job is told
};

// The options have no more than their targets and types: no command line has them.
void assign_site_key(const std::vector<Option>& keys,
                     const std::string& key,
                     const ConfigEntry& entry) {
    const auto option = std::ranges::find(keys, key, &Option::name);
    check(option != keys.end(),
          "E111",
          fmt::format("{}: unknown key '{}'", entry.origin, key),
          "",
          "see slurm/sites for the keys that there are");
    const auto unfit = [&](const std::string& why) {
        return Error("E112",
                     fmt::format("{}: '{}' has the wrong type", entry.origin, key),
                     why,
                     "see slurm/sites for examples");
    };
    const bool is_list = option->kind == OptionKind::list;
    const bool is_whole = option->kind == OptionKind::whole;
    const bool fits = entry.list == (is_list ? ConfigList::texts : ConfigList::none) &&
                      std::holds_alternative<std::string>(entry.value) != is_whole;
    check(fits, [&] {
        return unfit(is_list    ? "it needs a list of texts"
                     : is_whole ? "it needs a whole number"
                                : "it needs a text");
    });
    try {
        option->assign({config_text(entry.value), entry.origin});
    } catch (const Error& error) {
        throw unfit(error.why());
    }
}

/// Errors: those of read_config(), E111 (unknown key), E112 (wrong type).
SitePreset read_site_preset(const fs::path& path) {
    SitePreset site;
    std::string modules;
    const std::vector<Option> keys = {
        text_option("name", site.name, ""),
        text_option("interface", site.interface, ""),
        text_option("account", site.account, ""),
        text_option("qos", site.qos, ""),
        text_option("constraint", site.constraint, ""),
        text_option("mem", site.memory, ""),
        text_option("partition", site.partition, ""),
        text_option("gpu-partition", site.gpu_partition, ""),
        text_option("preemptible-partition", site.preemptible_partition, ""),
        list_option("modules", modules, ""),
        whole_option("signal-seconds", site.signal_s, {1, 65535}, ""),
        choice_option("launcher",
                      site.launcher,
                      {{"mpirun", Launcher::mpirun}, {"srun", Launcher::srun}},
                      ""),
        choice_option(
            "container-runtime",
            site.container_runtime,
            {{"apptainer", ContainerRuntime::apptainer}, {"pyxis", ContainerRuntime::pyxis}},
            "")};
    for (const auto& [key, entry] : read_config(path)) assign_site_key(keys, key, entry);
    if (!modules.empty()) site.modules = split(modules, '\n');
    return site;
}

// A file of `folder` by its name, or any by its path.
fs::path named_file(const fs::path& folder,
                    const std::string& kind,
                    const std::string& name,
                    const std::string& ending) {
    const bool is_path = name.find('/') != name.npos || name.ends_with(ending);
    const fs::path path = is_path ? fs::path(name) : folder / (name + ending);
    std::error_code missing;
    if (fs::is_regular_file(path, missing)) return path;
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder, missing))
        if (entry.path().extension() == ending) names.push_back(entry.path().stem().string());
    std::ranges::sort(names);
    throw Error("E539",
                fmt::format("there is no {} '{}'", kind, printable(name)),
                fmt::format("'{}' is no file", printable(path.string())),
                did_you_mean(name, names, fmt::format("ls {}", folder.string())));
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
    std::string found;
    for (const std::string& name : split(names, ',')) {
        const std::string& own = name == "debug"     ? site.partition
                                 : name == "gpu"     ? site.gpu_partition
                                 : name == "preempt" ? site.preemptible_partition
                                                     : name;
        found += (found.empty() ? "" : ",") + (own.empty() ? name : own);
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
        if (option.origin != "default" && is_of_slurm(option.name))
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
          "E539",
          fmt::format("there is no image '{}'", printable(options.image)),
          "",
          "give the path of a .sif or .sqsh file, or docker://NAME");
    check(!options.image.starts_with('-'),
          "E532",
          fmt::format("--container is '{}'", printable(options.image)),
          "it looks like an option",
          "write ./ before it");
}

// Returns the launcher of the ranks: the given one, the required one, the site's, or the
// template's.
Launcher settled_launcher(const SubmitOptions& options,
                          const SitePreset& site,
                          const JobTemplate& script,
                          ContainerRuntime runtime) {
    const bool needs_srun = script.parts.size() > 1 || runtime == ContainerRuntime::pyxis;
    check(!needs_srun || options.launcher != Launcher::mpirun,
          "E537",
          "--launcher mpirun cannot start this job",
          script.parts.size() > 1 ? "mpirun sees the first part of the nodes only"
                                  : "pyxis is a part of srun",
          script.parts.size() > 1 ? "--launcher srun, or --partition A,B where either would do"
                                  : "--launcher srun, or --container-runtime apptainer");
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
    check(!is_asked || launcher_of(script) != Launcher::none,
          "E531",
          "this template does not say how ranks are started",
          "it has no line 'run_ranks mpirun lockstep ...', which slurm/job.sh knows",
          "take one of slurm/, or drop --launcher, --container and --het-partition");
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

OptionTable submit_option_table(SubmitOptions& o) {
    return {
        {"Options of SLURM, over those of the template", slurm_section(o)},
        {"A second part on other nodes (heterogeneous job)",
         {text_option("het-partition NAME", o.het_partition, "partition of the second part"),
          text_option("het-nodes N", o.het_nodes, "nodes of the second part"),
          text_option(
              "het-ntasks-per-node N", o.het_node_tasks, "ranks on each node of the second part")}},
        {"The job",
         {text_option(
              "template NAME", o.template_name, "template in slurm/, or the path of your own"),
          text_option("site NAME", o.site, "site file in slurm/sites, or the path of your own"),
          enum_option("launcher auto|mpirun|srun", o.launcher, "program that starts the ranks"),
          path_option("data DIR", o.data, "folder with the data sets train/ and test/"),
          path_option("run DIR", o.run, "run directory"),
          whole_option("chain",
                       o.chain,
                       {1, 1000},
                       "number of jobs that continue one run, one after the other"),
          text_option("container IMAGE", o.image, "container image to start the ranks in"),
          enum_option("container-runtime auto|apptainer|pyxis",
                      o.runtime,
                      "program that starts the container; auto: the site's, or apptainer"),
          whole_option("parameters",
                       o.parameters,
                       {0, 1LL << 50},
                       "parameters of your model, for the estimate"),
          flag_option("dry-run", o.dry_run, "print script, map and estimate, submit nothing")}}};
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
