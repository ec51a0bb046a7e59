// SPDX-License-Identifier: Apache-2.0
#include "contents.hpp"

#include "lockstep/data/axes.hpp"
#include "lockstep/data/foreign.hpp"

#include "foreign.hpp"
#include "format/labels.hpp"
#include "hdf5/sandbox.hpp"
#include "hdf5/shard_probe.hpp"

#include <algorithm>
#include <numeric>
#include <system_error>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_lines = 20;

bool is_whole_number(const DatasetFacts& facts) {
    return facts.type ? is_whole(*facts.type) : facts.number && facts.number->is_whole;
}

bool is_one_number_a_sample(const DatasetFacts& facts) {
    return facts.size.size() == 1 || (facts.size.size() == 2 && facts.size[1] == 1);
}

double elements(const DatasetFacts& facts) {
    return std::accumulate(
        facts.size.begin(), facts.size.end(), 1.0, [](double product, std::uint64_t size) {
            return product * static_cast<double>(size);
        });
}

// Of a model's input, by its dimensions: [n, C, H, W], [n, H, W] or [n, features].
std::string input_option(const Candidate& input) {
    const std::vector<std::int64_t> shape(input.facts.size.begin() + 1, input.facts.size.end());
    if (shape.size() == 3)
        return fmt::format(
            "--field images={}:{}", input.name, may_have_channels_last(shape) ? "HWC" : "CHW");
    return fmt::format("--field {}={}", shape.size() == 2 ? "images" : "features", input.name);
}

// Whether samples come from such a file, and not from a packed data set.
bool is_packed(const fs::path& where) {
    std::error_code failed;
    return fs::exists(where / "manifest.json", failed);
}

// None where there are none: what to say then is not said here.
std::vector<fs::path> files_at(const fs::path& where) {
    try {
        return foreign_files(where);
    } catch (const Error&) {
        return {};
    }
}

}  // namespace

std::vector<Candidate> candidates_of(const fs::path& file) {
    std::vector<Candidate> all;
    for (const std::string& name : Sandbox().list(file).datasets) {
        const std::vector<FieldMapping> field{{"field", name, RowLayout::value}};
        all.push_back(ForeignOpening({file}, field).look());
    }
    return all;
}

std::string list_text(const std::vector<Candidate>& all) {
    if (all.empty()) return "it has no data sets";
    std::string text = "it has";
    for (const Candidate& each : std::span(all).first(std::min(all.size(), most_lines)))
        text += fmt::format("\n    {}: {} [{}]{}{}",
                            each.name,
                            each.facts.type_text,
                            fmt::join(each.facts.size, ", "),
                            each.obstacle.empty() ? "" : ", which cannot be streamed: ",
                            each.obstacle);
    if (all.size() > most_lines) text += fmt::format("\n    and {} more", all.size() - most_lines);
    return text;
}

std::string suggested_fields(const std::vector<Candidate>& all) {
    const Candidate* input = nullptr;
    for (const Candidate& each : all) {
        const std::size_t dimensions = each.facts.size.size();
        const bool may_be = each.obstacle.empty() && dimensions >= 2 && dimensions <= 4 &&
                            !is_one_number_a_sample(each.facts);
        if (may_be && (!input || elements(each.facts) > elements(input->facts))) input = &each;
    }
    if (!input) return "";
    const auto label = std::ranges::find_if(all, [&](const Candidate& each) {
        return each.obstacle.empty() && is_one_number_a_sample(each.facts) &&
               is_whole_number(each.facts) && each.facts.size[0] == input->facts.size[0];
    });
    const std::string labels =
        label == all.end() ? "" : fmt::format(" --field labels={}", label->name);
    return input_option(*input) + labels;
}

Error no_such_dataset(const fs::path& file, const std::string& wanted, const std::string& field) {
    const std::vector<Candidate> all = candidates_of(file);
    std::vector<std::string> names;
    for (const Candidate& each : all) names.push_back(each.name);
    const std::string meant = did_you_mean(wanted, names), suggested = suggested_fields(all);
    return Error("E207",
                 fmt::format("'{}' has no data set '{}'", file.string(), wanted),
                 fmt::format("it was given as field '{}'; {}", field, list_text(all)),
                 !meant.empty()      ? meant
                 : suggested.empty() ? "give the path of a data set"
                                     : "name what is there, such as " + suggested);
}

void check_needs_no_fields(const fs::path& where) {
    if (is_packed(where)) return;
    const std::vector<fs::path> files = files_at(where);
    if (files.empty() || !is_hdf5(files[0])) return;
    check_is_whole_hdf5(files[0], 0);
    const std::vector<Candidate> all = candidates_of(files[0]);
    const std::string suggested = suggested_fields(all);
    throw Error(
        "E216",
        fmt::format("'{}' is no packed data set", where.string()),
        fmt::format("'{}' is HDF5 that somebody else wrote; {}", files[0].string(), list_text(all)),
        suggested.empty() ? "say which of it are fields: --field NAME=PATH"
                          : "say which of it are fields, such as " + suggested);
}

}  // namespace lockstep
