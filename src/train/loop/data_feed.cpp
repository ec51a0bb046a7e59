// SPDX-License-Identifier: Apache-2.0
#include "loop/data_feed.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/shared_window.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/progress.hpp"

namespace lockstep {

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
