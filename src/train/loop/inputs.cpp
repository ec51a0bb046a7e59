// SPDX-License-Identifier: Apache-2.0
// Tested: e2e/data_test.cpp, e2e/numbers_test.cpp (statistics).
#include "loop/inputs.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/shared_window.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/content.hpp"
#include "lockstep/data/order.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/run_directory.hpp"

#include "task/input.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

// Part of the data are the test data: one index, two parts of its samples.
void split_data(Start& start, Inputs& inputs) {
    const DatasetIndex& data = *inputs.data;
    inputs.test_data = inputs.data;
    inputs.samples = samples_in(data.blocks(), trained_part(start.settings));
    const std::uint64_t tested = data.samples() - inputs.samples;
    agree(start.ranks, [&] {
        check(inputs.samples > 0 && tested > 0,
              "E215",
              fmt::format("--split {} leaves {} samples to train on and {} to test on",
                          start.settings.split,
                          grouped(inputs.samples),
                          grouped(tested)),
              "a hash of its number decides which part a sample belongs to",
              "use another share, or give --test-data");
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
    const auto described = [](const Field& field) {
        return fmt::format(
            "{} {} [{}]", field.name, element_name(field.type), fmt::join(field.shape, ", "));
    };
    agree(ranks, [&] {
        std::vector<std::string> there, wanted;
        for (const Field& field : all)
            if (!field.mean.empty()) there.push_back(described(field));
        for (const std::size_t place : places) wanted.push_back(described(index.fields()[place]));
        check(fields.size() == places.size(),
              "E217",
              fmt::format("'{}' has no mean and deviation of all inputs", where),
              fmt::format("it has those of {}; the inputs are {}",
                          there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")),
                          fmt::join(wanted, ", ")),
              "give --normalise dataset, which finds them by one pass of the data");
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
            open_dataset(ranks,
                         settings.test_data.empty() ? settings.data : settings.test_data,
                         settings.fields,
                         links,
                         settings.test_fields);
    return inputs;
}

std::shared_ptr<const DatasetIndex> open_dataset(const Communicator& ranks,
                                                 const fs::path& path,
                                                 const std::string& fields,
                                                 Links links,
                                                 const std::optional<std::string>& own) {
    std::shared_ptr<const DatasetIndex> opened;
    const std::string bytes = from_root(ranks, [&] {
        const auto mapped = parse_field_mappings(fields, links);
        opened = std::make_shared<DatasetIndex>(
            own ? DatasetIndex::open_test(path, mapped, parse_field_mappings(*own, links))
                : DatasetIndex::open(path, mapped));
        const auto packed = opened->serialize();
        return std::string(reinterpret_cast<const char*>(packed.data()), packed.size());
    });
    if (opened) return opened;  // with the stamps of what was opened
    return std::make_shared<DatasetIndex>(DatasetIndex::deserialize(bytes_of(bytes)));
}

std::string content_of(const Communicator& ranks, const std::shared_ptr<const DatasetIndex>& data) {
    const std::uint64_t bytes = content_bytes(*data);
    if (ranks.is_root() && bytes > few_bytes)
        once(Level::info, "reading {} of data once, for a hash of its content", bytes_text(bytes));
    auto hashes = agree(ranks, [&] { return content_hashes(data, ranks.rank(), ranks.size()); });
    ranks.all_reduce_sum(std::span(hashes));
    return content_digest(*data, hashes);
}

void settle_run_data(Start& start, Inputs& inputs, const Json& recorded) {
    const Communicator& ranks = start.ranks;
    TrainSettings& settings = start.settings;
    const DatasetIndex& data = *inputs.data;
    agree(ranks, [&] { check_reading_memory(data, settings.data_memory); });
    inputs.digests["data-digest"] = data.digest();
    if (data.manifest().kind == ManifestKind::packed) return;
    const bool may_read = settings.accepts_data || content_bytes(data) <= few_bytes;
    const std::string digest = recorded.value("data-digest", "");
    const std::string content = recorded.value("data-content", "");
    if (recorded.empty() && may_read)
        inputs.digests["data-content"] = content_of(ranks, inputs.data);
    if (!content.empty()) inputs.digests["data-content"] = content;
    if (recorded.empty() || digest == data.digest()) return;

    Content found = content.empty() ? Content::unknown : Content::unread;
    if (found == Content::unread && may_read)
        found = content_of(ranks, inputs.data) == content ? Content::same : Content::other;
    if (found != Content::same || !settings.accepts_data)
        agree_on_failure(ranks, other_files(settings, found));
    inputs.digests["data-digest"] = digest;
    settings.warnings.push_back(fmt::format(
        "files of '{}' have other names or times than when the run was made; all {} samples were "
        "compared and are the same",
        settings.data.string(),
        grouped(data.samples())));
}

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

SamplePart trained_part(const TrainSettings& settings) {
    return settings.split > 0 ? SamplePart::first(settings.split) : SamplePart{};
}

SamplePart tested_part(const TrainSettings& settings) {
    return settings.split > 0 ? SamplePart::second(settings.split) : SamplePart{};
}

StreamOptions stream_options(const TrainSettings& settings) {
    return {.order = settings.order,
            .seed = settings.seed,
            .lanes = settings.lanes,
            .window_blocks = settings.window_blocks,
            .batch = settings.batch,
            .short_step = settings.drops_last ? ShortStep::drop : ShortStep::keep,
            .virtual_ranks = settings.virtual_ranks,
            .io_threads = settings.io_threads,
            .memory_bytes = settings.data_memory,
            .page_cache = settings.page_cache,
            .on_bad_data = settings.on_bad_data};
}

DataFeed::DataFeed(const Communicator& ranks,
                   std::shared_ptr<const DatasetIndex> index,
                   const TrainSettings& settings,
                   std::uint64_t node_memory_bytes,
                   int load_threads)
    : ranks_(ranks),
      node_(ranks.split_by_node()),
      index_(std::move(index)),
      options_(stream_options(settings)) {
    options_.part = trained_part(settings);
    // Nodes may choose differently; the steps are the same, so that all agree on each.
    const DataMode mode =
        agree(ranks_, [&] { return choose(settings, node_memory_bytes, load_threads); });
    agree(ranks_, [&] {
        watch_.emplace(index_);
        if (mode == DataMode::resident) reserve();
    });
    agree(ranks_, [&] { load(load_threads); });
    if (!resident_) return;
    node_.barrier();
    resident_->seal();
}

void DataFeed::reserve() {
    if (node_.size() == 1) {
        resident_ = ResidentRows::in_own_memory(index_);
        return;
    }
    const std::uint64_t bytes = ResidentRows::bytes_needed(*index_);
    auto window = std::make_shared<SharedWindow>(node_, bytes);
    const std::span memory(window->data(), bytes);
    resident_ = std::make_shared<ResidentRows>(index_, memory, std::move(window));
}

void DataFeed::load(int threads) {
    if (!resident_) return;
    const double since = now_s();
    Progress progress("loading", 0, ProgressUnit::bytes);
    resident_->load({.part = node_.rank(),
                     .parts = node_.size(),
                     .threads = threads,
                     .on_bad_data = options_.on_bad_data,
                     .report = [&](std::uint64_t done, std::uint64_t) { progress.update(done); }});
    log_event(DataLoadedEvent{now_s() - since});
}

// One choice for a node: its first rank's.
DataMode DataFeed::choose(const TrainSettings& settings,
                          std::uint64_t node_memory_bytes,
                          int load_threads) const {
    const auto mode = [&] {
        if (settings.data_mode == DataMode::stream) return DataMode::stream;
        const int ranks = node_.size();
        const MemoryFacts facts{
            .bytes_needed = ResidentRows::bytes_needed(*index_),
            .loading_bytes = ResidentRows::loading_bytes(*index_, load_threads * ranks),
            .samples = index_->samples(),
            .budget_bytes = settings.data_memory * static_cast<std::uint64_t>(ranks),
            .free_bytes = node_memory_bytes,
            .shared_bytes = ranks > 1 ? free_bytes("/dev/shm") : node_memory_bytes};
        if (settings.data_mode == DataMode::resident) {
            check_resident(facts);
            return DataMode::resident;
        }
        const ModeChoice choice = choose_mode(facts);
        once(Level::info, "data are {}: {}", data_mode_name(choice.mode), choice.why);
        return choice.mode;
    };
    const std::string chosen =
        from_root(node_, [&] { return std::string(data_mode_name(mode())); });
    return chosen == data_mode_name(DataMode::resident) ? DataMode::resident : DataMode::stream;
}

void DataFeed::check_files() const {
    agree(ranks_, [&] { watch_->check(); });
}

std::unique_ptr<BatchStream> DataFeed::batches(LeafRange leaves,
                                               StreamPosition start,
                                               const PageLock& page_lock) const {
    StreamOptions options = options_;
    options.first_leaf = leaves.begin;
    options.last_leaf = leaves.end;
    options.memory_sharers = node_.size();
    options.page_lock = page_lock;
    auto stream = std::make_unique<BatchStream>(index_, options, start, resident_);
    once(Level::info, "data: {}", stream->memory_text());
    return stream;
}

}  // namespace lockstep
