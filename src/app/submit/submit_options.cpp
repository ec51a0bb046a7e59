// SPDX-License-Identifier: Apache-2.0
#include "submit/submit_options.hpp"

namespace lockstep {
namespace {

struct SlurmOption {
    const char *name, *letter, *value, *help;
};

constexpr SlurmOption slurm_options[] = {
    {"partition", "p", "A,B", "any of these will do"},
    {"nodes", "N", "N", "2, or a range such as 1-4"},
    {"ntasks", "n", "N", "ranks of the whole job"},
    {"ntasks-per-node", "", "N", "ranks of each node"},
    {"cpus-per-task", "c", "N", "cores of each rank"},
    {"gpus-per-node", "", "N", "4, or h100:4"},
    {"mem", "", "SIZE", "of each node, such as 32G"},
    {"time", "t", "TIME", "MM, HH:MM:SS or D-HH:MM:SS"},
    {"account", "A", "NAME", "that pays"},
    {"qos", "q", "NAME", "quality of service"},
    {"constraint", "C", "A&B", "features that nodes must have"},
    {"exclude", "x", "NODES", "that it must not get, such as node[3,7]"},
    {"nodelist", "w", "NODES", "that it must get"},
    {"reservation", "", "NAME", "nodes that are kept for you"},
    {"licenses", "L", "NAME:N", "that it needs"},
    {"job-name", "J", "NAME", "letters, digits and . _ -"},
    {"array", "a", "LIST", "one job for each, such as 0-7%2; words after -- may use %a"},
    {"dependency", "d", "LIST", "afterok:4711, singleton"},
    {"gres", "", "LIST", "other things of each node"},
    {"mem-per-cpu", "", "SIZE", "of each core, such as 4G"},
    {"begin", "b", "TIME", "not before it"},
    {"comment", "", "TEXT", "letters, digits and . _ -"},
    {"mail-type", "", "LIST", "END, FAIL, ..."},
    {"mail-user", "", "NAME", "who gets the mail"},
    {"output", "o", "FILE", "%x and %j stand for name and number"},
    {"error", "e", "FILE", "stderr, apart from --output"}};

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
        flag_option("exclusive", options.exclusive, "whole nodes, for this job alone"));
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
         {text_option("het-partition", "NAME", o.het_partition, "its partition"),
          text_option("het-nodes", "N", o.het_nodes, "its nodes"),
          text_option("het-ntasks-per-node", "N", o.het_node_tasks, "its ranks of each node")}},
        {"The job",
         {text_option("template", "NAME", o.template_name, "of slurm/, or the path of your own"),
          text_option("site", "NAME", o.site, "of slurm/sites, or the path of your own"),
          choice_option<Launcher>(
              "launcher",
              o.launcher,
              {{"auto", Launcher::none}, {"mpirun", Launcher::mpirun}, {"srun", Launcher::srun}},
              "starts the ranks"),
          path_option("data", "DIR", o.data, "with train/ and test/"),
          path_option("run", "DIR", o.run, "run directory"),
          whole_option("chain", o.chain, 1, 1000, "so many jobs, one after the other, on one run"),
          text_option("container", "IMAGE", o.image, "start the ranks in it"),
          choice_option<ContainerRuntime>("container-runtime",
                                          o.runtime,
                                          {{"auto", ContainerRuntime::none},
                                           {"apptainer", ContainerRuntime::apptainer},
                                           {"pyxis", ContainerRuntime::pyxis}},
                                          "what starts it; auto: the site's, or apptainer"),
          whole_option("parameters", o.parameters, 0, 1LL << 50, "of your model, for the estimate"),
          flag_option("dry-run", o.dry_run, "print script, map and estimate, submit nothing")}}};
}

}  // namespace lockstep
