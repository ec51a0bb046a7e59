// SPDX-License-Identifier: Apache-2.0

#include "ordered_work.hpp"

#include "lockstep/core/record.hpp"
#include "lockstep/data/team.hpp"

#include <sched.h>

namespace lockstep {

int usable_cores() {
    cpu_set_t own;
    CPU_ZERO(&own);
    return ::sched_getaffinity(0, sizeof own, &own) == 0 ? CPU_COUNT(&own) : 1;
}

void work_in_background() {
    const sched_param usual{};
    if (::sched_getscheduler(0) == SCHED_OTHER) ::sched_setscheduler(0, SCHED_BATCH, &usual);
}

int worker_count(int asked) {
    return asked > 0 ? asked : usable_cores();
}

std::optional<std::uint64_t> OrderedWork::claim() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock,
                [&] { return is_ended_ || next_ == count_ || next_ < used_ + places_.size(); });
    if (is_ended_ || next_ == count_) return {};
    return next_++;
}

void OrderedWork::finish(std::uint64_t piece, std::exception_ptr failure) {
    {
        const std::scoped_lock lock(mutex_);
        places_[piece % places_.size()] = {true, std::move(failure)};
    }
    made_.notify_one();
}

void OrderedWork::await(std::uint64_t piece) {
    std::unique_lock lock(mutex_);
    Place& place = places_[piece % places_.size()];
    made_.wait(lock, [&] { return place.is_made; });
    if (place.failure) std::rethrow_exception(place.failure);
}

void OrderedWork::free_place_of(std::uint64_t piece) {
    {
        const std::scoped_lock lock(mutex_);
        places_[piece % places_.size()] = {};
        used_ = piece + 1;
    }
    freed_.notify_all();
}

void OrderedWork::end() {
    {
        const std::scoped_lock lock(mutex_);
        is_ended_ = true;
    }
    freed_.notify_all();
}

std::vector<std::string> gather(const Team& team, const std::string& bytes) {
    if (team.size == 1) return {bytes};
    std::vector<std::string> all = team.all_gather(bytes);
    expect(all.size() == static_cast<std::size_t>(team.size), "every member of a team answers");
    return all;
}

void end_if_failed(const Team& team, const std::optional<Error>& mine) {
    for (const std::string& failure : gather(team, mine ? error_bytes(*mine) : ""))
        if (!failure.empty()) throw error_from_bytes(failure);
}

std::string by_root(const Team& team, const std::function<std::string()>& step) {
    std::string value;
    together(team, [&] {
        if (team.is_root()) value = step();
    });
    return gather(team, value)[0];
}

}  // namespace lockstep
