// SPDX-License-Identifier: Apache-2.0
// HDF5 files with fuzzed structures, as foreign files and as shards: each ends in an error or in
// data, soon, and never in a crash.
#include "lockstep/core/clock.hpp"
#include "lockstep/data/check.hpp"
#include "lockstep/data/sources.hpp"

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "support/unit.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double patience_s = 8;

// How many files each test makes of each kind: LOCKSTEP_HOSTILE_FILES, or as many as tests have
// time for.
std::uint64_t files_or(std::uint64_t usual) {
    const char* given = std::getenv("LOCKSTEP_HOSTILE_FILES");
    return given ? static_cast<std::uint64_t>(parse_integer(given).value()) : usual;
}

// The parts of an HDF5 file that a mutation aims at, by the signature that they begin with (HDF5
// File Format Specification 3.0), and how many bytes after it.
struct Target {
    const char* name;
    std::string signature;
    std::size_t reach;
};
const std::vector<Target> old_targets{{"superblock", "\x89HDF", 96},
                                      {"B-tree", "TREE", 300},
                                      {"symbols", "SNOD", 200},
                                      {"heap", "HEAP", 120}};
const std::vector<Target> new_targets{{"superblock", "\x89HDF", 48},
                                      {"object header", "OHDR", 300},
                                      {"fixed array", "FAHD", 40},
                                      {"fixed array block", "FADB", 120},
                                      {"continuation", "OCHK", 120}};

// Changes bytes of one part: some single bits, some bytes, some whole numbers, some 0xff.
std::string mutated(const std::string& content, const Target& target, std::uint64_t seed) {
    std::vector<std::size_t> places;
    for (std::size_t at = content.find(target.signature); at != content.npos;
         at = content.find(target.signature, at + 1))
        places.push_back(at);
    if (places.empty()) return {};
    CounterRandom random(Purpose::test, {seed, content.size()});
    std::string bad = content;
    const std::size_t place = places[random.below(places.size())];
    const std::size_t reach = std::min(target.reach, content.size() - place - 8);
    for (std::uint64_t left = 1 + random.below(4); left > 0; --left) {
        const std::size_t at = place + (reach > 8 ? 4 + random.below(reach - 4) : 0);
        const std::uint64_t kind = random.below(4);
        if (kind == 0) bad[at] = static_cast<char>(bad[at] ^ (1 << random.below(8)));
        if (kind == 1) bad[at] = static_cast<char>(random.below(256));
        if (kind == 2) bad.replace(at, 4, "\xff\xff\xff\xff");
        if (kind == 3) bad.replace(at, 8, std::string("\0\0\0\0\0\0\0\x7f", 8));
    }
    return bad;
}

// Also what has no signature: messages in old object headers, which lie between the others.
std::string mutated_anywhere(const std::string& content, std::uint64_t seed, std::size_t reach) {
    CounterRandom random(Purpose::test, {seed, 99});
    std::string bad = content;
    for (std::uint64_t left = 1 + random.below(12); left > 0; --left)
        bad[random.below(std::min(reach, bad.size()))] = static_cast<char>(random.below(256));
    return bad;
}

std::vector<test::ForeignDataset> rich_datasets() {
    auto datasets = test::images_and_labels(200, 3);
    datasets[0].chunk = {8, 3, 5};
    datasets[0].filters = {
        {H5Z_FILTER_SHUFFLE, {1}}, {H5Z_FILTER_DEFLATE, {3}}, {H5Z_FILTER_FLETCHER32, {}}};
    return datasets;
}

std::string hostile_content(const std::string& content,
                            const std::vector<Target>& targets,
                            std::uint64_t number) {
    const Target& target = targets[number % (targets.size() + 1) % targets.size()];
    const std::string bad = number % (targets.size() + 1) == targets.size()
                                ? mutated_anywhere(content, number, 6000)
                                : mutated(content, target, number);
    return bad.empty() ? mutated_anywhere(content, number, 6000) : bad;
}

// Runs `use`, which may throw an Error of any of our codes, in time. Returns the code or "data".
template <class Use>
std::string outcome(Use&& use) {
    const double since = now_s();
    const auto error = caught(use);
    EXPECT_LT(now_s() - since, patience_s);
    if (!error) return "data";
    EXPECT_NE(error->code(), "E700") << error->text();
    EXPECT_NE(error->code(), "E233") << error->text();
    return error->code();
}

void read_epoch(const DatasetIndex& index) {
    BatchStream stream(std::make_shared<const DatasetIndex>(index),
                       {.order = OrderKind::sequential, .batch = 64});
    while (stream.next().next.epoch == 0) {
    }
}

