// SPDX-License-Identifier: Apache-2.0
// How long opening takes: many shards of many blocks, as packed and as foreign files, and the way
// of the index to the other ranks.
//   bench_open FOLDER [--shards 64] [--chunks 20000] [--rounds 5]
// Makes what it needs below FOLDER if it is not there yet. Prints one JSON object: the best seconds
// of each part, and how often libhdf5 opened a file.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/pack.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include <fmt/format.h>
#include <hdf5.h>

namespace lockstep {
namespace {

constexpr std::uint64_t row_bytes = 64;

struct Shape {
    std::uint64_t shards = 64, chunks = 20'000, rounds = 5;
};

// Rows that are nothing but their number, one to a chunk.
void write_chunked(const fs::path& path, std::uint64_t chunks) {
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t size[] = {chunks, row_bytes}, chunk[] = {1, row_bytes};
    const hid_t space = H5Screate_simple(2, size, nullptr);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 2, chunk);
    const hid_t dataset =
        H5Dcreate2(file, "/x", H5T_STD_U8LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    for (hsize_t row = 0; row < chunks; ++row) {
        std::uint64_t bytes[row_bytes / 8] = {row};
        const hsize_t start[] = {row, 0};
        const herr_t written = H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, start, sizeof bytes, bytes);
        expect(written >= 0, "chunks can be written");
    }
    H5Dclose(dataset);
    H5Pclose(creation);
    H5Sclose(space);
    H5Fclose(file);
}

std::vector<fs::path> foreign_files_of(const fs::path& folder, const Shape& shape) {
    const fs::path place = folder / fmt::format("foreign-{}", shape.chunks);
    fs::create_directories(place);
    std::vector<fs::path> files;
    for (std::uint64_t i = 0; i < shape.shards; ++i) {
        files.push_back(place / fmt::format("{:05}.h5", i));
        if (!fs::exists(files.back())) write_chunked(files.back(), shape.chunks);
    }
    return files;
}

// As many samples as chunks, each a block of its own.
class Numbers : public RowSource {
  public:
    explicit Numbers(std::uint64_t samples)
        : RowSource(samples, {{.name = "x", .shape = {static_cast<std::int64_t>(row_bytes)}}}) {}
    void read(std::size_t, std::uint64_t row, std::span<std::byte> out) const override {
        std::ranges::fill(out, std::byte{0});
        std::memcpy(out.data(), &row, sizeof row);
    }
    Hash128 fingerprint() const override { return {1, samples_}; }
};

fs::path packed_of(const fs::path& folder, const Shape& shape) {
    const fs::path place = folder / fmt::format("packed-{}-{}", shape.shards, shape.chunks);
    PackOptions options;
    options.output = place;
    options.shards = static_cast<int>(shape.shards);
    options.block_rows = 1;
    options.codec = Codec::lz4;  // in chunks
    options.shuffle_seed.reset();
    if (!fs::exists(place)) pack_dataset(Numbers(shape.shards * shape.chunks), options);
    return place;
}

// The best time of each part, over the rounds.
Json measured(const std::function<DatasetIndex()>& open, std::uint64_t rounds) {
    std::map<std::string, double> best;
    const auto took = [&](const char* part, double seconds) {
        double& known = best.emplace(part, seconds).first->second;
        known = std::min(known, seconds);
    };
    const auto timed = [&](const char* part, const auto& action) {
        const double since = now_s();
        auto result = action();
        took(part, now_s() - since);
        return result;
    };
    Json json;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        const double since = now_s();
        const DatasetIndex index = timed("open_s", open);
        const auto bytes = timed("serialize_s", [&] { return index.serialize(); });
        const auto other = timed("deserialize_s", [&] { return DatasetIndex::deserialize(bytes); });
        took("total_s", now_s() - since);
        expect(other.stored_blocks(0) == index.stored_blocks(0), "an index travels whole");
        json["blocks"] = index.stored_blocks(0).size();
        json["index_bytes"] = bytes.size();
    }
    for (const auto& [part, seconds] : best) json[part] = seconds;
    return json;
}

int run(int count, char** words) {
    Shape shape;
    const std::map<std::string, std::uint64_t*> options{
        {"--shards", &shape.shards}, {"--chunks", &shape.chunks}, {"--rounds", &shape.rounds}};
    for (int i = 2; i + 1 < count; i += 2)
        *options.at(words[i]) = static_cast<std::uint64_t>(parse_integer(words[i + 1]).value());
    const fs::path folder = count > 1 ? words[1] : "bench-open";
    fs::create_directories(folder);
    const std::vector<fs::path> files = foreign_files_of(folder, shape);
    const fs::path packed = packed_of(folder, shape);
    const auto open_packed = [&] { return DatasetIndex::open(packed); };
    const auto open_foreign = [&] { return DatasetIndex::open_foreign(files, {{"x", "/x"}}); };
    const Json json{{"shards", shape.shards},
                    {"chunks_a_shard", shape.chunks},
                    {"packed", measured(open_packed, shape.rounds)},
                    {"foreign", measured(open_foreign, shape.rounds)}};
    fmt::print("{}\n", json.dump());
    return 0;
}

}  // namespace
}  // namespace lockstep

int main(int count, char** words) try {
    return lockstep::run(count, words);
} catch (const lockstep::Error& error) {
    fmt::print(stderr, "{}\n", error.text());
    return static_cast<int>(error.exit_code());
}
