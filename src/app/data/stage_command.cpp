// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/run/progress.hpp"

#include "command.hpp"
#include "data/write_commands.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct StageArguments {
    StageOptions stage;
    bool checks_hashes = false, removes = false;
};

// The communicators of a StageTeam, which refers to them.
class StageRanks {
  public:
    explicit StageRanks(const Communicator& all) : all_(all), node_(all.split_by_node()) {
        leader_ = std::stoi(node_.all_gather(std::to_string(all.rank()))[0]);
        std::set<int> leaders;
        for (const std::string& leader : all.all_gather(std::to_string(leader_)))
            leaders.insert(std::stoi(leader));
        number_ = static_cast<int>(std::distance(leaders.begin(), leaders.find(leader_)));
        nodes_ = static_cast<int>(leaders.size());
        columns_ = node_.size();
        for (const std::string& size : all.all_gather(std::to_string(node_.size())))
            columns_ = std::min(columns_, std::stoi(size));
        column_ = all.split(std::min(node_.rank(), columns_));
        rank_of_node_.resize(leaders.size());
        const auto numbers = column_.all_gather(std::to_string(number_));
        if (node_.rank() >= columns_) return;
        for (std::size_t rank = 0; rank < numbers.size(); ++rank)
            rank_of_node_[static_cast<std::size_t>(std::stoi(numbers[rank]))] =
                static_cast<int>(rank);
    }
    StageRanks& operator=(StageRanks&&) = delete;

    StageTeam team() const {
        return {.all = team_of(all_),
                .node = team_of(node_),
                .node_number = number_,
                .nodes = nodes_,
                .columns = columns_,
                .broadcast = [this](std::string bytes, int owner) {
                    return column_.broadcast(std::move(bytes),
                                             rank_of_node_[static_cast<std::size_t>(owner)]);
                }};
    }

  private:
    const Communicator& all_;
    Communicator node_, column_;
    int leader_ = 0, number_ = 0, nodes_ = 1, columns_ = 1;
    std::vector<int> rank_of_node_;  // in the column
};

void stage(StageArguments& arguments, const Communicator& all) {
    StageOptions& options = arguments.stage;
    const StageRanks ranks(all);
    options.team = ranks.team();
    options.trust = arguments.checks_hashes ? StageTrust::hashes : StageTrust::sizes;
    const SignalGuard signals;
    Progress progress;
    const StageResult result = stage_dataset(options, [&](const StageProgress& at) {
        stop_if_asked("staging");
        progress.update("stage", at.done, at.total, ProgressUnit::bytes);
    });
    progress.finish();
    if (!all.is_root()) return;
    print_once(fmt::format("'{}' has {} ({} read from '{}' for {} node(s))\n",
                           options.target.string(),
                           bytes_text(result.dataset_bytes),
                           bytes_text(result.sent_bytes),
                           options.source.string(),
                           options.team.nodes));
}

// One rank of each node removes its copy.
void unstage(const fs::path& target, const Communicator& all) {
    const Communicator node = all.split_by_node();
    agree(all, [&] {
        if (node.is_root()) unstage_dataset(target);
    });
    if (all.is_root()) print_once(fmt::format("removed '{}'\n", target.string()));
}

int run_stage(const Invocation& call, StageArguments& arguments) {
    const Communicator& all = call.process.ranks;
    StageOptions& options = arguments.stage;
    options.source = call.positionals[0];
    agree(all, [&] {
        check_given(arguments.removes || !options.target.empty(), "to");
        if (!arguments.removes && all.is_root()) check_is_packed(options.source);
    });
    if (arguments.removes)
        unstage(options.source, all);
    else
        agree(all, [&] { stage(arguments, all); });
    return 0;
}

}  // namespace

Command data_stage_command() {
    auto arguments = std::make_shared<StageArguments>();
    return {
        .name = "data stage",
        .summary = "copy a data set to each node's own disk",
        .usage = "lockstep data stage DIR --to LOCAL_DIR | lockstep data stage LOCAL_DIR --unstage",
        .text =
            "Under mpirun or srun, each of N nodes reads 1/N of the bytes from the shared file\n"
            "system and sends them to the others; the ranks of a node share the work. What "
            "arrives\n"
            "is compared with the manifest's hashes before it gets its name. A copy that is there\n"
            "already is used, and repaired where files are missing or have other sizes.\n\n"
            "Example:\n"
            "  mpirun -np 8 --map-by node lockstep data stage /shared/train --to /local/train\n"
            "  mpirun -np 8 --map-by node lockstep data stage /local/train --unstage\n",
        .table = {{"Copy",
                   {path_option(
                        "to", "DIR", arguments->stage.target, "target folder on each node's disk"),
                    flag_option("check",
                                arguments->checks_hashes,
                                "read an existing copy and compare its hashes"),
                    flag_option(
                        "unstage", arguments->removes, "remove the copy, DIR, from every node")}}},
        .positionals = 1,
        .run = [arguments](const Invocation& call) { return run_stage(call, *arguments); }};
}

}  // namespace lockstep
