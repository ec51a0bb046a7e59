// SPDX-License-Identifier: Apache-2.0
// Collectives of one rank, for tests of what goes around them.
#pragma once

#include "lockstep/comm/collectives.hpp"

#include <vector>

namespace lockstep::test {

/// Does nothing and never waits.
class SilentCollectives : public Collectives {
  public:
    std::string_view name() const override { return "silent"; }
    std::byte* lend(std::size_t bytes) override {
        lent_.emplace_back(bytes);
        return lent_.back().data();
    }
    void all_reduce(void*, std::size_t, DataType) override {}
    void reduce_scatter(void*, std::size_t, DataType) override {}
    void all_gather(void*, std::size_t, DataType) override {}
    void broadcast(void*, std::size_t, int) override {}
    void barrier() override {}
    void set_deadline(double) override {}

  private:
    std::vector<std::vector<std::byte>> lent_;
};

}  // namespace lockstep::test
