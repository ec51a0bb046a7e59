// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/measure_io.hpp"
#include "lockstep/data/sources.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr const char* bench_io_help =
    R"(Measures how fast training reads a data set here, and how far that is from the limit.
Without --data it makes one of photograph-like images for each codec, and removes it at the end.

  pread   the limit of files: requests of 1 MiB into a ring of buffers
  blocks  the block reader: pread, every hash checked, decode
  stream  shuffled batches, as training gets them; threads are I/O threads
Ways take turns, so that a disturbance affects all of them; compare their shares, not their MB/s.

hot reads from the operating system's page cache. cold drops the data set's pages from it before
each pass; lower caches (of a disk, of a virtual machine's host) stay. The verdict names the stage
that limits the stream (I/O, verify, decode or assemble), and what would help.

Examples:
  lockstep bench io
  lockstep bench io --data data/fashion/train --cache hot
  lockstep bench io --data 'runs/*/part-?.h5' --field images=/x/data --field labels=/y
  lockstep bench io --codec none,lz4 --size 2GiB --scratch /scratch/me --threads 1,2,4,8 --json
)";

struct BenchIoOptions {
    fs::path data;
    std::string fields;
    bool follows_links = false;
    std::vector<std::string> codecs = {"none", "deflate", "lz4", "zstd"};
    std::uint64_t size = 256u << 20;
    std::vector<std::int64_t> image = {3, 64, 64};
    fs::path scratch;          ///< "": where the system has such files
    std::vector<int> threads;  // empty: 1, 2, 4, ... to the cores there are
    bool json = false;
    IoPlan plan;
};

/// Ends measuring from within, so that what was made for it is removed.
struct Interrupted {};

/// A list of whole numbers, each `least` to `most`.
template <class Whole>
Option numbers_option(const std::string& name,
                      std::vector<Whole>& target,
                      std::int64_t most,
                      const std::string& usual,
                      const std::string& help) {
    return {name, "N[,N]", usual, help, OptionKind::text, [&target, name, most](auto& given) {
                target.clear();
                for (const std::string& part : split(given.text, ',')) {
                    const auto number = parse_integer(part);
                    check(number && *number >= 1 && *number <= most,
                          "E103",
                          fmt::format("--{} is '{}' (from {})", name, given.text, given.origin),
                          fmt::format("'{}' is not a whole number from 1 to {}", part, most),
                          fmt::format("for example --{} 1,2,4", name));
                    target.push_back(static_cast<Whole>(*number));
                }
            }};
}

OptionTable table_of(BenchIoOptions& o) {
    return {
        {"Data",
         {data_option("data",
                      o.data,
                      "data to read, as for train; unset: a data set is made for each codec")}},
        foreign_group(o.fields, o.follows_links),
        {"Data that is made",
         {some_option("codec",
                      o.codecs,
                      {"none", "deflate", "lz4", "zstd"},
                      "codecs of the data that is made"),
          bytes_option("size", o.size, "uncompressed size of the images"),
          numbers_option(
              "image", o.image, 1 << 16, "3,64,64", "channels, height and width of the images"),
          path_option("scratch DIR",
                      o.scratch,
                      "folder for data that is made, removed at the end; unset: $TMPDIR or /tmp")}},
        {"How",
         {numbers_option("threads",
                         o.threads,
                         1024,
                         "",
                         "numbers of threads to try; unset: 1, 2, 4 ... cores"),
          choice_option("cache",
                        o.plan.states,
                        {{"hot", {CacheState::hot}},
                         {"cold", {CacheState::cold}},
                         {"both", {CacheState::hot, CacheState::cold}}},
                        "state of the page cache"),
          whole_option(
              "rounds", o.plan.rounds, {1, 1000}, "passes of each way; the ways take turns"),
          whole_option("batch", o.plan.batch, {1, 1 << 20}, "samples per batch"),
          bytes_option("pass", o.plan.least_bytes, "least size that a hot pass reads, decoded"),
          bytes_option("limit",
                       o.plan.limit_bytes,
                       "size above which only the first rows are read, and cold only"),
          bytes_option("memory", o.plan.memory_bytes, "memory for the stream's buffers")}},
        json_group(o.json)};
}

IoPlan plan_of(const BenchIoOptions& options) {
    IoPlan plan = options.plan;
    plan.threads = options.threads;
    if (!plan.threads.empty()) return plan;
    const int cores = std::max<int>(1, static_cast<int>(read_node_facts().allowed_cpus.size()));
    for (int count = 1; count < cores; count *= 2) plan.threads.push_back(count);
    plan.threads.push_back(cores);
    return plan;
}

void go_on() {
    if (stop_requested() != StopRequest::none) throw Interrupted();
}

DatasetIndex make_data(const BenchIoOptions& options, const fs::path& path, Codec codec) {
    ScratchShape shape{.image = options.image};
    std::uint64_t row_bytes = 1;
    for (const std::int64_t size : shape.image) row_bytes *= static_cast<std::uint64_t>(size);
    shape.samples = std::max<std::uint64_t>(options.size / row_bytes, 1);
    PackOptions pack;
    pack.output = path;
    pack.codec = codec;
    pack.shuffle_seed.reset();
    Progress progress(progress_sink(options.json));
    pack_dataset(*scratch_rows(shape), pack, [&](const PackProgress& at) {
        go_on();
        progress.update(at.stage,
                        at.done,
                        at.total,
                        at.stage == "verify" ? ProgressUnit::bytes : ProgressUnit::count);
    });
    progress.finish();
    return DatasetIndex::open(path);
}

