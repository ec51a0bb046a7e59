// SPDX-License-Identifier: Apache-2.0
// Calls of every kind, drawn by number, and what each must give: for any back end of Collectives.
#pragma once

#include "lockstep/comm/collectives.hpp"
#include "lockstep/core/random.hpp"

#include "collectives/sum_kernels.hpp"
#include "comm/collectives/elements.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::test {

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, barrier };
enum class Memory { lent, of_its_own, either };

/// One call that all ranks make alike; what is left to each rank is drawn with its number.
struct Round {
    std::uint64_t number;

    std::uint64_t draw(std::uint64_t purpose, std::uint64_t choices) const {
        return mix64(number * 100 + purpose) % choices;
    }
    Kind kind() const { return static_cast<Kind>(draw(1, 5)); }
    DataType type() const { return all_data_types()[draw(2, 4)]; }
    int root() const {
        return static_cast<int>(draw(3, static_cast<std::uint64_t>(ranks().size())));
    }
    Memory memory() const { return static_cast<Memory>(draw(4, 3)); }
    bool is_lent(int rank) const {
        if (memory() == Memory::either) return draw(10 + static_cast<std::uint64_t>(rank), 2) == 0;
        return memory() == Memory::lent;
    }
    std::size_t offset(int rank) const { return draw(20 + static_cast<std::uint64_t>(rank), 20); }
    std::size_t count() const {
        constexpr std::array<std::size_t, 9> most = {
            1, 2, 20, 200, 1025, 2049, 5000, 30'000, 200'000};
        return draw(5, most[draw(6, most.size())]);
    }
    Elements input(int rank) const {
        return hard_elements(type(), count(), offset(rank), number, rank);
    }
    std::string text() const {
        return fmt::format("round {}: operation {} on {} {}",
                           number,
                           static_cast<int>(kind()),
                           count(),
                           name_of(type()));
    }
};

constexpr std::size_t most_bytes = 201'000 * 8;

/// The ranks of a test program as one group.
class CollectiveRounds {
  public:
    explicit CollectiveRounds(std::unique_ptr<Collectives> collectives)
        : group(std::move(collectives)) {}

    std::unique_ptr<Collectives> group;

    std::byte* lent() {
        if (lent_ == nullptr) lent_ = group->lend(most_bytes);
        return lent_;
    }

    ElementRange stripe(const Round& round, int rank) const {
        return stripe_of(round.count(), round.type(), rank, ranks().size());
    }

    void call(const Round& round, void* data) {
        switch (round.kind()) {
            case Kind::all_reduce:
                return group->all_reduce(data, round.count(), round.type());
            case Kind::reduce_scatter:
                return group->reduce_scatter(data, round.count(), round.type());
            case Kind::all_gather:
                return group->all_gather(data, round.count(), round.type());
            case Kind::broadcast:
                return group->broadcast(data, round.count() * size_of(round.type()), round.root());
            case Kind::barrier:
                return group->barrier();
        }
    }

    /// What this rank has after the call; a range of it is left to the library.
    Elements expected(const Round& round) const {
        if (round.kind() == Kind::broadcast) return round.input(round.root());
        if (round.kind() == Kind::barrier) return round.input(ranks().rank());
        std::vector<Elements> inputs;
        for (int rank = 0; rank < ranks().size(); ++rank) inputs.push_back(round.input(rank));
        if (round.kind() != Kind::all_gather)
            return sum_by_elements(balanced_order(ranks().size()), inputs);
        Elements gathered = round.input(0);
        for (int rank = 0; rank < ranks().size(); ++rank) {
            const std::size_t size = size_of(round.type());
            const auto own = stripe(round, rank);
            std::copy_n(inputs[static_cast<std::size_t>(rank)].data() + own.begin * size,
                        own.size() * size,
                        gathered.data() + own.begin * size);
        }
        return gathered;
    }

    /// The range of the result that the call specifies.
    ElementRange specified(const Round& round) const {
        if (round.kind() == Kind::reduce_scatter) return stripe(round, ranks().rank());
        return {0, round.count()};
    }

    void play(const Round& round) {
        Elements mine = round.input(ranks().rank());
        std::byte* data = mine.data();
        if (round.is_lent(ranks().rank())) {
            data = lent() + round.offset(ranks().rank()) * size_of(round.type());
            std::copy_n(mine.data(), mine.bytes(), data);
        }
        call(round, data);
        if (data != mine.data()) std::copy_n(data, mine.bytes(), mine.data());
        const ElementRange range = specified(round);
        const std::size_t size = size_of(round.type());
        EXPECT_TRUE(std::equal(mine.data() + range.begin * size,
                               mine.data() + range.end * size,
                               expected(round).data() + range.begin * size))
            << round.text();
        EXPECT_TRUE(mine.is_unharmed_around()) << round.text();
    }

  private:
    std::byte* lent_ = nullptr;
};

}  // namespace lockstep::test
