// SPDX-License-Identifier: Apache-2.0
// What each transform costs on one core beside memcpy of the same samples, by turns: nanoseconds of
// an image and the ratio, best of the rounds. The last line is JSON. bench_transform [--short]
#include "lockstep/data/transform.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/random.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <numeric>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace lockstep;

constexpr std::size_t batch = 64;

/// Samples to go through batch by batch; more than the second-level cache holds.
struct Samples {
    explicit Samples(const ImageShape& shape_of_one)
        : shape(shape_of_one),
          count((std::size_t{4} << 20) / shape.values() / batch * batch),
          bytes(count * shape.values()),
          ids(count) {
        CounterRandom random(Purpose::test, {count});
        for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
        std::iota(ids.begin(), ids.end(), 0u);
    }
    ImageShape shape;
    std::size_t count;
    std::vector<std::uint8_t> bytes;
    std::vector<std::uint64_t> ids;
};

struct Entrant {
    std::string name;
    std::function<void(std::size_t)> run_batch;  ///< from this sample on
    double best_ns = 1e18;
};

Entrant memcpy_entrant(const Samples& samples) {
    auto to = std::make_shared<std::vector<std::uint8_t>>(batch * samples.shape.values());
    return {"memcpy", [&samples, to](std::size_t first) {
                const std::size_t values = samples.shape.values();
                for (std::size_t i = 0; i < batch; ++i)
                    std::memcpy(to->data() + i * values,
                                samples.bytes.data() + (first + i) * values,
                                values);
            }};
}

Entrant transform_entrant(const Samples& samples, const std::string& text) {
    const std::vector<double> mean(static_cast<std::size_t>(samples.shape.channels), 0.45);
    const std::vector<double> std(mean.size(), 0.25);
    auto transform =
        std::make_shared<ImageTransform>(TransformPipeline::parse(text), samples.shape, mean, std);
    auto out = std::make_shared<std::vector<float>>(batch * transform->output().values());
    return {text, [&samples, transform, out](std::size_t first) {
                const std::size_t values = samples.shape.values();
                const auto ids = std::span(samples.ids).subspan(first, batch);
                transform->apply(std::span(samples.bytes).subspan(first * values, batch * values),
                                 ids,
                                 {1, 2},
                                 PixelLayout::nhwc,
                                 *out);
                const std::vector<MixRow> rows = transform->mix_rows(ids, {1, 2});
                if (!rows.empty()) transform->mix(*out, rows, PixelLayout::nhwc);
            }};
}

Json measured(const ImageShape& shape, int rounds, bool is_short) {
    const Samples samples(shape);
    std::vector<Entrant> entrants = {memcpy_entrant(samples)};
    entrants.push_back(
        transform_entrant(samples, fmt::format("crop {} pad 4, flip", shape.height)));
    for (const char* text : {"none",
                             "cutout 8",
                             "resize 36x36",
                             "rotate 15",
                             "blur 3",
                             "blur 5",
                             "mixup 0.2",
                             "cutmix 1"})
        entrants.push_back(transform_entrant(samples, text));
    if (shape.channels == 3 && !is_short) entrants.push_back(transform_entrant(samples, "book"));
    for (int round = 0; round < rounds; ++round)
        for (Entrant& entrant : entrants) {
            const std::size_t images =
                is_short || entrant.name == "book" ? batch : samples.count / batch * batch;
            const double begin = now_s();
            for (std::size_t first = 0; first < images; first += batch) entrant.run_batch(first);
            entrant.best_ns =
                std::min(entrant.best_ns, 1e9 * (now_s() - begin) / static_cast<double>(images));
        }
    Json result = {{"shape", {shape.channels, shape.height, shape.width}}};
    for (const Entrant& entrant : entrants) {
        const double ratio = entrant.best_ns / entrants[0].best_ns;
        std::cout << fmt::format("{} x {} x {}  {:<22} {:>10.0f} ns {:>8.1f} x memcpy\n",
                                 shape.channels,
                                 shape.height,
                                 shape.width,
                                 entrant.name,
                                 entrant.best_ns,
                                 ratio);
        result["ops"][entrant.name] = {{"ns", entrant.best_ns}, {"memcpys", ratio}};
    }
    return result;
}

}  // namespace

int main(int argc, char** argv) {
    const bool is_short = argc > 1 && std::string_view(argv[1]) == "--short";
    const int rounds = is_short ? 1 : 15;
    Json all = Json::array();
    for (const ImageShape& shape :
         {ImageShape{1, 28, 28}, ImageShape{3, 32, 32}, ImageShape{3, 64, 64}})
        all.push_back(measured(shape, rounds, is_short));
    std::cout << Json({{"bench", "transform"}, {"shapes", all}}) << "\n";
}
