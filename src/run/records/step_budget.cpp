// SPDX-License-Identifier: Apache-2.0
// The file is a header of 64 bytes and places of 64, little endian:
//
//     "LOCKSTEP" | u32 version | u32 phases | zeros || i64 step | f64 ended | f32 seconds[12] ||
//     ...
//
// Step n of this start (from 0) is in place n modulo the capacity. Unwritten places have step 0.
#include "lockstep/run/step_budget.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t place_bytes = 64, most_waiting = 64;
constexpr double longest_waiting_s = 1;  // so that a reader sees the present state of a slow run

struct Header {
    std::array<char, 8> magic{'L', 'O', 'C', 'K', 'S', 'T', 'E', 'P'};
    std::uint32_t version = 1, phases = static_cast<std::uint32_t>(Phase::count);
    std::array<std::uint64_t, 6> zeros{};
    bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == place_bytes);

struct Place {
    std::int64_t step = 0;
    double ended_unix_s = 0;
    std::array<float, 12> seconds{};
};
static_assert(sizeof(Place) == place_bytes);
static_assert(static_cast<std::size_t>(Phase::count) <=
              std::tuple_size_v<decltype(Place::seconds)>);

Place place_of(const StepBudget& budget) {
    Place place{budget.step, budget.ended_unix_s, {}};
    std::transform(budget.phases.begin(), budget.phases.end(), place.seconds.begin(), [](double s) {
        return static_cast<float>(s);
    });
    return place;
}

StepBudget budget_in(const Place& place) {
    StepBudget budget{place.step, place.ended_unix_s, {}};
    std::copy_n(place.seconds.begin(), budget.phases.size(), budget.phases.begin());
    return budget;
}

/// Whether a rank wrote it: damage makes any numbers. Differences of times may be off by their
/// rounding.
bool is_sound(const Place& place) {
    constexpr double longest_s = 1e9, rounding_s = 1e-3, last_unix_s = 1e11;
    const auto is_time = [](float s) { return s >= -rounding_s && s <= longest_s; };
    return place.step > 0 && place.ended_unix_s >= 0 && place.ended_unix_s <= last_unix_s &&
           std::all_of(place.seconds.begin(), place.seconds.end(), is_time);
}

/// The parts of each step as one.
std::vector<StepBudget> joined(const std::vector<StepBudget>& parts) {
    std::vector<StepBudget> steps;
    for (const StepBudget& part : parts) {
        if (steps.empty() || steps.back().step != part.step)
            steps.push_back(part);
        else
            steps.back() += part;
    }
    return steps;
}

}  // namespace

StepBudget& StepBudget::operator+=(const StepBudget& next) {
    ended_unix_s = next.ended_unix_s;
    phases += next.phases;
    return *this;
}

fs::path step_budgets_path(const fs::path& logs, int rank) {
    return logs / fmt::format("rank-{:05}.steps", rank);
}

StepBudgetFile::StepBudgetFile(const fs::path& path, std::size_t capacity)
    : path_(path),
      file_(open_for_writing(path, O_WRONLY | O_CREAT | O_TRUNC)),
      capacity_(capacity) {
    check(static_cast<bool>(file_), [&] { return system_error("create", path.string(), errno); });
    const std::array header{Header{}};
    write_all(file_.value(), std::as_bytes(std::span(header)), path);
    waiting_.reserve(most_waiting);
}

StepBudgetFile::~StepBudgetFile() {
    flush();
}

void StepBudgetFile::add(const StepBudget& budget) {
    waiting_.push_back(budget);
    const double waited_s = budget.ended_unix_s - waiting_.front().ended_unix_s;
    if (waiting_.size() >= most_waiting || waited_s >= longest_waiting_s) flush();
}

void StepBudgetFile::flush() {
    std::vector<Place> places(waiting_.size());
    std::transform(waiting_.begin(), waiting_.end(), places.begin(), place_of);
    for (std::span<const Place> rest(places); !rest.empty() && file_;) {
        const std::size_t at = written_ % capacity_;
        const auto now = rest.first(std::min(rest.size(), capacity_ - at));
        if (try_write_at(file_.value(), std::as_bytes(now), (1 + at) * place_bytes) != 0)
            file_.reset();
        written_ += now.size();
        rest = rest.subspan(now.size());
    }
    waiting_.clear();
}

std::vector<StepBudget> read_step_budgets(const fs::path& path) {
    std::error_code failed;
    if (!fs::exists(path, failed) && !failed) return {};
    const std::string bytes = read_file(path);
    Header header;
    const auto is_header = [&] {
        if (bytes.size() < sizeof(Header)) return false;
        std::memcpy(&header, bytes.data(), sizeof(Header));
        return header.magic == Header{}.magic;
    };
    check(is_header(), [&] {
        return Error("E222", fmt::format("'{}' holds no steps of a rank", path.string()), "", "");
    });
    if (header != Header{}) return {};
    std::vector<StepBudget> found;
    for (std::size_t at = place_bytes; at + place_bytes <= bytes.size(); at += place_bytes) {
        Place place;
        std::memcpy(&place, bytes.data() + at, place_bytes);
        if (is_sound(place)) found.push_back(budget_in(place));
    }
    std::ranges::stable_sort(found, {}, &StepBudget::ended_unix_s);
    return joined(found);
}

}  // namespace lockstep
