// SPDX-License-Identifier: Apache-2.0
// Flips random bits of packed data sets and cuts their files: each is found and named by `verify`,
// and by streaming where it matters. See the script `damage`.
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/check.hpp"

#include "data/samples.hpp"
#include "support/caught.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct Options {
    std::uint64_t flips = 1000, cuts = 200, seed = 1;
};

// What was done and seen, over all rounds.
struct Tally {
    std::map<std::string, std::uint64_t> flipped;  // by where
    std::uint64_t cut = 0;
    std::vector<std::string> misses;
};

// A block that holds a place in a file.
struct Place {
    std::size_t field = 0, number = 0;  // the number within the shard
    StoredBlock block;
};

class Soak {
  public:
    Soak(const test::TempDir& folder, Codec codec, const Options& options, Tally& tally)
        : codec_(codec),
          options_(options),
          tally_(tally),
          samples_(test::make_samples(1500, 1, {1, 8, 8, {}, {}})) {
        pack_ = test::options_for(folder, samples_, std::string(codec_name(codec)), codec);
        pack_.shards = 2;
        pack_dataset(pack_);
        index_ = test::open_index(pack_.output);
        expected_ = test::expected_content(samples_, pack_);
        for (const Shard& shard : index_->shards()) files_.push_back(shard.name);
        files_.emplace_back(manifest_name);
    }

    void flip_bits(std::uint64_t count) {
        CounterRandom random(Purpose::test, {options_.seed, 1, static_cast<std::uint64_t>(codec_)});
        std::vector<std::uint64_t> begins = {0};  // of the files, one after the other
        for (const std::string& file : files_)
            begins.push_back(begins.back() + fs::file_size(pack_.output / file));
        for (std::uint64_t i = 0; i < count; ++i) {
            const std::uint64_t byte = random.below(begins.back());
            const auto next = std::ranges::upper_bound(begins, byte);
            const auto file = static_cast<std::size_t>(next - begins.begin() - 1);
            const std::uint64_t offset = byte - begins[file];
            const std::string good = test::content_of(pack_.output / files_[file]);
            const int bit = static_cast<int>(random.below(8));
            std::string bad = good;
            bad[offset] = static_cast<char>(bad[offset] ^ (1 << bit));
            write(files_[file], bad);
            look_at_flip(file, offset);
            write(files_[file], good);
        }
    }

    void cut_files(std::uint64_t count) {
        for (const std::string& file : files_) {
            const std::string good = test::content_of(pack_.output / file);
            const std::uint64_t step =
                std::max<std::uint64_t>(good.size() * files_.size() / count, 1);
            for (std::uint64_t bytes = 0; bytes < good.size(); bytes += step) {
                write(file, good.substr(0, bytes));
                const std::string where = fmt::format("{} cut to {} bytes", file, bytes);
                look_at_cut(where, file, bytes);
                if (!test::caught([&] { DatasetIndex::open(pack_.output); }))
                    miss(where, "it was opened");
                ++tally_.cut;
            }
            write(file, good);
        }
    }

  private:
    void write(const std::string& file, const std::string& content) {
        std::ofstream(pack_.output / file, std::ios::binary) << content;
    }
    void miss(const std::string& where, const std::string& what) {
        tally_.misses.push_back(fmt::format("{}, {}: {}", codec_name(codec_), where, what));
    }

    std::optional<Place> place_of(std::size_t shard, std::uint64_t offset) const {
        for (std::size_t f = 0; f < index_->fields().size(); ++f) {
            std::size_t number = 0;
            for (const StoredBlock& block : index_->stored_blocks(f)) {
                if (block.shard != shard) continue;
                if (offset >= block.offset && offset - block.offset < block.stored_bytes)
                    return Place{f, number, block};
                ++number;
            }
        }
        return {};
    }

    bool is_in_table(std::size_t shard, std::uint64_t offset) const {
        for (const IndexPlace& place : index_->shards()[shard].index)
            if (offset >= place.offset && offset - place.offset < place.blocks * 32) return true;
        return false;
    }

    // What verify says about `file`; it says nothing about any other.
    std::optional<Finding> finding_of(const std::string& file) {
        std::optional<Finding> found;
        for (const Finding& finding : verify_dataset(pack_.output)) {
            if (finding.file != file) miss(file, "verify names " + finding.file);
            if (!found || (found->block < 0 && finding.block >= 0)) found = finding;
        }
        return found;
    }

    // What ends a stream over all samples; nothing if they are all as they were.
    std::optional<Error> stream() {
        return test::caught([&] {
            const auto content =
                test::read_all(test::open_index(pack_.output), {.order = OrderKind::sequential});
            check(content == expected_, [] { return Error("E700", "samples differ"); });
        });
    }

