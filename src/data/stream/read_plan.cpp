// SPDX-License-Identifier: Apache-2.0
// Two independent walks over the same steps: the assembler's over samples and the I/O threads' over
// windows.
//
//     StepWalk     step 0: lane 0 [0,4) lane 1 [0,4)   step 1: lane 0 [4,8) ...   a batch's rows
//     WindowWalk   w(0,0)  w(1,0)  ........  w(1,1)  w(0,1) ...                   by first need
//
// They agree because both are pure functions of (blocks, options, start), down to the short last
// step of an epoch and into the next one. A rank's slice of a step is contiguous in (lane,
// position), so that it touches few lanes and stays in their windows for long.
//
// What must never happen:
// - A window comes later than one that is needed after it. The pool has a slab for each lane held
//   and one more: windows out of order could fill it with what nobody can use yet, and all would
//   wait.
// - lanes_held() is too small, for the same reason. It walks one whole period of steps, from the
//   beginning of an epoch and from the start, and each one's short last step.
// - A walk that finds no sample for this rank for a whole epoch goes on looking: it ends.
//
// Tested: data/stream/batch_stream_test.cpp (any options against the order; least memory; ranks
// that never have a sample), order_test.cpp beside it.

#include "read_plan.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/order.hpp"

#include "ordered_work.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

OrderSpec order_spec(const StreamOptions& options) {
    return {options.order, options.seed, options.lanes, options.window_blocks, options.part};
}

namespace {

// Returns the place after which no step of an epoch begins.
std::uint64_t end_of_steps(std::int64_t batch, std::uint64_t samples, ShortStep short_step) {
    const auto step = static_cast<std::uint64_t>(batch);
    return short_step == ShortStep::keep || samples < step ? samples : samples - step + 1;
}

std::vector<LaneRange> own_slice(const StreamOptions& options,
                                 const EpochOrder& order,
                                 std::uint64_t begin,
                                 std::uint64_t end) {
    const int first = options.first_leaf, last = options.last_leaf;
    return leaf_slice(begin, end, order.lanes(), first, last, options.virtual_ranks);
}

// Where a permutation takes longer than starting a thread does.
constexpr std::uint64_t worth_a_thread = 1 << 15;

constexpr double nearly_once = 1.05;

// What of a band's rows are in one block of the order is expanded with the whole band.
std::uint64_t blocks_touched(const std::vector<RowBlock>& order,
                             std::size_t& first,
                             const StoredBlock& band) {
    const std::uint64_t end = band.first_row + band.rows;
    while (order[first].first + order[first].rows <= band.first_row) ++first;
    std::size_t last = first;
    while (last + 1 < order.size() && order[last + 1].first < end) ++last;
    return last - first + 1;
}

// At most, by windows that find nothing kept: mean over the first epochs of the usual lanes, for
// which blocks lie on borders changes with each.
double most_reads_of_a_block(const std::vector<RowBlock>& blocks) {
    constexpr std::uint64_t epochs = 4;
    std::uint64_t reads = 0;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
        reads += EpochOrder(blocks, {}, epoch).block_reads();
    return static_cast<double>(reads) / static_cast<double>(epochs * blocks.size());
}

std::string cost_text(const DatasetIndex& index, std::size_t number) {
    const Field& field = index.fields()[number];
    const StoredBlock& block = index.stored_blocks(number)[0];
    const Cut& cut = *index.cut_of(block);
    const std::uint64_t row_bytes = cut.chunk_elements() * element_bytes(field.type);
    const double times = times_expanded(index, number);
    const double most = times * most_reads_of_a_block(index.blocks());
    const std::uint64_t rows =
        std::min<std::uint64_t>(index.manifest().block_rows, index.samples());
    return fmt::format(
        "chunks of '{}', {} x {}, cut samples: in lanes order each byte is expanded {:.1f} "
        "times{}, in blocks of {} samples ({}); {}",
        field.name,
        block.decoded_bytes / row_bytes,
        fmt::join(cut.chunk, " x "),
        times,
        most < nearly_once * times
            ? std::string()
            : fmt::format(" (up to {:.1f} by several ranks or with little memory)", most),
        grouped(rows),
        bytes_text(rows * field.bytes_per_sample()),
        times < nearly_once ? "packing would save nothing but memory, and add hashes"
                            : "in packed shards it is expanded once");
}

}  // namespace

