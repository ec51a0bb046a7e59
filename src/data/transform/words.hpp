// SPDX-License-Identifier: Apache-2.0
// The words of one step of a pipeline, read one after the other.
#pragma once

#include "lockstep/core/error.hpp"

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

/// Allowed numbers, both ends included.
template <class T>
struct Limits {
    T least, most;
};

class Words {
  public:
    explicit Words(std::string_view text);

    const std::string& text() const { return text_; }
    bool is_empty() const { return words_.empty(); }

    /// What errors say the step looks like.
    void expect_usage(std::string usage) { usage_ = std::move(usage); }

    /// The next word, which must be there; `what` is what it should be. Errors: E247.
    std::string take(std::string_view what = "a step");

    /// Takes the next word if it is `word`.
    bool take_if(std::string_view word);

    /// Errors: E247 (no number), E102 (out of range).
    int whole(std::string_view what, Limits<int> limits);
    double real(std::string_view what, Limits<double> limits);

    /// "0.1-2": two ascending numbers.
    std::pair<double, double> range(std::string_view what, Limits<double> limits);

    /// "32" or "32x48".
    std::pair<int, std::optional<int>> size(std::string_view what);

    Error error(std::string_view why) const;

  private:
    int whole_of(std::string_view word, std::string_view what, Limits<int> limits) const;
    double real_of(std::string_view word, std::string_view what, Limits<double> limits) const;

    std::string text_, usage_;
    std::deque<std::string> words_;
};

}  // namespace lockstep
