// SPDX-License-Identifier: Apache-2.0
#include "loop/inputs.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/content.hpp"
#include "lockstep/data/order.hpp"

#include "loop/data_feed.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Read in some seconds, and then mostly from memory by the first epoch.
constexpr std::uint64_t few_bytes = std::uint64_t{1} << 30;

enum class Content { same, other, unread, unknown };

Error other_files(const TrainSettings& settings, Content content) {
    const std::string what = fmt::format("run '{}' was made with other files than '{}' has now",
                                         settings.run.string(),
                                         settings.data.string());
    const auto error = [&](const std::string& why, const std::string& fix) {
        return Error("E306", what, why, fix);
    };
    if (content == Content::other)
        return error("samples, fields or blocks differ: the hash of their content is another",
                     "bring the files back, or use another run directory");
    const std::string outside = "names, sizes, times or places of data differ; ";
    if (content == Content::same)
        return error(outside + "all samples were compared and are the same",
                     "--accept-data continues with them");
    if (content == Content::unread)
        return error(outside + "samples were not compared",
                     "--accept-data reads all of them, and continues if they are the same");
    return error(
        outside + "the run has no hash of their content to compare with",
        "bring the files back with their times (cp -p, rsync -t), or use another run directory; "
        "one that is made with --accept-data keeps such a hash");
}

// Collective. What `open` gives on rank 0.
template <class Open>
std::shared_ptr<const DatasetIndex> opened_by_root(const Communicator& ranks, Open&& open) {
    std::shared_ptr<const DatasetIndex> opened;
    const std::string bytes = from_root(ranks, [&] {
        opened = std::make_shared<DatasetIndex>(open());
        const auto packed = opened->serialize();
        return std::string(reinterpret_cast<const char*>(packed.data()), packed.size());
    });
    if (opened) return opened;  // with the stamps of what was opened
    return std::make_shared<DatasetIndex>(DatasetIndex::deserialize(bytes_of(bytes)));
}

// Part of the data are the test data: one index, two parts of its samples.
void split_data(Start& start, Inputs& inputs) {
    const DatasetIndex& data = *inputs.data;
    inputs.test_data = inputs.data;
    inputs.samples = samples_in(data.blocks(), trained_part(start.settings));
    const std::uint64_t tested = data.samples() - inputs.samples;
    agree(start.ranks, [&] {
        check(inputs.samples > 0 && tested > 0, [&] {
            return Error("E215",
                         fmt::format("--split {} leaves {} samples to train on and {} to test on",
                                     start.settings.split,
                                     grouped(inputs.samples),
                                     grouped(tested)),
                         "a hash of its number decides which part a sample belongs to",
                         "use another share, or give --test-data");
        });
    });
    start.notes.push_back(
        fmt::format("split {}: {} samples to train on, {} to test on, by a hash of their numbers",
                    start.settings.split,
                    grouped(inputs.samples),
                    grouped(tested)));
    const bool has_statistics =
        std::ranges::any_of(data.fields(), [](const Field& field) { return !field.mean.empty(); });
    if (has_statistics)
        start.notes.push_back(
            "split: mean and deviation of a field are those of all samples, which "
            "were found when the data were packed; pack two data sets for others");
}

}  // namespace

Inputs open_inputs(Start& start) {
    const TrainSettings& settings = start.settings;
    const Communicator& ranks = start.ranks;
    const Links links = links_of(settings.follows_links);
    Inputs inputs;
    inputs.data = open_dataset(ranks, settings.data, settings.fields, links);
    inputs.samples = inputs.data->samples();
    if (settings.split > 0)
        split_data(start, inputs);
    else if (has_test_data(settings))
        inputs.test_data =
            open_test_dataset(ranks,
                              settings.test_data.empty() ? settings.data : settings.test_data,
                              settings.fields,
                              settings.test_fields,
                              links);
    return inputs;
}

std::shared_ptr<const DatasetIndex> open_dataset(const Communicator& ranks,
                                                 const fs::path& path,
                                                 const std::string& fields,
                                                 Links links) {
    return opened_by_root(
        ranks, [&] { return DatasetIndex::open(path, parse_field_mappings(fields, links)); });
}

std::shared_ptr<const DatasetIndex> open_test_dataset(const Communicator& ranks,
                                                      const fs::path& path,
                                                      const std::string& trained,
                                                      const std::string& own,
                                                      Links links) {
    return opened_by_root(ranks, [&] {
        return DatasetIndex::open_test(
            path, parse_field_mappings(trained, links), parse_field_mappings(own, links));
    });
}

std::string content_of(const Communicator& ranks, const std::shared_ptr<const DatasetIndex>& data) {
    const std::uint64_t bytes = content_bytes(*data);
    if (ranks.is_root() && bytes > few_bytes)
        once(Level::info, "reading {} of data once, for a hash of its content", bytes_text(bytes));
    auto hashes = agree(ranks, [&] { return content_hashes(data, ranks.rank(), ranks.size()); });
    ranks.all_reduce_sum(std::span(hashes));
    return content_digest(*data, hashes);
}

RunData settle_run_data(const Communicator& ranks,
                        const TrainSettings& settings,
                        const std::shared_ptr<const DatasetIndex>& data,
                        const Json& recorded) {
    agree(ranks, [&] { check_reading_memory(*data, settings.data_memory); });
    RunData run;
    run.facts["data-digest"] = data->digest();
    if (data->manifest().kind == ManifestKind::packed) return run;
    const bool may_read = settings.accepts_data || content_bytes(*data) <= few_bytes;
    const std::string digest = recorded.value("data-digest", "");
    const std::string content = recorded.value("data-content", "");
    if (recorded.empty() && may_read) run.facts["data-content"] = content_of(ranks, data);
    if (!content.empty()) run.facts["data-content"] = content;
    if (recorded.empty() || digest == data->digest()) return run;

    Content found = content.empty() ? Content::unknown : Content::unread;
    if (found == Content::unread && may_read)
        found = content_of(ranks, data) == content ? Content::same : Content::other;
    if (found != Content::same || !settings.accepts_data)
        agree_on_failure(ranks, other_files(settings, found));
    run.facts["data-digest"] = digest;
    run.note = fmt::format(
        "files of '{}' have other names or times than when the run was made; all {} samples were "
        "compared and are the same",
        settings.data.string(),
        grouped(data->samples()));
    return run;
}

}  // namespace lockstep
