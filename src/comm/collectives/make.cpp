// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/collectives.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"

#include "base/one_node.hpp"
#include "collectives/back_ends.hpp"

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

struct AlgorithmRow {
    Algorithm algorithm;
    std::string_view name;
    std::unique_ptr<AllReduce> (*make)(const Communicator& ranks);
};
constexpr std::array algorithm_rows = {
    AlgorithmRow{Algorithm::shared_memory, "shared-memory", make_shared_memory},
    AlgorithmRow{Algorithm::hierarchical, "hierarchical", make_hierarchical},
    AlgorithmRow{Algorithm::ring, "ring", make_ring_all_reduce},
    AlgorithmRow{
        Algorithm::recursive_doubling, "recursive-doubling", make_recursive_doubling_all_reduce},
    AlgorithmRow{Algorithm::tree, "tree", make_tree_all_reduce},
    AlgorithmRow{Algorithm::parameter_server, "parameter-server", make_parameter_server_all_reduce},
    AlgorithmRow{Algorithm::open_mpi, "open-mpi", make_open_mpi_all_reduce}};

constexpr std::array algorithms = [] {
    std::array<Algorithm, algorithm_rows.size()> all{};
    std::ranges::transform(algorithm_rows, all.begin(), &AlgorithmRow::algorithm);
    return all;
}();

const AlgorithmRow& row_of(Algorithm algorithm) {
    const auto found = std::ranges::find(algorithm_rows, algorithm, &AlgorithmRow::algorithm);
    expect(found != algorithm_rows.end(), "one of all_algorithms()");
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
