// SPDX-License-Identifier: Apache-2.0
// Turns slabs of windows into a batch: rows in the step's order, field by field.
//
//     slice of the step    lane 0 [4,8)  lane 1 [4,8)  ...      found_: (slab, first row, rows)
//     windows              (slab 3)      (not loaded yet)
//                           copied, its lane's old slab freed,  and only then waited for
//
// All parts are found first and then copied together, field after field. Only if a window is
// missing are the parts found so far copied at once.
//
// What must never happen: waiting while holding a slab that others need. The awaited window may
// itself wait for this slab.
//
// Tested: data/stream/batch_stream_test.cpp (least memory), reading_test.cpp (gathering).

#include "assembler.hpp"

#include "lockstep/core/clock.hpp"

#include "gather.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

Assembler::Assembler(const DatasetIndex& index, WindowPool& windows)
    : index_(index), windows_(windows), lanes_(windows.lanes()) {}

bool Assembler::assemble(const Step& step, BatchRoom& room) {
    const double since = now_s();
    waited_s_ = 0;
    room_ = &room;
    copied_ = 0;
    found_.clear();
    room.sample_ids.resize(step.rows);
    room.valid.clear();
    for (const LaneRange& part : step.slice)
        if (!find_part(step, part)) return false;
    copy_found();
    busy_s_ += now_s() - since - waited_s_;
    return true;
}

double Assembler::take_seconds() {
    return std::exchange(busy_s_, 0);
}

bool Assembler::find_part(const Step& step, const LaneRange& part) {
    for (std::uint64_t position = part.begin; position < part.end;) {
        const Current* const current = window_at(step.position.epoch, part.lane, position);
        if (!current) return false;
        const std::uint64_t end = std::min(part.end, current->range.end);
        found_.push_back({current->slab, position - current->range.begin, end - position});
        position = end;
    }
    return true;
}

const Assembler::Current* Assembler::window_at(std::uint64_t epoch,
                                               int lane,
                                               std::uint64_t position) {
    Current& current = lanes_[static_cast<std::size_t>(lane)];
    if (current.slab && current.epoch == epoch && position >= current.range.begin &&
        position < current.range.end)
        return &current;
    const Slab* slab = windows_.find(epoch, lane, position);
    if (slab) {
        left_.push_back(lane);
    } else {
        // The awaited window may need the slab of one that was left: so that is copied first.
        copy_found();
        const double since = now_s();
        slab = windows_.acquire(epoch, lane, position);
        waited_s_ += now_s() - since;
    }
    if (!slab) return nullptr;
    current = {slab, epoch, slab->window.range};
    return &current;
}

void Assembler::copy_found() {
    for (std::size_t f = 0; f < room_->places.size(); ++f) copy_field(f);
    for (const Found& found : found_) {
        std::copy_n(found.slab->samples.begin() + static_cast<std::ptrdiff_t>(found.first),
                    found.rows,
                    room_->sample_ids.begin() + static_cast<std::ptrdiff_t>(copied_));
        if (!found.slab->valid.empty()) copy_valid(found, copied_);
        copied_ += found.rows;
    }
    found_.clear();
    for (const int lane : left_) {
        const Current& current = lanes_[static_cast<std::size_t>(lane)];
        windows_.leave(current.epoch, lane, current.range.begin);
    }
    left_.clear();
}

void Assembler::copy_field(std::size_t field) {
    const std::size_t bytes = index_.fields()[field].bytes_per_sample();
    rows_.clear();
    for (const Found& found : found_) {
        const std::byte* const base = found.slab->fields[field].data();
        for (std::uint64_t i = 0; i < found.rows; ++i)
            rows_.push_back(base + found.slab->permutation[found.first + i] * bytes);
    }
    gather_rows(rows_, bytes, room_->places[field].data() + copied_ * bytes);
}

void Assembler::copy_valid(const Found& found, std::size_t row) {
    const auto valid = std::span(found.slab->valid).subspan(found.first, found.rows);
    const auto masked = static_cast<std::uint64_t>(std::ranges::count(valid, 0));
    if (masked == 0) return;
    masked_samples_ += masked;
    room_->valid.resize(room_->sample_ids.size(), 1);
    std::ranges::copy(valid, room_->valid.begin() + static_cast<std::ptrdiff_t>(row));
}

}  // namespace lockstep