std::string hostile_file(const std::string& good, test::Format format, std::uint64_t number) {
    return hostile_content(
        good, format == test::Format::earliest ? old_targets : new_targets, number);
}

// Gives `use` files of both formats that `damage` has spoiled. Returns how many were data.
template <class Damage, class Use>
int attack(const std::vector<test::ForeignDataset>& datasets,
           std::uint64_t files,
           Damage&& damage,
           Use&& use) {
    const TempDir folder;
    std::map<std::string, int> outcomes;
    for (const test::Format format : {test::Format::earliest, test::Format::newest}) {
        test::write_foreign(folder / "good.h5", datasets, format);
        const std::string good = content_of(folder / "good.h5");
        for (std::uint64_t number = 0; number < files; ++number) {
            const fs::path path = folder.file("bad.h5", damage(good, format, number));
            ++outcomes[outcome([&] { use(path); })];
        }
    }
    for (const auto& [code, times] : outcomes) fmt::print("{}: {}\n", code, times);
    return outcomes["data"];
}

const std::vector<FieldMapping> rich_fields{{"images", "/x/data"}, {"labels", "/y"}};

TEST(Hostile, ForeignFilesNeverCrashOrHangTheJob) {
    const auto read = [](const fs::path& path) {
        read_epoch(DatasetIndex::open_foreign({path}, rich_fields));
    };
    EXPECT_LT(attack(rich_datasets(), files_or(25), hostile_file, read),
              static_cast<int>(files_or(25)))
        << "the mutations hit what matters";
}

// Also of chunks that cut rows: what lists them is only met when they are read.
TEST(Hostile, ForeignFilesNeverCrashOrHangPacking) {
    auto datasets = rich_datasets();
    datasets[0].chunk = {8, 2, 3};
    const auto read = [](const fs::path& path) { open_hdf5({path}, rich_fields); };
    EXPECT_LT(attack(datasets, files_or(25), hostile_file, read), static_cast<int>(files_or(25)))
        << "the mutations hit what matters";
}

// Texts of any length lie in heaps, which only libhdf5 reads.
TEST(Hostile, TextsNeverCrashOrHangTheJob) {
    const std::vector<std::string> names{"ant", "bee", "cat", "dog"};
    std::vector<const char*> rows;
    for (std::size_t row = 0; row < 64; ++row) rows.push_back(names[row % 4].c_str());
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    // Its references and heaps, and what comes before them.
    const auto damage = [](std::string bad, test::Format, std::uint64_t number) {
        CounterRandom random(Purpose::test, {77, number});
        for (int i = 0; i < 4; ++i)
            bad[random.below(bad.size())] = static_cast<char>(random.below(256));
        return bad;
    };
    attack({{.path = "/y", .type = text, .size = {64}, .bytes = test::encoded(rows)}},
           files_or(20),
           damage,
           [](const fs::path& path) {
               read_epoch(DatasetIndex::open_foreign({path}, {{"labels", "/y"}}));
           });
    H5Tclose(text);
}

// A shard whose index does not match any more, so that libhdf5 is asked.
TEST(Hostile, ShardsNeverCrashOrHangTheJob) {
    const TempDir folder;
    const test::Samples samples = test::make_samples(200);
    std::map<std::string, int> outcomes;
    for (const Codec codec : {Codec::none, Codec::deflate}) {
        const std::string name(codec_name(codec));
        const test::IdxPack options = test::options_for(folder, samples, name, codec);
        const Shard shard = pack_dataset(options).manifest.shards[0];
        const fs::path path = options.output / shard.name;
        const std::string good = content_of(path);
        for (std::uint64_t number = 0; number < files_or(15); ++number) {
            std::string bad = hostile_content(good, old_targets, number);
            bad[shard.index[0].offset + 9] ^= 1;
            folder.file(fs::path(name) / shard.name, bad);
            ++outcomes[outcome([&] { read_epoch(DatasetIndex::open(options.output)); })];
            EXPECT_FALSE(verify_dataset(options.output).empty());
        }
    }
    for (const auto& [code, times] : outcomes) fmt::print("{}: {}\n", code, times);
}

TEST(Hostile, CutFilesAreNoticedWhereverTheyAreCut) {
    const TempDir folder;
    test::write_foreign(folder / "good.h5", rich_datasets());
    const std::string good = content_of(folder / "good.h5");
    for (std::size_t bytes = 0; bytes < good.size(); bytes += good.size() / 40) {
        const fs::path path = folder.file("cut.h5", std::string_view(good).substr(0, bytes));
        const std::string code = outcome([&] {
            DatasetIndex::open_foreign({path}, {{"images", "/x/data"}});
        });
        EXPECT_TRUE(code == "E203" || code == "E204") << bytes << ": " << code;
    }
}

}  // namespace
}  // namespace lockstep
