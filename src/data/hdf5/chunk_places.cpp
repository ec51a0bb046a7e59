// SPDX-License-Identifier: Apache-2.0
#include "chunk_places.hpp"

#include "driver.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

// First in these; 1.11 and 1.13 were for developers.
#define LOCKSTEP_HAS_CHUNK_ITER                                                     \
    (H5_VERSION_GE(1, 14, 0) || (H5_VERS_MINOR == 12 && H5_VERSION_GE(1, 12, 3)) || \
     (H5_VERS_MINOR == 10 && H5_VERSION_GE(1, 10, 10)))

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

std::string missing_text(const DatasetFacts& facts, std::uint64_t chunk) {
    return fmt::format("the chunk of row {} was never written", chunk * facts.chunk[0]);
}

#if LOCKSTEP_HAS_CHUNK_ITER

struct Collected {
    ChunkFacts& chunks;
    std::uint64_t chunk_rows = 1;
};

int collect_chunk(
    const hsize_t* start, unsigned skipped, haddr_t address, hsize_t bytes, void* collected) {
    auto& [chunks, chunk_rows] = *static_cast<Collected*>(collected);
    const std::uint64_t number = start[0] / chunk_rows;
    if (number >= chunks.offsets.size()) return H5_ITER_ERROR;
    chunks.offsets[number] = address;
    chunks.bytes[number] = bytes;
    chunks.skipped[number] = skipped;
    return H5_ITER_CONT;
}

// Whether addresses are those of the file: some versions forget what comes before the superblock.
bool begins_at_zero(const Handle& dataset) {
    const Handle file(H5Iget_file_id(dataset.id()), H5Fclose);
    const Handle properties(H5Fget_create_plist(file.id()), H5Pclose);
    hsize_t before = 1;
    return H5Pget_userblock(properties.id(), &before) >= 0 && before == 0;
}

ChunkFacts iterate_chunks(const Handle& dataset, const DatasetFacts& facts) {
    ChunkFacts chunks;
    const std::uint64_t count = chunk_count(facts);
    for (auto* column : {&chunks.offsets, &chunks.bytes, &chunks.skipped}) column->resize(count);
    Collected collected{chunks, facts.chunk[0]};
    if (H5Dchunk_iter(dataset.id(), H5P_DEFAULT, collect_chunk, &collected) < 0)
        return {.fault = "its chunks cannot be listed: " + last_reasons()};
    const auto missing = std::ranges::find(chunks.bytes, 0u);
    if (missing == chunks.bytes.end()) return chunks;
    return {.fault =
                missing_text(facts, static_cast<std::uint64_t>(missing - chunks.bytes.begin()))};
}

#endif

}  // namespace

ChunkFacts probe_chunks(const Handle& dataset, const DatasetFacts& facts) {
    ChunkFacts chunks;
    ChunkProbe probe(dataset, facts.size.size(), most_stored(facts));
    const std::uint64_t count = chunk_count(facts);
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto place = probe.find(i * facts.chunk[0]);
        if (!place) return {.fault = missing_text(facts, i)};
        chunks.offsets.push_back(place->offset);
        chunks.bytes.push_back(place->bytes);
        chunks.skipped.push_back(place->skipped_filters);
    }
    return chunks;
}

ChunkFacts find_chunks(const Handle& dataset, const DatasetFacts& facts) {
    if (chunk_count(facts) > most_chunks)
        return {.fault = fmt::format("it has {} chunks", chunk_count(facts))};
#if LOCKSTEP_HAS_CHUNK_ITER
    if (begins_at_zero(dataset)) return iterate_chunks(dataset, facts);
#endif
    return probe_chunks(dataset, facts);
}

}  // namespace lockstep::h5
