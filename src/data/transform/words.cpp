// SPDX-License-Identifier: Apache-2.0
#include "transform/words.hpp"

#include "lockstep/core/numbers.hpp"

#include "transform/text.hpp"

#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

template <class T>
void check_limits(T value, std::string_view what, Limits<T> limits, const std::string& text) {
    check(limits.least <= value && value <= limits.most, [&] {
        return Error("E102",
                     fmt::format("{} is {} in the transform '{}'", what, value, text),
                     fmt::format("it is between {} and {}", limits.least, limits.most),
                     "choose another number");
    });
}

}  // namespace

Words::Words(std::string_view text) : text_(text) {
    std::istringstream stream(text_);
    for (std::string word; stream >> word;) words_.push_back(word);
}

std::string Words::take(std::string_view what) {
    check(!words_.empty(), [&] { return error(fmt::format("{} is missing", what)); });
    std::string word = std::move(words_.front());
    words_.pop_front();
    return word;
}

bool Words::take_if(std::string_view word) {
    if (words_.empty() || words_.front() != word) return false;
    words_.pop_front();
    return true;
}

int Words::whole(std::string_view what, Limits<int> limits) {
    return whole_of(take(what), what, limits);
}

double Words::real(std::string_view what, Limits<double> limits) {
    return real_of(take(what), what, limits);
}

std::pair<double, double> Words::range(std::string_view what, Limits<double> limits) {
    const std::string word = take(what);
    const std::size_t dash = word.find('-', 1);
    check(dash != word.npos, [&] { return error(fmt::format("'{}' is not {}", word, what)); });
    const double low = real_of(std::string_view(word).substr(0, dash), what, limits);
    const double high = real_of(std::string_view(word).substr(dash + 1), what, limits);
    check(low <= high, [&] { return error(fmt::format("'{}' descends", word)); });
    return {low, high};
}

std::pair<int, std::optional<int>> Words::size(std::string_view what) {
    const std::string word = take(what);
    const std::size_t cross = std::min(word.find('x'), word.size());
    const int height = whole_of(std::string_view(word).substr(0, cross), what, {1, most_side});
    if (cross == word.size()) return {height, std::nullopt};
    return {height, whole_of(std::string_view(word).substr(cross + 1), what, {1, most_side})};
}

Error Words::error(std::string_view why) const {
    return Error("E247",
                 fmt::format("the transform '{}' cannot be read", text_),
                 std::string(why),
                 usage_.empty() ? "write a step's name" : fmt::format("write '{}'", usage_));
}

int Words::whole_of(std::string_view word, std::string_view what, Limits<int> limits) const {
    const auto value = parse_integer(word);
    check(value.has_value(),
          [&] { return error(fmt::format("'{}' is no whole number for {}", word, what)); });
    check_limits<std::int64_t>(*value, what, {limits.least, limits.most}, text_);
    return static_cast<int>(*value);
}

double Words::real_of(std::string_view word, std::string_view what, Limits<double> limits) const {
    const auto value = parse_real(word);
    check(value.has_value(),
          [&] { return error(fmt::format("'{}' is no number for {}", word, what)); });
    check_limits(*value, what, limits, text_);
    return *value;
}

}  // namespace lockstep