constexpr double mega = 1e6;

std::string rate_text(double bytes_per_s, std::uint64_t bytes) {
    return bytes == 0 ? "" : fmt::format("{:.0f}", bytes_per_s / mega);
}

std::string spent_text(double seconds, double of_s) {
    return of_s > 0 ? fmt::format("{:.0f}", 100 * seconds / of_s) : "";
}

std::string row_text(const IoMeasurements& measured, const IoRow& row) {
    const double io_s = row.spent.blocks_read > 0 ? row.best_s * row.threads : 0;
    const std::optional<double> share = measured.share_of_pread(row);
    const double assembler_s = row.way == IoWay::stream ? row.best_s : 0;
    return fmt::format("{:<8} {:<5} {:>7} {:>9} {:>9} {:>6} {:>6} {:>6} {:>6} {:>8}\n",
                       way_name(row.way),
                       state_name(row.state),
                       row.threads,
                       rate_text(row.bytes_per_s(), row.bytes),
                       rate_text(row.stored_per_s(), row.stored_bytes),
                       share ? fmt::format("{:.0f}", 100 * *share) : "",
                       spent_text(row.spent.read_s, io_s),
                       spent_text(row.spent.verify_s, io_s),
                       spent_text(row.spent.decode_s, io_s),
                       spent_text(row.spent.assemble_s, assembler_s));
}

/// Before measuring: machine, what is done, and what the columns mean. Lines begin with "# ".
std::string io_header_text(const IoPlan& plan, const std::string& cpu_model) {
    return fmt::format(
        "# lockstep {} bench io | {}\n"
        "# best of {} alternating passes of at least {} | threads {} | batches of {}\n"
        "# MB/s (10^6 bytes) of decoded and of stored bytes; the share of pread with as many\n"
        "# threads, in %; where the threads' time went, in %\n",
        version_text(),
        cpu_model,
        plan.rounds,
        bytes_text(plan.least_bytes),
        fmt::join(plan.threads, ", "),
        plan.batch);
}

/// A data set's rows, notes and verdicts.
std::string io_table_text(const std::string& name, const IoMeasurements& measured) {
    std::string text = fmt::format(
        "#\n# {}: {} samples of {}, codec {}, {} stored as {}\n"
        "#way     cache threads   decoded    stored  pread   read verify decode assemble\n",
        name,
        grouped(measured.samples),
        bytes_text(measured.bytes_per_sample),
        measured.codec,
        bytes_text(measured.decoded_bytes),
        bytes_text(measured.stored_bytes));
    for (const IoRow& row : measured.rows) text += row_text(measured, row);
    for (const std::string& note : measured.notes) text += "# " + note + "\n";
    for (const std::string& verdict : io_verdicts(measured))
        text += fmt::format("verdict (codec {}): {}\n", measured.codec, verdict);
    return text;
}

/// Measures one data set and shows it, or adds it to `report`.
void measure_one(const BenchIoOptions& options,
                 const std::string& name,
                 DatasetIndex index,
                 Json& report) {
    IoPlan plan = plan_of(options);
    std::optional<Progress> progress;
    plan.report = [&](std::uint64_t done, std::uint64_t total, const std::string& what) {
        go_on();
        if (!progress)
            progress.emplace("measuring", total, ProgressUnit::count, progress_sink(options.json));
        progress->update(done, fmt::format("measuring {} of {}: {}", done + 1, total, what));
    };
    const IoMeasurements measured =
        measure_io(std::make_shared<const DatasetIndex>(std::move(index)), plan);
    progress.reset();
    if (!options.json) print_once(io_table_text(name, measured));
    Json one = {{"name", name}};
    one.update(io_json(measured));
    report["data"].push_back(std::move(one));
}

void measure_all(const BenchIoOptions& options, Json& report) {
    if (!options.data.empty()) {
        const auto fields = parse_field_mappings(options.fields, links_of(options.follows_links));
        return measure_one(
            options, options.data.string(), DatasetIndex::open(options.data, fields), report);
    }
    const RemovedFolder folder =
        make_scratch_folder(options.scratch.empty() ? fs::temp_directory_path() : options.scratch,
                            "bench-io",
                            "give another place by --scratch");
    for (const std::string& name : options.codecs) {
        const fs::path path = folder / name;
        measure_one(options, name, make_data(options, path, parse_codec(name)), report);
        fs::remove_all(path);
    }
}

int run(const BenchIoOptions& options) {
    check_fits(
        options.image.size() == 3, "--image takes channels, height and width", "", "see --help");
    check_fits(options.fields.empty() || !options.data.empty(),
               "--field is given without --data",
               "",
               "name the files by --data");
    const std::string cpu = read_node_facts().cpu_model;
    Json report = {
        {"bench", "io"}, {"lockstep", version_text()}, {"cpu", cpu}, {"data", Json::array()}};
    if (!options.json) print_once(io_header_text(plan_of(options), cpu));
    const SignalGuard signals;
    try {
        measure_all(options, report);
    } catch (const Interrupted&) {
        return static_cast<int>(ExitCode::interrupted);
    }
    if (options.json) print_once(report.dump() + "\n");
    return 0;
}

}  // namespace

Command bench_io_command() {
    auto options = std::make_shared<BenchIoOptions>();
    return {.name = "bench io",
            .summary = "measure how fast data are read, and what limits it",
            .usage = "lockstep bench io [--data DIR] [--codec NAME,..] [--threads N,..] [options]",
            .text = bench_io_help,
            .table = table_of(*options),
            .run = [options](const Invocation&) { return run(*options); }};
}

}  // namespace lockstep
