// SPDX-License-Identifier: Apache-2.0
// Lockstep's side of the benchmark `io`. Prints one JSON object.
//   make DIR      packs a data set: --samples N --codec NAME [--idx FOLDER | --image C,H,W]
//   content DIR   what an epoch holds, as the peers say it
//   ways DIR      measure_io(), and OtherWays: --threads 1,2 --cache hot,cold --rounds N
//   batches DIR   batches of 256 as fast as they come: --threads N --output u8|f32 --seconds S
//   paced DIR     a consumer that asks at fractions of the supply: --fractions 0.5,0.7 --cache cold
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/measure_io.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/sources.hpp"

#include "io_others.hpp"

#include <chrono>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <thread>

using namespace lockstep;

namespace {

constexpr float mean = 0.2860F, stddev = 0.3530F;
constexpr std::int64_t batch_rows = 256;

class Arguments {
  public:
    Arguments(int count, char** words) {
        for (int i = 3; i + 1 < count; i += 2) values_[words[i] + 2] = words[i + 1];
    }
    std::string text(const std::string& name, const std::string& otherwise) const {
        const auto found = values_.find(name);
        return found == values_.end() ? otherwise : found->second;
    }
    double number(const std::string& name, double otherwise) const {
        return values_.contains(name) ? std::stod(values_.at(name)) : otherwise;
    }
    std::vector<std::string> list(const std::string& name, const std::string& otherwise) const {
        return split(text(name, otherwise), ',');
    }

  private:
    std::map<std::string, std::string> values_;
};

using Index = std::shared_ptr<const DatasetIndex>;

Index open(const fs::path& folder) {
    return std::make_shared<const DatasetIndex>(DatasetIndex::open(folder));
}

/// The rows of `source`, over and over, until there are `samples`.
class RepeatedRows : public RowSource {
  public:
    RepeatedRows(std::unique_ptr<RowSource> source, std::uint64_t samples)
        : RowSource(samples, source->fields()), source_(std::move(source)) {}

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        source_->read(field, row % source_->samples(), out);
    }
    Hash128 fingerprint() const override {
        const Hash128 once = source_->fingerprint();
        return {key_of({once.high, samples_}), once.low};
    }

  private:
    std::unique_ptr<RowSource> source_;
};

Json make(const fs::path& folder, const Arguments& given) {
    const auto samples = static_cast<std::uint64_t>(given.number("samples", 1e4));
    const std::string idx = given.text("idx", "");
    ScratchShape shape{.samples = samples};
    shape.image.clear();
    for (const std::string& size : given.list("image", "3,64,64"))
        shape.image.push_back(std::stoll(size));
    PackOptions options;
    options.output = folder;
    options.codec = parse_codec(given.text("codec", "none"));
    options.shuffle_seed.reset();
    options.shards = 1;
    const auto source = idx.empty() ? scratch_rows(shape)
                                    : std::make_unique<RepeatedRows>(
                                          open_idx(fs::path(idx) / "train-images-idx3-ubyte.gz",
                                                   fs::path(idx) / "train-labels-idx1-ubyte.gz"),
                                          samples);
    const PackResult packed = pack_dataset(*source, options);
    return {{"bytes", packed.raw_bytes}, {"stored_bytes", packed.stored_bytes}};
}

StreamOptions stream_options(const Arguments& given) {
    StreamOptions options;
    options.batch = batch_rows;
    options.seed = static_cast<std::uint64_t>(given.number("seed", 7));
    options.io_threads = static_cast<int>(given.number("threads", 1));
    options.memory_bytes = 512u << 20;
    options.page_cache =
        given.text("page-cache", "keep") == "drop" ? PageCache::drop : PageCache::keep;
    return options;
}

void normalize(std::span<const std::byte> pixels, std::vector<float>& out) {
    out.resize(pixels.size());
    const auto* in = reinterpret_cast<const unsigned char*>(pixels.data());
    constexpr float scale = 1 / (255 * stddev), shift = mean / stddev;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(in[i]) * scale - shift;
}

Json content(const fs::path& folder, const Arguments& given) {
    BatchStream stream(open(folder), stream_options(given));
    std::uint64_t samples = 0, values = 0;
    std::int64_t labels = 0;
    double sum = 0;
    std::vector<float> images;
    for (;;) {
        const Batch batch = stream.next();
        normalize(batch.fields[0], images);
        for (const float value : images) sum += static_cast<double>(value);
        values += images.size();
        for (std::size_t row = 0; row < batch.sample_ids.size(); ++row) {
            std::int64_t label = 0;
            std::memcpy(&label, batch.fields[1].data() + row * sizeof label, sizeof label);
            labels += label;
        }
        samples += batch.sample_ids.size();
        if (batch.next.epoch > batch.position.epoch) break;
    }
    const double pixel = (sum / static_cast<double>(values) * stddev + mean) * 255;
    return {{"samples", samples}, {"label_sum", labels}, {"pixel_mean", pixel}};
}

