// SPDX-License-Identifier: Apache-2.0
#include "markov_text.hpp"

#include "lockstep/core/random.hpp"

namespace lockstep {
namespace {

// The uses of random streams. Those of synth_source.cpp begin at 0.
enum class TextUse : std::uint64_t { chain = 100, tokens };

CounterRandom text_random(std::uint64_t seed, TextUse use, std::uint64_t number) {
    return {Purpose::synthetic_data, {seed, static_cast<std::uint64_t>(use), number, 0}};
}

std::vector<std::uint8_t> successors(CounterRandom random,
                                     std::size_t contexts,
                                     std::uint32_t vocabulary) {
    std::vector<std::uint8_t> tokens(contexts);
    for (std::uint8_t& token : tokens) token = static_cast<std::uint8_t>(random.below(vocabulary));
    return tokens;
}

}  // namespace

MarkovText::MarkovText(std::uint64_t seed, std::uint32_t vocabulary)
    : seed_(seed),
      vocabulary_(vocabulary),
      after_one_(successors(text_random(seed, TextUse::chain, 1), vocabulary, vocabulary)),
      after_two_(successors(
          text_random(seed, TextUse::chain, 2), std::size_t{vocabulary} * vocabulary, vocabulary)) {
}

std::uint8_t MarkovText::next(std::uint8_t before_last,
                              std::uint8_t last,
                              std::uint64_t random) const {
    const std::uint64_t eighth = random % 8;
    if (eighth < 4) return after_one_[last];
    if (eighth < 7) return after_two_[std::size_t{before_last} * vocabulary_ + last];
    return static_cast<std::uint8_t>(random / 8 % vocabulary_);
}

void MarkovText::write(std::uint64_t sample, std::span<std::uint8_t> tokens) const {
    CounterRandom random = text_random(seed_, TextUse::tokens, sample);
    auto before_last = static_cast<std::uint8_t>(random.below(vocabulary_));
    auto last = static_cast<std::uint8_t>(random.below(vocabulary_));
    for (std::uint8_t& token : tokens) {
        token = next(before_last, last, random.next());
        before_last = last;
        last = token;
    }
}

}  // namespace lockstep
