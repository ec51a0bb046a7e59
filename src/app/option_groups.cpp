// SPDX-License-Identifier: Apache-2.0
#include "option_groups.hpp"

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::int64_t asked_ranks(const Invocation& call, const std::string& hosts) {
    const auto np = std::ranges::find(call.options, "np", &ResolvedOption::name);
    if (np != call.options.end() && np->origin != "default")
        return parse_integer(np->text).value_or(0);
    std::int64_t slots = 0;
    if (!hosts.empty())
        for (const HostSlots& host : parse_hosts(hosts)) slots += host.slots;
    return slots;
}

}  // namespace

void check_given(bool is_given, const std::string& option, const std::string& fix) {
    check(is_given, [&] { return Error("E105", fmt::format("--{} is missing", option), "", fix); });
}

void check_fits(bool fits,
                const std::string& what,
                const std::string& why,
                const std::string& fix) {
    check(fits, [&] { return Error("E106", what, why, fix); });
}

void check_output_place(const fs::path& file) {
    const fs::path end = end_of_links(file);
    const auto folder = end.has_parent_path() ? end.parent_path() : fs::path(".");
    const auto there = status_of(file);
    const bool is_folder = fs::is_directory(there);
    const bool is_writable = fs::is_other(there)  // a pipe or device, which is written as it is
                                 ? ::access(file.c_str(), W_OK) == 0
                                 : ::access(folder.c_str(), W_OK | X_OK) == 0;
    const int reason = is_writable ? 0 : errno;
    check(reason == 0 && !is_folder,
          "E401",
          fmt::format("'{}' cannot be written", file.string()),
          is_folder ? "it is a folder" : std::strerror(reason),
          "give another file with --out");
}

RemovedFolder make_scratch_folder(const fs::path& parent,
                                  const std::string& purpose,
                                  const std::string& fix) {
    std::string name = parent / ("lockstep-" + purpose + "-XXXXXX");
    check(::mkdtemp(name.data()) != nullptr, [&] {
        return Error("E401",
                     fmt::format("cannot make a folder in '{}'", parent.string()),
                     std::strerror(errno),
                     fix);
    });
    return RemovedFolder(name);
}

void check_one_process(const Invocation& call, const std::string& name, const std::string& as) {
    agree(call.process.ranks, [&] {
        check_fits(call.process.ranks.size() == 1,
                   fmt::format("'lockstep {}' under a launcher of several ranks", name),
                   as,
                   "call it without mpirun or srun");
    });
}

void check_no_launcher(const Invocation& call, const std::string& name) {
    const std::string why = "it starts ranks of its own";
    check_one_process(call, name, why);
    // The batch script and salloc's shell are steps of SLURM's own, or none.
    constexpr std::int64_t first_special_step = 4294967000;
    const auto step = Environment().integer("SLURM_STEP_ID");
    check_fits(!launched_by_mpi() && step.value_or(first_special_step) >= first_special_step,
               fmt::format("'lockstep {}' under a launcher of one rank", name),
               why,
               "call it without mpirun or srun; in a shell that one of them started, first: unset "
               "${!OMPI_COMM_WORLD_*} ${!PMI*} ${!SLURM_*}");
}

OptionSection train_rows(const std::string& title,
                         TrainSettings& settings,
                         const std::vector<std::string>& names) {
    const OptionTable table = setting_table(settings);
    OptionSection section{title, {}};
    for (const std::string& name : names) section.options.push_back(find_option(table, name));
    return section;
}

OptionSection json_group(bool& target) {
    return {"Output form", {flag_option("json", target, "print JSON, for programs")}};
}

OptionSection rehearsal_group(bool& target) {
    return {"Rehearsal",
            {flag_option("dry-run", target, "print what would be done, and change nothing")}};
}

ProgressSink progress_sink(bool is_json) {
    return is_json ? ProgressSink::beside_output() : ProgressSink::log_sink();
}