Json ways(const fs::path& folder, const Arguments& given) {
    IoPlan plan;
    plan.rounds = 1;
    plan.threads.clear();
    for (const std::string& threads : given.list("threads", "1,2"))
        plan.threads.push_back(std::stoi(threads));
    plan.states.clear();
    for (const std::string& state : given.list("cache", "hot"))
        plan.states.push_back(state == "hot" ? CacheState::hot : CacheState::cold);
    plan.least_bytes = static_cast<std::uint64_t>(given.number("least-mib", 512)) << 20;
    const Index index = open(folder);
    const OtherWays others(index, plan);
    Json results = Json::array(), notes = Json::array();
    if (!others.obstacle().empty()) notes.push_back("H5Dread: " + others.obstacle());
    for (int round = 0; round < static_cast<int>(given.number("rounds", 1)); ++round) {
        const Json ours = io_json(measure_io(index, plan));
        for (const Json& row : ours["results"]) results.push_back(row);
        others.add_pass(results);
    }
    return {{"results", results}, {"notes", notes}};
}

/// Samples per second after the start, over about `seconds`.
struct Supply {
    double samples_per_s = 0, first_s = 0;
    StreamStats spent;
    double elapsed_s = 0;
};
/// Whole epochs, of at least `seconds`, after `warm_epochs`: as much is ahead at the end as at the
/// beginning, as it is with peers, which are measured after a warm-up.
Supply supply_of(const Index& index, const Arguments& given, double seconds, int warm_epochs) {
    const bool is_float = given.text("output", "u8") == "f32";
    std::vector<float> images;
    Supply supply;
    const double made = now_s();
    BatchStream stream(index, stream_options(given));
    StreamStats before;
    double since = made;
    std::uint64_t samples = 0;
    for (bool is_done = false; !is_done;) {
        const Batch batch = stream.next();
        if (supply.first_s == 0) supply.first_s = now_s() - made;
        if (is_float) normalize(batch.fields[0], images);
        samples += batch.sample_ids.size();
        if (batch.next.epoch == batch.position.epoch) continue;
        if (batch.next.epoch == static_cast<std::uint64_t>(warm_epochs)) {
            since = now_s();
            before = stream.stats();
            samples = 0;
        } else {
            is_done = now_s() - since >= seconds;
        }
    }
    supply.elapsed_s = now_s() - since;
    supply.samples_per_s = static_cast<double>(samples) / supply.elapsed_s;
    supply.spent = stream.stats() - before;
    return supply;
}

Json batches(const fs::path& folder, const Arguments& given) {
    const Supply supply = supply_of(open(folder), given, given.number("seconds", 2), 1);
    return {{"samples_per_s", supply.samples_per_s},
            {"first_batch_s", supply.first_s},
            {"binds", binding_stage(supply.spent, supply.elapsed_s)}};
}

/// A consumer that asks for `samples_per_s`: it computes, which costs no core, in between.
struct Demand {
    double stall = 0, availability = 0;
};
Demand demand_of(const Index& index, const Arguments& given, double samples_per_s, double seconds) {
    BatchStream stream(index, stream_options(given));
    (void)stream.next();  // the start is not what this is about
    const double since = now_s(), compute_s = batch_rows / samples_per_s;
    double waited = 0, at = since, due = since;
    while (at - since < seconds) {
        const Batch batch = stream.next();
        const double got = now_s();
        waited += got - at;
        // Sleeping too long is made up for, but never by asking at more than twice the rate.
        due = std::max(due + (got - at) + compute_s, got + compute_s / 2);
        std::this_thread::sleep_for(std::chrono::duration<double>(due - got));
        at = now_s();
    }
    return {waited / (at - since), (at - since - waited) / (at - since)};
}

Json paced(const fs::path& folder, const Arguments& given) {
    const Index index = open(folder);
    const bool is_cold = given.text("cache", "hot") == "cold";
    const double seconds = given.number("seconds", 1);
    if (is_cold) drop_page_cache(*index);
    const Supply whole = supply_of(index, given, is_cold ? 0 : seconds, is_cold ? 0 : 1);
    const double supply = whole.samples_per_s;
    Json json = {{"samples_per_s", supply}, {"at", Json::array()}};
    for (const std::string& fraction : given.list("fractions", "0.5,0.7,0.9")) {
        if (is_cold) drop_page_cache(*index);
        const double share = std::stod(fraction);
        const double whole_s = static_cast<double>(index->samples()) / (share * supply);
        const Demand demand =
            demand_of(index, given, share * supply, is_cold ? 0.9 * whole_s : seconds);
        json["at"].push_back(
            {{"fraction", share}, {"stall", demand.stall}, {"availability", demand.availability}});
    }
    return json;
}

const std::map<std::string, Json (*)(const fs::path&, const Arguments&)> commands = {
    {"make", make}, {"content", content}, {"ways", ways}, {"batches", batches}, {"paced", paced}};

}  // namespace

int main(int count, char** words) {
    if (count < 3) return 64;
    try {
        std::cout << commands.at(words[1])(words[2], Arguments(count, words)).dump() << "\n";
        return 0;
    } catch (const Error& error) {
        std::cerr << error.text() << "\n";
        return static_cast<int>(error.exit_code());
    }
}