    void look_at_flip(std::size_t file, std::uint64_t offset) {
        const std::string where = fmt::format("{} at {}", files_[file], offset);
        const std::optional<Finding> finding = finding_of(files_[file]);
        if (!finding) return miss(where, "verify found nothing");
        const std::optional<Error> error = stream();
        if (error && error->code() == "E700") return miss(where, error->what());
        if (file + 1 == files_.size()) {
            ++tally_.flipped["manifest"];
            if (!error) miss(where, "a stream took it");
            return;
        }
        const auto place = place_of(file, offset);
        if (!place) {
            ++tally_.flipped[is_in_table(file, offset) ? "index" : "structure"];
            if (is_in_table(file, offset) &&
                (offset < finding->offset || offset >= finding->offset + finding->bytes))
                miss(where, "verify does not name the index: " + finding->text);
            return;
        }
        ++tally_.flipped["block"];
        look_at_block(where, *place, *finding, error);
    }

    void look_at_cut(const std::string& where, const std::string& file, std::uint64_t bytes) {
        const std::vector<Finding> findings = verify_dataset(pack_.output);
        if (findings.empty()) return miss(where, "verify found nothing");
        for (const Finding& finding : findings)
            if (finding.file != file) miss(where, "verify names " + finding.file);
        const auto shard =
            static_cast<std::size_t>(std::ranges::find(files_, file) - files_.begin());
        if (shard + 1 == files_.size()) return;
        for (std::size_t f = 0; f < index_->fields().size(); ++f)
            look_at_cut_field(where, shard, f, bytes, findings);
    }

    // Blocks that are gone are named with their places, or the index is if it is gone itself.
    void look_at_cut_field(const std::string& where,
                           std::size_t shard,
                           std::size_t field,
                           std::uint64_t bytes,
                           const std::vector<Finding>& findings) {
        const auto names = [&](std::int64_t block, std::uint64_t offset, std::uint64_t size) {
            return std::ranges::any_of(findings, [&](const Finding& finding) {
                return finding.field == index_->fields()[field].name && finding.block == block &&
                       finding.offset == offset && finding.bytes == size;
            });
        };
        const IndexPlace& table = index_->shards()[shard].index[field];
        if (table.offset + table.blocks * 32 > bytes) {
            if (!names(-1, table.offset, table.blocks * 32)) miss(where, "the index is not named");
            return;
        }
        std::int64_t number = 0;
        for (const StoredBlock& block : index_->stored_blocks(field)) {
            if (block.shard != shard) continue;
            const bool is_cut = block.offset + block.stored_bytes > bytes;
            if (is_cut != names(number, block.offset, block.stored_bytes))
                miss(where, fmt::format("block {} is {}named", number, is_cut ? "not " : ""));
            ++number;
        }
    }

    void look_at_block(const std::string& where,
                       const Place& place,
                       const Finding& finding,
                       const std::optional<Error>& error) {
        const bool is_named = finding.field == index_->fields()[place.field].name &&
                              finding.block == static_cast<std::int64_t>(place.number) &&
                              finding.offset == place.block.offset &&
                              finding.bytes == place.block.stored_bytes;
        if (!is_named) miss(where, "verify names another place: " + finding.text);
        const std::string text = error ? error->text() : "";
        for (const std::string& part : {index_->shards()[place.block.shard].name,
                                        fmt::format("block {},", place.number),
                                        "offset " + grouped(place.block.offset)})
            if (text.find(part) == text.npos)
                miss(where, fmt::format("a stream does not say '{}' but '{}'", part, text));
    }

    Codec codec_;
    Options options_;
    Tally& tally_;
    test::Samples samples_;
    test::IdxPack pack_;
    std::shared_ptr<const DatasetIndex> index_;
    std::map<std::uint64_t, test::Delivered> expected_;
    std::vector<std::string> files_;
};

int run(int count, char** words) {
    Options options;
    const std::map<std::string, std::uint64_t*> known{
        {"--flips", &options.flips}, {"--cuts", &options.cuts}, {"--seed", &options.seed}};
    for (int i = 1; i + 1 < count; i += 2)
        *known.at(words[i]) = static_cast<std::uint64_t>(parse_integer(words[i + 1]).value());
    const test::TempDir folder;
    Tally tally;
    constexpr std::array codecs{Codec::none, Codec::deflate, Codec::lz4, Codec::zstd};
    for (const Codec codec : codecs) {
        Soak soak(folder, codec, options, tally);
        soak.flip_bits((options.flips + codecs.size() - 1) / codecs.size());
        soak.cut_files((options.cuts + codecs.size() - 1) / codecs.size());
    }
    for (const std::string& miss : tally.misses) fmt::print("missed: {}\n", miss);
    std::uint64_t flips = 0;
    for (const auto& [where, times] : tally.flipped) flips += times;
    fmt::print("{}\n",
               Json{{"flips", flips},
                    {"by_place", tally.flipped},
                    {"cuts", tally.cut},
                    {"missed", tally.misses.size()},
                    {"ok", tally.misses.empty()}}
                   .dump());
    return tally.misses.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int count, char** words) try {
    return lockstep::run(count, words);
} catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 70;
}
