// SPDX-License-Identifier: Apache-2.0
#include "collectives/back_ends.hpp"
#include "collectives/private_memory.hpp"

namespace lockstep {
namespace {

class SingleRank : public Collectives {
  public:
    explicit SingleRank(Algorithm algorithm) : algorithm_(algorithm) {}

    std::string_view name() const override { return name_of(algorithm_); }
    std::byte* lend(std::size_t bytes) override { return memory_.lend(bytes); }
    void all_reduce(void*, std::size_t, DataType) override {}
    void reduce_scatter(void*, std::size_t, DataType) override {}
    void all_gather(void*, std::size_t, DataType) override {}
    void broadcast(void*, std::size_t, int) override {}
    void barrier() override {}
    void set_deadline(double) override {}

  private:
    const Algorithm algorithm_;
    PrivateMemory memory_;
};

}  // namespace

std::unique_ptr<Collectives> make_single_rank_collectives(Algorithm algorithm) {
    return std::make_unique<SingleRank>(algorithm);
}

}  // namespace lockstep
