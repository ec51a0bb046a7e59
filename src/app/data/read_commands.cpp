// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/check.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/ledger.hpp"
#include "lockstep/run/progress.hpp"

#include "command.hpp"
#include "data/pack_inputs.hpp"
#include "option_groups.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct InspectArguments {
    InspectOptions options;
    int ranks = 0, nodes = 1;
    TrainSettings job;  ///< whose rows for the order of samples are taken
    std::string fields;
    bool follows_links = false;
};

int inspect(const fs::path& where, InspectArguments& arguments) {
    InspectOptions& options = arguments.options;
    options.links = links_of(arguments.follows_links);
    options.fields = parse_field_mappings(arguments.fields, options.links);
    options.columns = terminal_columns();
    if (arguments.ranks > 0)
        options.job = {.ranks = arguments.ranks,
                       .nodes = arguments.nodes,
                       .batch = arguments.job.batch,
                       .lanes = arguments.job.lanes,
                       .window_blocks = arguments.job.window_blocks,
                       .node_memory_bytes = read_node_facts().usable_memory_bytes()};
    print_once(inspect_data(where, options));
    return 0;
}

struct VerifyArguments {
    std::string fields;
    bool follows_links = false;
    int threads = 0;
};

void verify(const fs::path& where, const VerifyArguments& arguments, const Communicator& ranks) {
    Progress progress;
    const auto report = [&](std::uint64_t done, std::uint64_t total) {
        progress.update("verify", done, total, ProgressUnit::bytes);
    };
    const std::vector<FieldMapping> fields =
        parse_field_mappings(arguments.fields, links_of(arguments.follows_links));
    const auto findings = verify_data(where, fields, report, {arguments.threads, team_of(ranks)});
    progress.finish();
    if (findings.empty()) {
        const auto sound = fields.empty()
                               ? "is whole"
                               : "every block can be read; it has no hashes to compare with";
        if (ranks.is_root()) print_once(fmt::format("'{}' {}\n", where.string(), sound));
        return;
    }
    constexpr std::size_t shown = 8;
    for (std::size_t i = 0; ranks.is_root() && i < std::min(shown, findings.size()); ++i)
        print_once(fmt::format("{} {}\n", findings[i].code, printable(findings[i].text)));
    throw Error(findings.front().code,
                fmt::format("'{}' is damaged: {} finding(s)", where.string(), findings.size()),
                findings.size() > shown ? "the first are listed above" : "they are listed above",
                "restore the named files from their source, or pack again");
}

struct ExportArguments {
    std::string fields;
    bool follows_links = false;
    ExportOptions options;
    std::vector<std::string> samples;
};

// "7" or "100-199".
void add_samples(const std::string& text, std::vector<std::uint64_t>& samples) {
    const auto cut = text.find('-');
    const auto first = parse_integer(text.substr(0, cut));
    const auto last = cut == text.npos ? first : parse_integer(text.substr(cut + 1));
    constexpr std::int64_t most = 1 << 26;
    check(first && last && *first >= 0 && *first <= *last && *last - *first < most,
          "E103",
          fmt::format("--sample is '{}'", text),
          "it must be a number, or the first and last of a range, as in 100-199",
          "without it all samples are exported");
    for (std::int64_t sample = *first; sample <= *last; ++sample)
        samples.push_back(static_cast<std::uint64_t>(sample));
}

int export_samples(ExportArguments& arguments, const fs::path& where) {
    ExportOptions& options = arguments.options;
    check_given(!options.output.empty(), "out");
    for (const std::string& text : arguments.samples) add_samples(text, options.samples);
    const auto index = std::make_shared<const DatasetIndex>(DatasetIndex::open(
        where, parse_field_mappings(arguments.fields, links_of(arguments.follows_links))));
    const std::uint64_t total = options.samples.empty() ? index->samples() : options.samples.size();
    Progress progress("export", total);
    export_dataset(index, options, [&](std::uint64_t done) { progress.update(done); });
    progress.finish();
    for (const Field& field : index->fields())
        print_once(fmt::format("{}: {} samples of {} [{}]\n",
                               (options.output / (field.name + ".npy")).string(),
                               grouped(total),
                               element_name(field.type),
                               fmt::join(field.shape, ", ")));
    return 0;
}

int prove(const fs::path& run) {
    const LedgerReport report = check_ledger(run / "ledger");
    print_once(describe_ledger(report));
    check(report.is_exact(),
          "E229",
          fmt::format("'{}' did not see every sample exactly once", run.string()),
          "what is missing, seen twice or damaged is listed above",
          "see 'lockstep explain E229'");
    print_once(report.dropped > 0 ? "every sample but those dropped exactly once per epoch\n"
                                  : "every sample exactly once per epoch\n");
    return 0;
}

}  // namespace

