// SPDX-License-Identifier: Apache-2.0
#include "submit/submit_options.hpp"

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <map>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

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
                       1,
                       1000,
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
                       0,
                       1LL << 50,
                       "parameters of your model, for the estimate"),
          flag_option("dry-run", o.dry_run, "print script, map and estimate, submit nothing")}}};
}

namespace {

std::string place(const fs::path& path, const toml::node& node) {
    const auto at = node.source().begin;
    return fmt::format("{}:{}:{}", path.string(), at.line, at.column);
}

Error wrong_type(const fs::path& path,
                 const std::string& key,
                 const toml::node& node,
                 const std::string& needs) {
    return Error("E112",
                 fmt::format("{}: '{}' has the wrong type", place(path, node), key),
                 fmt::format("it needs {}", needs),
                 "see slurm/sites for examples");
}

std::vector<std::string> texts(const fs::path& path,
                               const std::string& key,
                               const toml::node& node) {
    const toml::array* list = node.as_array();
    check(list != nullptr, [&] { return wrong_type(path, key, node, "a list of texts"); });
    std::vector<std::string> found;
    for (const toml::node& item : *list) {
        const auto text = item.value_exact<std::string>();
        check(text.has_value(), [&] { return wrong_type(path, key, item, "texts"); });
        found.push_back(*text);
    }
    return found;
}

std::string* text_target(SitePreset& site, const std::string& key) {
    if (key == "name") return &site.name;
    if (key == "interface") return &site.interface;
    if (key == "account") return &site.account;
    if (key == "qos") return &site.qos;
    if (key == "constraint") return &site.constraint;
    if (key == "mem") return &site.memory;
    if (key == "partition") return &site.partition;
    if (key == "gpu-partition") return &site.gpu_partition;
    if (key == "preemptible-partition") return &site.preemptible_partition;
    return nullptr;
}

/// One of `choices` by its word.
template <class Value>
Value chosen(const fs::path& path,
             const std::string& key,
             const toml::node& node,
             const std::map<std::string, Value>& choices) {
    const auto found = choices.find(node.value_exact<std::string>().value_or(""));
    check(found != choices.end(), [&] {
        return wrong_type(
            path, key, node, fmt::format("one of {}", fmt::join(std::views::keys(choices), ", ")));
    });
    return found->second;
}

void assign(SitePreset& site,
            const fs::path& path,
            const std::string& key,
            const toml::node& node) {
    if (key == "modules") {
        site.modules = texts(path, key, node);
    } else if (key == "launcher") {
        site.launcher = chosen<Launcher>(
            path, key, node, {{"mpirun", Launcher::mpirun}, {"srun", Launcher::srun}});
    } else if (key == "container-runtime") {
        site.container_runtime = chosen<ContainerRuntime>(
            path,
            key,
            node,
            {{"apptainer", ContainerRuntime::apptainer}, {"pyxis", ContainerRuntime::pyxis}});
    } else if (key == "signal-seconds") {
        const auto seconds = node.value_exact<std::int64_t>();
        check(seconds && *seconds > 0 && *seconds < 65536,
              [&] { return wrong_type(path, key, node, "a whole number up to 65535"); });
        site.signal_s = *seconds;
    } else {
        std::string* target = text_target(site, key);
        check(target != nullptr, [&] {
            return Error("E111",
                         fmt::format("{}: unknown key '{}'", place(path, node), key),
                         "",
                         "see slurm/sites for the keys that there are");
        });
        const auto text = node.value_exact<std::string>();
        check(text.has_value(), [&] { return wrong_type(path, key, node, "a text"); });
        *target = *text;
    }
}

}  // namespace

SitePreset read_site_preset(const fs::path& path) {
    const std::string text = read_file(path, 1u << 20);
    check_toml_depth(text, path.string());
    try {
        SitePreset site;
        for (const auto& [key, node] : toml::parse(text, path.string()))
            assign(site, path, std::string(key.str()), node);
        return site;
    } catch (const toml::parse_error& error) {
        throw Error(
            "E110",
            fmt::format("{}:{}: {}", path.string(), error.source().begin.line, error.description()),
            "",
            "write it as KEY = VALUE, texts in quotes");
    }
}

}  // namespace lockstep
