// SPDX-License-Identifier: Apache-2.0
// Generated text: a fixed Markov chain whose next token depends on one or two tokens before it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Half of all tokens follow from the one before, three in eight from the two before, and one in
/// eight is random: a model that sees one token learns some of it, one that sees more learns more.
class MarkovText {
  public:
    MarkovText(std::uint64_t seed, std::uint32_t vocabulary);  ///< vocabulary of 2 to 256

    /// Fills `tokens` with sample number `sample`.
    void write(std::uint64_t sample, std::span<std::uint8_t> tokens) const;

  private:
    std::uint8_t next(std::uint8_t before_last, std::uint8_t last, std::uint64_t random) const;

    std::uint64_t seed_;
    std::uint32_t vocabulary_;
    std::vector<std::uint8_t> after_one_, after_two_;  // by last token; by the two last ones
};

}  // namespace lockstep
