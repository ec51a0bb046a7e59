// SPDX-License-Identifier: Apache-2.0
#include "sample_walk.hpp"

#include "team/ordered_work.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Rows from which a permutation takes longer than starting a thread.
constexpr std::uint64_t worth_a_thread = 1 << 15;

}  // namespace

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
        return {{step.order, epoch, range}, step.order->samples_of(range)};
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
        return Window{{std::move(order), epoch, range}, std::move(samples)};
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

}  // namespace lockstep