Command data_inspect_command() {
    auto arguments = std::make_shared<InspectArguments>();
    return {
        .name = "data inspect",
        .summary = "show the contents of data, a model for them, and whether a job fits",
        .usage = "lockstep data inspect DIR|FILE... [options]",
        .text =
            "Shows the data sets of HDF5 files, or the fields of a packed data set, with type, "
            "size,\n"
            "storage and values. It says how often each class occurs, how well classes are mixed,\n"
            "and which command trains on the data, or what to do if none does. Of large data it\n"
            "reads rows from all over them, and says how many. FILE may be a folder or a pattern.\n"
            "Without --field the first file is listed, and up to 16 more are opened.\n"
            "With --ranks it compares the needs of such a job with this layout.\n\n"
            "Examples:\n"
            "  lockstep data inspect 'scans/*.h5'\n"
            "  lockstep data inspect scans/*.h5 --field images=/x/data:CHW --field labels=/y\n"
            "  lockstep data inspect data/fashion/train --ranks 8 --batch 512 --png some.png\n",
        .table = {foreign_group(arguments->fields, arguments->follows_links),
                  {"Job",
                   {whole_option(
                        "ranks", arguments->ranks, {0, 1 << 20}, "ranks of the job; 0: none"),
                    whole_option("nodes", arguments->nodes, {1, 1 << 20}, "nodes of the job")}},
                  train_rows("Training", arguments->job, {"batch", "lanes", "window-blocks"}),
                  {"Output",
                   {path_option("png OUT.png",
                                arguments->options.sheet,
                                "write some images side by side into a new file")}},
                  json_group(arguments->options.as_json)},
        .positionals = 1,
        .optional_positionals = most_data_words,
        .run = [arguments](const Invocation& call) {
            return inspect(data_of_words(call.positionals), *arguments);
        }};
}

Command data_verify_command() {
    auto arguments = std::make_shared<VerifyArguments>();
    return {
        .name = "data verify",
        .summary = "check every byte of a data set",
        .usage = "lockstep data verify DIR|FILE... [--threads N]",
        .text =
            "Reads every byte of all shards once: compares all hashes, decodes all blocks, checks\n"
            "labels. Names shard, field, block and offset of any damage. Under mpirun, ranks "
            "share\n"
            "the shards. Of HDF5 files that others wrote, each block is read and expanded, and\n"
            "compared with the checksums that it has.\n\n"
            "Examples:\n"
            "  lockstep data verify data/fashion/train\n"
            "  lockstep data verify scans/*.h5 --field images=/x/data --field labels=/y\n",
        .table = {{"How", {threads_option(arguments->threads)}},
                  foreign_group(arguments->fields, arguments->follows_links)},
        .positionals = 1,
        .optional_positionals = most_data_words,
        .run = [arguments](const Invocation& call) {
            const Communicator& ranks = call.process.ranks;
            agree(ranks, [&] { verify(data_of_words(call.positionals), *arguments, ranks); });
            return 0;
        }};
}

Command data_export_command() {
    auto arguments = std::make_shared<ExportArguments>();
    return {
        .name = "data export",
        .summary = "write a data set as NPY files",
        .usage = "lockstep data export DIR|FILE... --out DIR [--sample N]...",
        .text =
            "One NPY file per field, in stored order; every block's hash is checked, where it has\n"
            "one. 'data pack --npy' takes them back.\n\n"
            "Example:\n"
            "  lockstep data export data/fashion/test --out fashion-test\n",
        .table = {{"Export",
                   {path_option("out DIR", arguments->options.output, "new folder"),
                    list_option("sample N|N-N",
                                arguments->samples,
                                "samples by number, in this order, once for each; unset: all")}},
                  foreign_group(arguments->fields, arguments->follows_links)},
        .positionals = 1,
        .optional_positionals = most_data_words,
        .run = [arguments](const Invocation& call) {
            return export_samples(*arguments, data_of_words(call.positionals));
        }};
}

Command data_ledger_command() {
    return {.name = "data ledger",
            .summary = "prove that a run saw each sample once per epoch",
            .usage = "lockstep data ledger RUN",
            .text =
                "Reads what every rank of every start of the run recorded ('train --ledger') and\n"
                "counts, epoch by epoch, what the final model saw: missing, duplicate, superseded\n"
                "by a restart. Exit code 65 unless every sample was seen exactly once.\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return prove(call.positionals[0]); }};
}

}  // namespace lockstep
