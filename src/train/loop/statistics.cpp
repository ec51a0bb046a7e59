// SPDX-License-Identifier: Apache-2.0
// Tested: e2e/numbers_test.cpp.
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/run/run_directory.hpp"

#include "loop/inputs.hpp"
#include "task/input.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// Inputs of numbers, and targets that are scaled, by their place.
std::vector<std::size_t> number_places(const DatasetIndex& index, const TrainSettings& settings) {
    std::vector<std::size_t> numbers;
    for (const GivenInput& input : given_inputs(index, settings))
        if (input.is_number(index)) numbers.push_back(input.place);
    if (settings.task.scales_targets) numbers.push_back(index.field_position("targets"));
    return numbers;
}

// Those of `all` for each of the inputs; nothing if one has none there.
std::vector<Field> found_in(const std::vector<Field>& all,
                            const DatasetIndex& index,
                            const std::vector<std::size_t>& places) {
    std::vector<Field> fields;
    for (const std::size_t place : places) {
        const Field& field = index.fields()[place];
        const auto found = std::ranges::find(all, field.name, &Field::name);
        const bool fits = found != all.end() && !found->mean.empty() && found->type == field.type &&
                          found->shape == field.shape;
        if (!fits) return {};
        fields.push_back(*found);
    }
    return fields;
}

std::vector<Field> fields_in(const std::string& text, const std::string& origin) {
    const bool is_kept = text.find("\"lockstep-kept-data\"") != text.npos;
    return parse_manifest(text, origin, is_kept ? ManifestKind::kept : ManifestKind::packed).fields;
}

// The text of a manifest or of a run's data.json; a folder has one of them.
std::string statistics_file(const fs::path& where) {
    std::error_code failed;
    for (const fs::path& file : {where, where / "data.json", where / manifest_name})
        if (fs::is_regular_file(file, failed)) return read_file(file);
    throw Error("E103",
                fmt::format("--normalise is '{}'", printable(where.string())),
                "there is no such file; else it must be auto, none, required, dataset, or "
                "FIELD=MEAN/DEVIATION for each field",
                "for example --normalise dataset");
}

std::vector<Field> of_file(const Communicator& ranks,
                           const std::string& where,
                           const DatasetIndex& index,
                           const std::vector<std::size_t>& places,
                           const std::string& text) {
    const std::vector<Field> all = agree(ranks, [&] { return fields_in(text, where); });
    std::vector<Field> fields = found_in(all, index, places);
    agree(ranks, [&] {
        std::vector<std::string> there, wanted;
        for (const Field& field : all)
            if (!field.mean.empty())
                there.push_back(fmt::format("{} {} [{}]",
                                            field.name,
                                            element_name(field.type),
                                            fmt::join(field.shape, ", ")));
        for (const std::size_t place : places)
            wanted.push_back(fmt::format("{} {} [{}]",
                                         index.fields()[place].name,
                                         element_name(index.fields()[place].type),
                                         fmt::join(index.fields()[place].shape, ", ")));
        check(fields.size() == places.size(), [&] {
            return Error(
                "E217",
                fmt::format("'{}' has no mean and deviation of all inputs", where),
                fmt::format("it has those of {}; the inputs are {}",
                            there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")),
                            fmt::join(wanted, ", ")),
                "give --normalise dataset, which finds them by one pass of the data");
        });
    });
    return fields;
}

// Collective. One pass of the data, of which each rank reads a part.
std::vector<Field> of_pass(const Start& start,
                           const std::shared_ptr<const DatasetIndex>& data,
                           const std::vector<std::size_t>& places) {
    constexpr double told_every_s = 10;
    const Communicator& ranks = start.ranks;
    const Team team{ranks.rank(), ranks.size(), [&ranks](const std::string& bytes) {
                        return ranks.all_gather(bytes);
                    }};
    const double begin_s = now_s();
    double told_s = begin_s;
    const auto tell = [&](const PackProgress& at) {
        if (now_s() - told_s < told_every_s) return;
        told_s = now_s();
        once(Level::info,
             "mean and deviation: {} of {} samples",
             grouped(at.done),
             grouped(at.total));
    };
    std::vector<Field> fields = find_statistics(data, places, team, start.settings.threads, tell);
    once(Level::info,
         "mean and deviation of {} samples found in {:.1f} s",
         grouped(data->samples()),
         now_s() - begin_s);
    if (start.settings.split > 0)
        once(Level::info, "split: they are those of all samples, trained on or not");
    return fields;
}

std::string digest_of(const std::vector<Field>& fields) {
    std::string text;
    for (const Field& field : fields)
        text += fmt::format(
            "{} {} {}\n", field.name, fmt::join(field.mean, " "), fmt::join(field.std, " "));
    return hash128(std::string_view(text)).hex();
}

}  // namespace

void settle_statistics(const Start& start, Inputs& inputs) {
    const TrainSettings& settings = start.settings;
    const Communicator& ranks = start.ranks;
    if (!brings_statistics(settings.normalise)) return;
    const auto places = agree(ranks, [&] { return number_places(*inputs.data, settings); });
    // A run that goes on has those that it began with.
    const std::string kept = from_root(ranks, [&] {
        const fs::path path = RunPaths{settings.run}.data();
        std::error_code failed;
        return fs::exists(path, failed) ? read_file(path) : "";
    });
    std::vector<Field> fields;
    if (!kept.empty()) fields = found_in(fields_in(kept, "data.json"), *inputs.data, places);
    if (settings.normalise != "dataset") {
        // A file that is gone is needed no more; another one must not be passed over.
        const std::string text = from_root(ranks, [&] {
            std::error_code failed;
            const bool is_gone = !fields.empty() && !fs::exists(settings.normalise, failed);
            return is_gone ? "" : statistics_file(settings.normalise);
        });
        if (!text.empty()) fields = of_file(ranks, settings.normalise, *inputs.data, places, text);
    } else if (fields.empty()) {
        fields = of_pass(start, inputs.data, places);
    }
    inputs.digests["statistics-digest"] = digest_of(fields);
    const bool is_tested_too = inputs.test_data == inputs.data;
    inputs.data = std::make_shared<const DatasetIndex>(inputs.data->with_statistics(fields));
    if (is_tested_too) inputs.test_data = inputs.data;
}

}  // namespace lockstep