StreamPosition next_position(StreamPosition position,
                             std::int64_t batch,
                             std::uint64_t samples,
                             ShortStep short_step) {
    const std::uint64_t end = position.consumed + static_cast<std::uint64_t>(batch);
    return end >= end_of_steps(batch, samples, short_step) ? StreamPosition{position.epoch + 1, 0}
                                                           : StreamPosition{position.epoch, end};
}

StreamPosition normalized(StreamPosition position,
                          const StreamOptions& options,
                          std::uint64_t samples) {
    check(options.short_step == ShortStep::keep ||
              samples >= static_cast<std::uint64_t>(options.batch),
          "E106",
          fmt::format("{} samples do not fill a step of {}", grouped(samples), options.batch),
          "steps that are not full are dropped, and no other is left",
          "use a smaller --batch, or no --drop-last");
    check(position.consumed <= samples,
          "E306",
          fmt::format("cannot begin after {} samples of epoch {}",
                      grouped(position.consumed),
                      position.epoch),
          fmt::format("the data set has {}", grouped(samples)),
          "resume with the data set that the run was made with");
    return position.consumed >= end_of_steps(options.batch, samples, options.short_step)
               ? StreamPosition{position.epoch + 1, 0}
               : position;
}

StepWalk::StepWalk(std::vector<RowBlock> blocks, const StreamOptions& options, StreamPosition start)
    : blocks_(blocks_in(std::move(blocks), options.part)), options_(options), position_(start) {
    position_ = normalized(start, options, enter_epoch().samples());
}

const EpochOrder& StepWalk::enter_epoch() {
    if (!order_ || order_->epoch() != position_.epoch)
        order_ = std::make_shared<const EpochOrder>(blocks_, order_spec(options_), position_.epoch);
    return *order_;
}

Step StepWalk::next() {
    const std::uint64_t samples = enter_epoch().samples(), begin = position_.consumed;
    const std::uint64_t end = std::min(begin + static_cast<std::uint64_t>(options_.batch), samples);
    Step step{.position = position_, .order = order_};
    step.next = next_position(position_, options_.batch, samples, options_.short_step);
    step.samples = end - begin;
    step.slice = own_slice(options_, *order_, begin, end);
    for (const LaneRange& part : step.slice) step.rows += part.size();
    position_ = step.next;
    return step;
}

WindowWalk::WindowWalk(std::vector<RowBlock> blocks,
                       const StreamOptions& options,
                       StreamPosition start)
    : steps_(std::move(blocks), options, start),
      step_(steps_.next()),
      epoch_(step_.position.epoch),
      last_(static_cast<std::size_t>(step_.order->lanes())) {}

void WindowWalk::add_windows_of(const Step& step) {
    for (const LaneRange& part : step.slice)
        for (std::uint64_t position = part.begin; position < part.end;) {
            EpochWindow& last = last_[static_cast<std::size_t>(part.lane)];
            if (!last.holds(step.position.epoch, position)) {
                last = {step.order, step.order->window_at(part.lane, position)};
                queued_.push_back(last);
            }
            position = last.range.end;
        }
}

std::optional<EpochWindow> WindowWalk::next() {
    for (; queued_.empty(); step_ = steps_.next()) {
        // An epoch begun and ended without a sample: so are all others.
        if (step_.position.epoch > epoch_ + 1) return {};
        add_windows_of(step_);
        if (step_.rows > 0) epoch_ = step_.position.epoch;
    }
    EpochWindow first = std::move(queued_.front());
    queued_.pop_front();
    return first;
}

std::set<int> lanes_held(const std::vector<RowBlock>& blocks,
                         const StreamOptions& options,
                         StreamPosition start) {
    StepWalk walk(blocks, options, start);
    const Step first = walk.next();
    const auto lanes = static_cast<std::uint64_t>(first.order->lanes());
    const auto batch = static_cast<std::uint64_t>(options.batch);
    const std::uint64_t samples = first.order->samples();
    // The lanes of a step repeat after this many steps; only an epoch's last step is different.
    const std::uint64_t period = lanes / std::gcd(lanes, batch);
    std::set<int> touched;
    const auto touch = [&](std::uint64_t begin) {
        const std::uint64_t end = std::min(begin + batch, samples);
        for (const LaneRange& part : own_slice(options, *first.order, begin, end))
            touched.insert(part.lane);
    };
    for (const std::uint64_t origin : {std::uint64_t{0}, first.position.consumed}) {
        for (std::uint64_t i = 0; i < period && origin + i * batch < samples; ++i)
            touch(origin + i * batch);
        if (origin < samples) touch(origin + (samples - origin - 1) / batch * batch);
    }
    return touched;
}

