// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/rank_facts.hpp"

#include <utility>

namespace lockstep {

RankFacts::RankFacts() : RankFacts([] { return read_topology(); }) {}

RankFacts::RankFacts(Reader read) : read_(std::move(read)) {}

const LaunchFacts& RankFacts::launch() const {
    if (!launch_) launch_ = read_launch_facts(Environment());
    return *launch_;
}

const NodeTopology& RankFacts::node() const {
    if (!node_) node_ = read_();
    return *node_;
}

}  // namespace lockstep
