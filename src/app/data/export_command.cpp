// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/run/progress.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <memory>

#include <fmt/format.h>

namespace lockstep {
namespace {

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
    check(first && last && *first >= 0 && *first <= *last && *last - *first < most, [&] {
        return Error("E103",
                     fmt::format("--sample is '{}'", text),
                     "it must be a number, or the first and last of a range, as in 100-199",
                     "without it all samples are exported");
    });
    for (std::int64_t sample = *first; sample <= *last; ++sample)
        samples.push_back(static_cast<std::uint64_t>(sample));
}

int export_samples(ExportArguments& arguments, const std::filesystem::path& where) {
    ExportOptions& options = arguments.options;
    check(!options.output.empty(),
          [] { return Error("E105", "--out is missing", "", "see --help"); });
    for (const std::string& text : arguments.samples) add_samples(text, options.samples);
    const auto index = std::make_shared<const DatasetIndex>(DatasetIndex::open(
        where, parse_field_mappings(arguments.fields, links_of(arguments.follows_links))));
    const std::uint64_t total = options.samples.empty() ? index->samples() : options.samples.size();
    Progress progress("export", total);
    export_dataset(
        index, options, [&](std::uint64_t done, std::uint64_t) { progress.update(done); });
    progress.finish();
    for (const Field& field : index->fields())
        print_once(fmt::format("{}: {} samples of {} [{}]\n",
                               (options.output / (field.name + ".npy")).string(),
                               grouped(total),
                               element_name(field.type),
                               fmt::join(field.shape, ", ")));
    return 0;
}

}  // namespace

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
                   joined(
                       joined({path_option("out", "DIR", arguments->options.output, "new folder")},
                              foreign_options(arguments->fields, arguments->follows_links)),
                       {list_option(
                           "sample",
                           "N|N-N",
                           arguments->samples,
                           "samples by number, in this order, once for each; unset: all")})}},
        .positionals = 1,
        .optional_positionals = most_data_words,
        .run = [arguments](const Invocation& call) {
            return export_samples(*arguments, data_of_words(call.positionals));
        }};
}

}  // namespace lockstep