std::uint64_t most_rows(const StreamOptions& options, std::uint64_t samples) {
    const auto step = std::min(static_cast<std::uint64_t>(options.batch), samples);
    const auto leaves = static_cast<std::uint64_t>(options.last_leaf - options.first_leaf);
    return step * leaves / static_cast<std::uint64_t>(options.virtual_ranks) + 1;
}

SampleWalk::SampleWalk(std::vector<RowBlock> blocks,
                       const StreamOptions& options,
                       StreamPosition start)
    : blocks_(blocks_in(blocks, options.part)),
      spec_(order_spec(options)),
      steps_(std::move(blocks), options, start) {}

StepSamples SampleWalk::next() {
    StepSamples next{steps_.next(), {}};
    const Step& step = next.step;
    next.ids.reserve(step.rows);
    for (const LaneRange& part : step.slice)
        for (std::uint64_t position = part.begin; position < part.end;) {
            const Window& window = window_at(step, part.lane, position);
            const std::uint64_t begin = window.at.range.begin;
            const std::uint64_t end = std::min(part.end, window.at.range.end);
            next.ids.insert(next.ids.end(),
                            window.samples.begin() + static_cast<std::ptrdiff_t>(position - begin),
                            window.samples.begin() + static_cast<std::ptrdiff_t>(end - begin));
            position = end;
        }
    return next;
}

const SampleWalk::Window& SampleWalk::window_at(const Step& step,
                                                int lane,
                                                std::uint64_t position) {
    lanes_.resize(static_cast<std::size_t>(step.order->lanes()));
    Window& window = lanes_[static_cast<std::size_t>(lane)];
    if (!window.at.holds(step.position.epoch, position)) {
        window = {};  // before the next is made: no more than one is held
        window = make_window(step, lane, position);
        rows_permuted_ += window.samples.size();
    }
    return window;
}

SampleWalk::Window SampleWalk::make_window(const Step& step, int lane, std::uint64_t position) {
    const std::uint64_t epoch = step.position.epoch;
    if (spec_.kind != OrderKind::uniform || step.order->samples() < worth_a_thread) {
        const LaneRange range = step.order->window_at(lane, position);
        return {{step.order, range}, step.order->samples_of(range)};
    }
    if (!ahead_.valid()) look_ahead(epoch);
    Window window = ahead_.get();
    if (!window.at.holds(epoch, position)) {
        look_ahead(epoch);
        window = ahead_.get();
    }
    look_ahead(epoch + 1);
    return window;
}

void SampleWalk::look_ahead(std::uint64_t epoch) {
    ahead_ = std::async(std::launch::async, [this, epoch] {
        work_in_background();
        auto order = std::make_shared<const EpochOrder>(blocks_, spec_, epoch);
        const LaneRange range = order->window_at(0, 0);
        std::vector<std::uint32_t> samples = order->samples_of(range);
        return Window{{std::move(order), range}, std::move(samples)};
    });
}

std::uint64_t SampleWalk::memory_bytes(const std::vector<RowBlock>& blocks,
                                       const StreamOptions& options) {
    const EpochOrder order(blocks_in(blocks, options.part), order_spec(options), 0);
    const auto lanes = static_cast<std::uint64_t>(order.lanes());
    const std::uint64_t windows = options.order == OrderKind::uniform ? 2 : lanes;
    const std::uint64_t block_bytes = sizeof(RowBlock) + sizeof(std::uint64_t);
    return windows * order.max_window_rows() * sizeof(std::uint32_t) +
           4 * blocks.size() * block_bytes;
}

double times_expanded(const DatasetIndex& index, std::size_t field) {
    const std::vector<RowBlock> order = index.blocks();
    double once = 0, all = 0;
    std::size_t first = 0;
    for (const StoredBlock& block : index.stored_blocks(field)) {
        const auto bytes = static_cast<double>(block.decoded_bytes);
        once += bytes;
        all += bytes * static_cast<double>(blocks_touched(order, first, block));
    }
    return all / once;
}

std::vector<std::string> cut_costs(const DatasetIndex& index) {
    std::vector<std::string> lines;
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        if (index.stored_blocks(f)[0].cut != 0) lines.push_back(cost_text(index, f));
    return lines;
}

}  // namespace lockstep
