// SPDX-License-Identifier: Apache-2.0
#include "chunk_places.hpp"

#include "driver.hpp"

#include <fmt/format.h>

namespace lockstep::h5 {
namespace {

std::uint64_t chunk_count(const DatasetFacts& facts) {
    return facts.size[0] / facts.chunk[0] + (facts.size[0] % facts.chunk[0] != 0 ? 1 : 0);
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
    const std::uint64_t count = chunk_count(facts);
    if (count > most_chunks) return {.fault = fmt::format("it has {} chunks", count)};
    ChunkFacts chunks;
    ChunkProbe probe(dataset, facts.size.size(), most_stored(facts));
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t row = i * facts.chunk[0];
        const auto place = probe.find(row);
        if (!place) return {.fault = fmt::format("the chunk of row {} was never written", row)};
        chunks.offsets.push_back(place->offset);
        chunks.bytes.push_back(place->bytes);
        chunks.skipped.push_back(place->skipped_filters);
    }
    return chunks;
}

}  // namespace lockstep::h5
