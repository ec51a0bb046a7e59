// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/collectives.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"

#include "collectives/back_ends.hpp"
#include "one_node.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

std::unique_ptr<AllReduce> make_shared_memory(const Communicator& ranks) {
    return make_shared_memory_collectives(ranks);
}

std::unique_ptr<AllReduce> make_hierarchical(const Communicator& ranks) {
    return make_hierarchical_collectives(ranks);
}

struct Row {
    Algorithm algorithm;
    std::string_view name;
    std::unique_ptr<AllReduce> (*make)(const Communicator& ranks);
};
constexpr std::array rows = {
    Row{Algorithm::shared_memory, "shared-memory", make_shared_memory},
    Row{Algorithm::hierarchical, "hierarchical", make_hierarchical},
    Row{Algorithm::ring, "ring", make_ring_all_reduce},
    Row{Algorithm::recursive_doubling, "recursive-doubling", make_recursive_doubling_all_reduce},
    Row{Algorithm::tree, "tree", make_tree_all_reduce},
    Row{Algorithm::parameter_server, "parameter-server", make_parameter_server_all_reduce},
    Row{Algorithm::open_mpi, "open-mpi", make_open_mpi_all_reduce}};

constexpr std::array algorithms = [] {
    std::array<Algorithm, rows.size()> all{};
    std::ranges::transform(rows, all.begin(), &Row::algorithm);
    return all;
}();

const Row& row_of(Algorithm algorithm) {
    const auto found = std::ranges::find(rows, algorithm, &Row::algorithm);
    expect(found != rows.end(), "one of all_algorithms()");
    return *found;
}

}  // namespace

std::span<const Algorithm> all_algorithms() {
    return algorithms;
}

std::string_view name_of(Algorithm algorithm) {
    return row_of(algorithm).name;
}

std::unique_ptr<AllReduce> make_all_reduce(const Communicator& ranks, Algorithm algorithm) {
    return row_of(algorithm).make(ranks);
}

std::unique_ptr<Collectives> make_collectives(const Communicator& ranks) {
    if (!are_on_one_node(ranks)) return make_hierarchical_collectives(ranks);
    try {
        return make_shared_memory_collectives(ranks, NoRoom::lends_private_memory);
    } catch (const AgreedError& error) {
        if (kind_of(error) != ErrorKind::no_shared_memory) throw;
        return make_hierarchical_collectives(ranks);
    }
}

}  // namespace lockstep
