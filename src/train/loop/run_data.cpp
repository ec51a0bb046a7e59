// SPDX-License-Identifier: Apache-2.0
#include "loop/run_data.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/content.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

// Size that is read in some seconds; afterwards the first epoch reads it mostly from memory.
constexpr std::uint64_t few_bytes = std::uint64_t{1} << 30;

enum class Content { same, other, unread, unknown };

// Collective.
std::string content_of(const Communicator& ranks, const std::shared_ptr<const DatasetIndex>& data) {
    const std::uint64_t bytes = content_bytes(*data);
    if (ranks.is_root() && bytes > few_bytes)
        once(Level::info, "reading {} of data once, for a hash of its content", bytes_text(bytes));
    auto hashes = agree(ranks, [&] { return content_hashes(data, ranks.rank(), ranks.size()); });
    ranks.all_reduce_sum(std::span(hashes));
    return content_digest(*data, hashes);
}

Error other_files(const TrainSettings& settings, Content content) {
    const std::string what = fmt::format("run '{}' was made with other files than '{}' has now",
                                         settings.run.string(),
                                         settings.data.string());
    const std::string outside = "names, sizes, times or places of data differ";
    switch (content) {
        case Content::same:
            return {"E306",
                    what,
                    outside + "; all samples were compared and are the same",
                    "--accept-data continues with them"};
        case Content::other:
            return {"E306",
                    what,
                    "samples, fields or blocks differ: the hash of their content is another",
                    "bring the files back, or use another run directory"};
        case Content::unread:
            return {"E306",
                    what,
                    outside + "; samples were not compared",
                    "--accept-data reads all of them, and continues if they are the same"};
        case Content::unknown:
            break;
    }
    return {
        "E306",
        what,
        outside + "; the run has no hash of their content to compare with",
        "bring the files back with their times (cp -p, rsync -t), or use another run directory; "
        "one that is made with --accept-data keeps such a hash"};
}

}  // namespace

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
