// SPDX-License-Identifier: Apache-2.0
// Batches gathered from memory in uniform order beside a plain copy of the same bytes, by turns:
// bench_resident [--short]. Prints one line of JSON for each size of rows.
#include "lockstep/data/resident.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"

#include "data/samples.hpp"

#include <algorithm>
#include <cstring>
#include <iostream>

namespace {

using namespace lockstep;

constexpr int rounds = 9;

std::shared_ptr<const DatasetIndex> make_data(const test::TempDir& folder,
                                              std::uint32_t samples,
                                              std::uint32_t row_bytes) {
    std::string pixels(std::size_t{samples} * row_bytes, '\0');
    CounterRandom random(Purpose::test, {row_bytes});
    for (std::size_t i = 0; i + 8 <= pixels.size(); i += 8) {
        const std::uint64_t word = random.next();
        std::memcpy(pixels.data() + i, &word, sizeof word);
    }
    PackOptions options;
    options.images = folder.file("images.idx", test::idx_text({samples, 1, row_bytes}, pixels));
    options.labels =
        folder.file("labels.idx", test::idx_text({samples}, std::string(samples, '\1')));
    options.output = folder / "rows";
    options.shuffle_seed.reset();
    pack_dataset(options);
    return test::open_index(options.output);
}

/// Seconds in which an epoch's bytes are copied, end to end, into as much memory as batches have.
double copy_s(const ResidentRows& rows, std::size_t batch_bytes) {
    static std::vector<std::byte> ring;
    ring.resize(4 * batch_bytes);
    std::size_t at = 0;
    const double since = now_s();
    for (std::size_t f = 0; f < 2; ++f)
        for (std::span<const std::byte> from = rows.rows(f); !from.empty();) {
            const std::size_t bytes = std::min(from.size(), batch_bytes);
            std::memcpy(ring.data() + at, from.data(), bytes);
            from = from.subspan(bytes);
            at = (at + batch_bytes) % ring.size();
        }
    return now_s() - since;
}

/// Seconds of an epoch's batches, from the second epoch on.
double stream_s(BatchStream& stream) {
    const double since = now_s();
    while (true) {
        const Batch batch = stream.next();
        if (batch.next.epoch != batch.position.epoch) return now_s() - since;
    }
}

void compare(std::uint32_t samples, std::uint32_t row_bytes, int threads) {
    const test::TempDir folder;
    const auto index = make_data(folder, samples, row_bytes);
    auto rows = ResidentRows::in_own_memory(index);
    rows->load({.threads = 2});
    rows->seal();
    StreamOptions options;
    options.order = OrderKind::uniform;
    options.batch = 256;
    options.io_threads = threads;
    BatchStream stream(index, options, {}, rows);
    stream_s(stream);
    double copy = 1e9, gather = 1e9;
    for (int round = 0; round < rounds; ++round) {
        copy = std::min(copy, copy_s(*rows, 256 * std::size_t{row_bytes}));
        gather = std::min(gather, stream_s(stream));
    }
    const double bytes = static_cast<double>(samples) * (row_bytes + 8);
    std::cout << Json({{"row_bytes", row_bytes},
                       {"threads", threads},
                       {"memcpy_gbps", 1e-9 * bytes / copy},
                       {"resident_gbps", 1e-9 * bytes / gather},
                       {"of_memcpy", copy / gather},
                       {"goal", 0.7}})
              << std::endl;
}

}  // namespace

int main(int count, char**) {
    const std::uint32_t mib = count > 1 ? 8 : 200;
    for (const int threads : {1, 2}) {
        compare(mib * (1u << 20) / 784, 784, threads);
        compare(mib * (1u << 20) / 12288, 12288, threads);
    }
}
