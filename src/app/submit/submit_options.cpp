// SPDX-License-Identifier: Apache-2.0
#include "submit/submit_options.hpp"

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct SlurmOption {
    const char *name, *letter, *value, *help;
};

constexpr SlurmOption slurm_options[] = {
    {"partition", "p", "A,B", "partitions, of which SLURM takes one"},
    {"nodes", "N", "N", "number of nodes, such as 2, or a range such as 1-4"},
    {"segment", "", "N", "nodes that must be in one block, such as the nodes of one NVLink switch"},
    {"ntasks", "n", "N", "ranks of the whole job"},
    {"ntasks-per-node", "", "N", "ranks of each node"},
    {"cpus-per-task", "c", "N", "cores of each rank"},
    {"gpus-per-node", "", "N", "GPUs of each node, such as 4 or h100:4"},
    {"mem", "", "SIZE", "memory of each node, such as 32G"},
    {"time", "t", "TIME", "time limit: MM, HH:MM:SS or D-HH:MM:SS"},
    {"account", "A", "NAME", "account that pays for the job"},
    {"qos", "q", "NAME", "quality of service"},
    {"constraint", "C", "A&B", "features that nodes must have"},
    {"exclude", "x", "NODES", "nodes that the job must not get, such as node[3,7]"},
    {"nodelist", "w", "NODES", "nodes that the job must get"},
    {"reservation", "", "NAME", "reservation to use"},
    {"licenses", "L", "NAME:N", "licences that the job needs"},
    {"job-name", "J", "NAME", "name of the job: letters, digits and . _ -"},
    {"array", "a", "LIST", "task numbers of a job array, such as 0-7%2; words after -- may use %a"},
    {"dependency", "d", "LIST", "jobs to wait for: afterok:4711, singleton"},
    {"gres", "", "LIST", "generic resources of each node"},
    {"mem-per-cpu", "", "SIZE", "memory of each core, such as 4G"},
    {"begin", "b", "TIME", "earliest time of the start"},
    {"comment", "", "TEXT", "comment: letters, digits and . _ -"},
    {"mail-type", "", "LIST", "events that send a mail: END, FAIL, ..."},
    {"mail-user", "", "NAME", "who gets the mail"},
    {"output", "o", "FILE", "output file; %x and %j stand for the job's name and number"},
    {"error", "e", "FILE", "file for stderr; unset: the one of --output"}};

Option slurm_option(const SlurmOption& known, std::string& target) {
    Option option = text_option(known.name, known.value, target, known.help);
    return *known.letter == '\0' ? option : with_letter(known.letter, std::move(option));
}

std::vector<Option> slurm_section(SubmitOptions& options) {
    std::vector<std::string>& values = options.slurm_values;
    values.resize(std::size(slurm_options));
    std::vector<Option> section;
    for (std::size_t i = 0; i < values.size(); ++i)
        section.push_back(slurm_option(slurm_options[i], values[i]));
    section.push_back(
        flag_option("exclusive", options.exclusive, "use whole nodes for this job alone"));
    return section;
}

// The options have no more than their targets and types: no command line has them.
void assign_site_key(const std::vector<Option>& keys,
                     const std::string& key,
                     const ConfigEntry& entry) {
    const auto option = std::ranges::find(keys, key, &Option::name);
    check(option != keys.end(), [&] {
        return Error("E111",
                     fmt::format("{}: unknown key '{}'", entry.origin, key),
                     "",
                     "see slurm/sites for the keys that there are");
    });
    const auto unfit = [&](const std::string& why) {
        return Error("E112",
                     fmt::format("{}: '{}' has the wrong type", entry.origin, key),
                     why,
                     "see slurm/sites for examples");
    };
    const bool is_list = option->kind == OptionKind::list;
    const bool is_whole = option->kind == OptionKind::whole;
    const bool fits =
        entry.is_list == is_list && std::holds_alternative<std::string>(entry.value) != is_whole;
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

}  // namespace

const std::vector<std::string>& slurm_option_names() {
    static const auto names = [] {
        std::vector<std::string> list;
        for (const SlurmOption& option : slurm_options) list.emplace_back(option.name);
        return list;
    }();
    return names;
}

OptionTable submit_option_table(SubmitOptions& o) {
    return {
        {"Options of SLURM, over those of the template", slurm_section(o)},
        {"A second part on other nodes (heterogeneous job)",
         {text_option("het-partition", "NAME", o.het_partition, "partition of the second part"),
          text_option("het-nodes", "N", o.het_nodes, "nodes of the second part"),
          text_option("het-ntasks-per-node",
                      "N",
                      o.het_node_tasks,
                      "ranks on each node of the second part")}},
        {"The job",
         {text_option(
              "template", "NAME", o.template_name, "template in slurm/, or the path of your own"),
          text_option("site", "NAME", o.site, "site file in slurm/sites, or the path of your own"),
          choice_option<Launcher>(
              "launcher",
              o.launcher,
              {{"auto", Launcher::none}, {"mpirun", Launcher::mpirun}, {"srun", Launcher::srun}},
              "program that starts the ranks"),
          path_option("data", "DIR", o.data, "folder with the data sets train/ and test/"),
          path_option("run", "DIR", o.run, "run directory"),
          whole_option("chain",
                       o.chain,
                       {1, 1000},
                       "number of jobs that continue one run, one after the other"),
          text_option("container", "IMAGE", o.image, "container image to start the ranks in"),
          choice_option<ContainerRuntime>(
              "container-runtime",
              o.runtime,
              {{"auto", ContainerRuntime::none},
               {"apptainer", ContainerRuntime::apptainer},
               {"pyxis", ContainerRuntime::pyxis}},
              "program that starts the container; auto: the site's, or apptainer"),
          whole_option("parameters",
                       o.parameters,
                       {0, 1LL << 50},
                       "parameters of your model, for the estimate"),
          flag_option("dry-run", o.dry_run, "print script, map and estimate, submit nothing")}}};
}

SitePreset read_site_preset(const fs::path& path) {
    SitePreset site;
    std::string modules;
    const std::vector<Option> keys = {
        text_option("name", "", site.name, ""),
        text_option("interface", "", site.interface, ""),
        text_option("account", "", site.account, ""),
        text_option("qos", "", site.qos, ""),
        text_option("constraint", "", site.constraint, ""),
        text_option("mem", "", site.memory, ""),
        text_option("partition", "", site.partition, ""),
        text_option("gpu-partition", "", site.gpu_partition, ""),
        text_option("preemptible-partition", "", site.preemptible_partition, ""),
        list_option("modules", "", modules, ""),
        whole_option("signal-seconds", site.signal_s, {1, 65535}, ""),
        choice_option<Launcher>("launcher",
                                site.launcher,
                                {{"mpirun", Launcher::mpirun}, {"srun", Launcher::srun}},
                                ""),
        choice_option<ContainerRuntime>(
            "container-runtime",
            site.container_runtime,
            {{"apptainer", ContainerRuntime::apptainer}, {"pyxis", ContainerRuntime::pyxis}},
            "")};
    for (const auto& [key, entry] : read_config(path, ConfigLists::taken))
        assign_site_key(keys, key, entry);
    if (!modules.empty()) site.modules = split(modules, '\n');
    return site;
}

}  // namespace lockstep
