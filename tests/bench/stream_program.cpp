// SPDX-License-Identifier: Apache-2.0
// Streams a data set, as `lockstep data synth` makes one, as a training rank would: as fast as it
// comes or at a pace. Says where the time went. The last line is JSON.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/measure_io.hpp"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include <sys/prctl.h>

namespace {

using namespace lockstep;

constexpr const char* usage = R"(stream_program DATASET [NAME=VALUE ...]
  batch=256 epochs=3 io_threads=0 lanes=64 window=4 memory=256m order=lanes|uniform|sequential
  page_cache=keep|drop   on_bad_data=fail|mask
  pace=SAMPLES_PER_S     0: as fast as it comes
  cold=0|1               1: drop the shards' own pages before each epoch is begun
  steps=0                stop after so many steps instead of epochs
)";

class Options {
  public:
    Options(int count, char** words) {
        for (int i = 2; i < count; ++i) {
            const std::string word = words[i];
            const auto at = word.find('=');
            check(at != word.npos, [&] { return Error("E103", "not NAME=VALUE: " + word); });
            words_[word.substr(0, at)] = word.substr(at + 1);
        }
    }
    std::string text(const std::string& name, const std::string& usual) const {
        const auto found = words_.find(name);
        return found == words_.end() ? usual : found->second;
    }
    std::int64_t whole(const std::string& name, std::int64_t usual) const {
        return parse_integer(text(name, std::to_string(usual))).value_or(usual);
    }

  private:
    std::map<std::string, std::string> words_;
};

StreamOptions stream_options(const Options& options) {
    StreamOptions stream;
    stream.order = static_cast<OrderKind>(
        std::ranges::find(order_names, options.text("order", "lanes")) - order_names.begin());
    check(stream.order <= OrderKind::sequential, [] { return Error("E103", "no such order"); });
    stream.seed = static_cast<std::uint64_t>(options.whole("seed", 7));
    stream.lanes = static_cast<int>(options.whole("lanes", 64));
    stream.window_blocks = static_cast<int>(options.whole("window", 4));
    stream.batch = options.whole("batch", 256);
    stream.io_threads = static_cast<int>(options.whole("io_threads", 0));
    stream.memory_bytes = parse_bytes(options.text("memory", "256m")).value_or(256u << 20);
    if (options.text("page_cache", "keep") == "drop") stream.page_cache = PageCache::drop;
    if (options.text("on_bad_data", "fail") == "mask") stream.on_bad_data = BadData::mask;
    return stream;
}

/// Lets `samples` take as long as they may at a pace, asleep as a caller is whose GPU computes.
/// What it sleeps too long it sleeps less the next time.
class Pace {
  public:
    explicit Pace(double samples_per_s) : samples_per_s_(samples_per_s) {
        ::prctl(PR_SET_TIMERSLACK, 1);
    }
    void spend(std::size_t samples) {
        if (samples_per_s_ <= 0) return;
        const double begun = now_s();
        const double period = static_cast<double>(samples) / samples_per_s_;
        const double left = period - overslept_s_;
        if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
        overslept_s_ = std::min(now_s() - begun - left, period);
    }

  private:
    double samples_per_s_;
    double overslept_s_ = 0;
};

/// What was seen of a stream after its first batch.
struct Seen {
    std::uint64_t samples = 0, steps = 0, bytes = 0, touched = 0;
    double first_batch_s = 0, elapsed_s = 0;
    StreamStats spent;
};

Seen consume(const std::shared_ptr<const DatasetIndex>& index, const Options& options) {
    const double opened = now_s();
    BatchStream stream(index, stream_options(options));
    once(Level::info, "{}", stream.memory_text());
    Pace pace(static_cast<double>(options.whole("pace", 0)));
    const auto most_steps = static_cast<std::uint64_t>(options.whole("steps", 0));
    const auto epochs = static_cast<std::uint64_t>(options.whole("epochs", 3));
    Seen seen;
    stream.next();
    const double begun = now_s();
    const StreamStats before = stream.stats();
    seen.first_batch_s = begun - opened;
    for (;;) {
        const Batch batch = stream.next();
        ++seen.steps;
        seen.samples += batch.sample_ids.size();
        for (const auto& field : batch.fields) seen.bytes += field.size();
        pace.spend(batch.sample_ids.size());
        if (most_steps > 0 ? seen.steps >= most_steps : batch.next.epoch >= epochs) break;
    }
    seen.elapsed_s = now_s() - begun;
    seen.spent = stream.stats() - before;
    return seen;
}

Json report(const Seen& seen) {
    const StreamStats& spent = seen.spent;
    return {{"samples_per_s", static_cast<double>(seen.samples) / seen.elapsed_s},
            {"bytes_per_s", static_cast<double>(seen.bytes) / seen.elapsed_s},
            {"elapsed_s", seen.elapsed_s},
            {"first_batch_s", seen.first_batch_s},
            {"steps", seen.steps},
            {"read_s", spent.read_s},
            {"verify_s", spent.verify_s},
            {"decode_s", spent.decode_s},
            {"assemble_s", spent.assemble_s},
            {"wait_s", spent.wait_s},
            {"stall_share", spent.wait_s / seen.elapsed_s},
            {"read_bytes", spent.bytes_read},
            {"blocks", spent.blocks_read},
            {"requests", spent.requests},
            {"masked_samples", spent.masked_samples},
            {"io_threads", spent.io_threads},
            {"binds", std::string(binding_stage(spent, seen.elapsed_s))}};
}

int run(int count, char** words) {
    if (count < 2) {
        std::cout << usage;
        return 64;
    }
    const Options options(count, words);
    const auto index = std::make_shared<const DatasetIndex>(DatasetIndex::open(words[1]));
    if (options.whole("cold", 0) == 1) drop_page_cache(*index);
    std::cout << report(consume(index, options)).dump() << '\n';
    return 0;
}

}  // namespace

int main(int count, char** words) {
    try {
        return run(count, words);
    } catch (const lockstep::Error& error) {
        std::cerr << error.text() << '\n';
        return static_cast<int>(error.exit_code());
    }
}