OptionSection start_group(std::int64_t& target) {
    return {
        "Start of the run",
        {whole_option(
            "incarnation", target, {0, 1'000'000'000}, "start of the run to read; 0: the newest")}};
}

void check_start(std::int64_t start, std::int64_t newest) {
    check(start <= newest,
          "E102",
          fmt::format("--incarnation is {}", start),
          newest == 0   ? "no start of the run has logs"
          : newest == 1 ? "the run has one start"
                        : fmt::format("the run has starts 1 to {}", newest),
          "0 or nothing: the newest");
}

OptionSection ranks_section(int& np, bool& oversubscribe) {
    return {"Ranks",
            {whole_option(
                 "np", np, {0, 65536}, "outside mpirun and srun: start N ranks on this machine"),
             flag_option("oversubscribe", oversubscribe, "allow more ranks than cores")}};
}

Option hosts_option(std::string& target) {
    return filled(text_option("hosts HOST:N[,HOST:N]",
                              target,
                              "outside mpirun and srun: start N ranks on each host, over ssh"));
}

Option threads_option(int& target) {
    return whole_option("threads", target, {0, 1024}, "threads of each rank; 0: one per core");
}

OptionSection foreign_group(std::string& fields, bool& follows_links) {
    return {"HDF5 files that others wrote",
            {field_option("field", fields, "field in HDF5 files that others wrote, as for train"),
             links_option(follows_links)}};
}

OptionSection data_set_group(PackOptions& pack, bool& restart) {
    Choices<Codec> codecs;
    for (const Codec each : {Codec::none, Codec::deflate, Codec::lz4, Codec::zstd})
        codecs.emplace_back(codec_name(each), each);
    return {
        "New data set",
        {path_option("out DIR", pack.output, "new folder of the data set"),
         text_option("name NAME", pack.name, "name of the shards; unset: the name of DIR"),
         choice_option("codec", pack.codec, codecs, "compression of the blocks"),
         whole_option("level", pack.level, {0, 22}, "compression level; 0: the codec's default"),
         whole_option(
             "shards", pack.shards, {0, 100'000}, "number of files; 0: about 512 MiB each"),
         threads_option(pack.threads),
         flag_option("restart",
                     restart,
                     "discard the shards that an unfinished command left instead of continuing")}};
}

OptionSection checkpoint_group(std::string& step) {
    return {"Checkpoint of a run",
            {filled(text_option("step N|best|newest",
                                step,
                                "checkpoint to use: that of a step, the best or the newest"))}};
}

OptionSection weights_group(fs::path& weights, fs::path& train_data) {
    return {"Weights of a run",
            {path_option(
                 "weights FILE",
                 weights,
                 "file of weights to use instead of a checkpoint, as train --load-weights takes"),
             data_option("train-data",
                         train_data,
                         "training data of a run of an earlier version, which does not have what "
                         "it needs of them")}};
}

OptionSection waiting_group(double& seconds) {
    return {"Waiting for a run",
            {duration_option(
                "timeout", seconds, "how long to wait for the run; 0: as long as it takes")}};
}

OptionSection giving_up_group(fs::path& run, RequeueLimits& limits) {
    return {"Run, and when to give up (exit code 93)",
            {path_option("run DIR", run, "the run directory given to 'train --run'"),
             whole_option("max-restarts", limits.restarts, {0, 100'000}, "restarts of this job"),
             whole_option("max-idle-starts",
                          limits.idle_starts,
                          {1, 100'000},
                          "starts in a row that bring no new checkpoint")}};
}

void check_rank_count(const Invocation& call, const std::string& hosts) {
    if (!launched_by_mpi()) return;
    const Communicator& ranks = call.process.ranks;
    agree(ranks, [&] {
        check_asked_ranks(call.process.facts->launch(), asked_ranks(call, hosts), ranks.size());
    });
}

}  // namespace lockstep
