// SPDX-License-Identifier: Apache-2.0
#include "chunk_places.hpp"

#include "driver.hpp"

#include <fmt/format.h>

namespace lockstep::h5 {
namespace {

// Returns the begin of the chunk after the one at `start`: the last dimension runs fastest.
void advance(std::vector<hsize_t>& start, const DatasetFacts& facts) {
    for (std::size_t d = start.size(); d-- > 0;) {
        start[d] += facts.chunk[d];
        if (start[d] < facts.size[d]) return;
        start[d] = 0;
    }
}

// Filters may grow what they cannot compress, but not by more than this.
std::uint64_t most_stored(const DatasetFacts& facts) {
    std::uint64_t bytes = 2 * 8;
    for (const std::uint64_t size : facts.chunk) {
        if (size > (std::uint64_t{1} << 40) / bytes) return std::uint64_t{1} << 40;
        bytes *= size;
    }
    return bytes + 65536;
}

}  // namespace

ChunkFacts find_chunks(const Handle& dataset, const DatasetFacts& facts) {
    const std::uint64_t count = facts.chunk_count();
    if (count > most_chunks) return {.fault = "it has too many chunks"};
    ChunkFacts chunks;
    ChunkProbe probe(dataset, most_stored(facts));
    std::vector<hsize_t> start(facts.size.size(), 0);
    for (std::uint64_t i = 0; i < count; ++i, advance(start, facts)) {
        const auto place = probe.find(start);
        if (!place)
            return {.fault = fmt::format("the chunk of row {} was never written", start[0])};
        chunks.offsets.push_back(place->offset);
        chunks.bytes.push_back(place->bytes);
        chunks.skipped.push_back(place->skipped_filters);
    }
    return chunks;
}

}  // namespace lockstep::h5
