// SPDX-License-Identifier: Apache-2.0
#include "train/train_options.hpp"

#include "lockstep/core/log.hpp"

#include "option_groups.hpp"

namespace lockstep {
namespace {

std::vector<Option> ranks_options(TrainOptions& options) {
    const auto ranks = rank_options(options.np, options.oversubscribe);
    return {ranks[0],
            filled(text_option("hosts",
                               "HOST:N[,HOST:N]",
                               options.hosts,
                               "outside mpirun and srun: start N ranks on each host, over ssh")),
            ranks[1],
            flag_option("dry-run", options.dry_run, "print the mpirun line of --np and stop"),
            path_option("plan",
                        "FILE",
                        options.plan,
                        "stop unless ranks run as this plan of 'lockstep map' says"),
            list_option("skip-checks",
                        "ID[,ID]",
                        options.skip_checks,
                        "checks of 'lockstep doctor' to leave out at the start, or all")};
}

}  // namespace

// The settings' sections, the first and the last with what only the command line knows.
OptionTable train_option_table(TrainOptions& options) {
    OptionTable table = setting_table(options.settings);
    table.front().options.push_back(path_option(
        "config", "FILE", options.config, "TOML file with any of these options as 'name = value'"));
    const auto own = ranks_options(options);
    table.back().options.insert(table.back().options.begin(), own.begin(), own.end());
    return table;
}

void keep_origins(TrainSettings& settings, const std::vector<ResolvedOption>& resolved) {
    for (const ResolvedOption& option : resolved) {
        settings.origins[option.name] = {ConfigValue(option.text), option.origin};
        for (const GivenValue& weaker : option.overridden)
            if (weaker.text != option.text)
                once(Level::info,
                     "{} = {} ({}) overrides {} ({})",
                     option.name,
                     option.text,
                     option.origin,
                     weaker.text,
                     weaker.origin);
    }
}

}  // namespace lockstep
