// SPDX-License-Identifier: Apache-2.0
// What a start of a run begins with: its ranks, its settings, the machine that it is on, the data
// that it learns from and is tested on, and whether they are those that the run was made with. And
// those data in use: in memory that a node's ranks share, or read as needed.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/content.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/resident.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What this process has used so far.
struct ProcessTimes {
    double wall_s = 0;       ///< of now_s()
    double processor_s = 0;  ///< of all threads
    double coreless_s = 0;   ///< the first thread was ready to run and had no core; 0: unknown
};

ProcessTimes process_times();

struct Start {
    /// Collective. Errors: E605 where ranks have other settings; those of check_settings() and of
    /// TransformPipeline::parse().
    Start(const TrainSettings& given, const Communicator& world);

    /// Of this rank, once V is settled.
    LeafRange leaves() const {
        return leaves_of(ranks.rank(), ranks.size(), settings.virtual_ranks);
    }

    Communicator ranks;
    TrainSettings settings;  ///< V, instruction set and device are filled in as they are settled
    std::string transform;   ///< as it was given; `settings` have it in full
    NodeFacts node = read_node_facts();
    ProcessTimes began = process_times();
    std::vector<std::string> notes;  ///< for the log
};

/// What a run is given.
struct Inputs {
    /// Of the files that the run was made with, where others hold the same.
    std::string data_digest() const { return digests.at("data-digest").get<std::string>(); }

    std::shared_ptr<const DatasetIndex> data;
    std::shared_ptr<const DatasetIndex> test_data;  ///< null: the run is not evaluated
    std::uint64_t samples = 0;                      ///< to train on
    Json digests;  ///< of data, and of files that settings name, as they are settled
};

/// Collective. Opens the data, and divides them with --split. Errors: E215, those of
/// DatasetIndex; the same on all ranks.
Inputs open_inputs(Start& start);

/// Collective. Rank 0 opens the data set at `path` and sends its index to all. `fields` is empty
/// for packed data; else it names the data sets of HDF5 files of others: "images=/x,labels=/y".
/// `own`: `fields` are those of the training data, and these are what test data have besides.
/// Errors: those of DatasetIndex::open, or of open_test; the same on all ranks.
std::shared_ptr<const DatasetIndex> open_dataset(const Communicator& ranks,
                                                 const fs::path& path,
                                                 const std::string& fields,
                                                 Links links,
                                                 const std::optional<std::string>& own = {});

/// Collective. Returns the digest of all samples, which it reads.
std::string content_of(const Communicator& ranks, const std::shared_ptr<const DatasetIndex>& data);

/// Collective. Keeps "data-digest" among the digests, and "data-content" of foreign files.
/// `recorded` are the deciding settings of the run; empty for a new one. Foreign files have no
/// hashes, and their digest goes by times: so a new run keeps a digest of their content, if they
/// are small or --accept-data asks for it, by which a resumed one tells whether files whose digest
/// differs hold the same samples. Those are accepted with --accept-data only, and the run goes on
/// under the digest that it had. Errors: E306 saying whether the content was compared, and whether
/// it differs.
void settle_run_data(Start& start, Inputs& inputs, const Json& recorded);

/// Collective. Gives the training data the mean and deviation that --normalise asks for: by one
/// pass of the data, which gives the same bits with any ranks, or from a file. A run that goes on
/// keeps its own. Errors: E103 (no such file), E217 (it has none of an input), those of reading.
void settle_statistics(const Start& start, Inputs& inputs);

/// The training data of one rank.
class DataFeed {
  public:
    /// Collective. Chooses the source of each node's data, and loads resident data: each rank of
    /// the node loads its part, with `load_threads` threads. Errors: E227, E632, those of
    /// ResidentRows::load(); the same on all ranks.
    DataFeed(const Communicator& ranks,
             std::shared_ptr<const DatasetIndex> index,
             const TrainSettings& settings,
             std::uint64_t node_memory_bytes,
             int load_threads);

    /// Collective. Checks that files without hashes have not changed since they were opened.
    /// Errors: E251.
    void check_files() const;

    /// The same for this rank alone. Any thread may call it.
    void check_own_files() const { watch_->check(); }

    /// Returns this rank's batches from `start` on, in memory that `page_lock` locks. Errors: those
    /// of BatchStream.
    std::unique_ptr<BatchStream> batches(LeafRange leaves,
                                         StreamPosition start,
                                         const PageLock& page_lock) const;

    bool is_resident() const { return resident_ != nullptr; }  ///< the data are in memory

  private:
    DataMode choose(const TrainSettings& settings,
                    std::uint64_t node_memory_bytes,
                    int load_threads) const;
    void reserve();
    void load(int threads);

    Communicator ranks_, node_;
    std::shared_ptr<const DatasetIndex> index_;
    StreamOptions options_;
    std::optional<FileWatch> watch_;
    std::shared_ptr<ResidentRows> resident_;  ///< null: read as needed
};

/// Returns the selection of samples to train on.
SamplePart trained_part(const TrainSettings& settings);

/// Returns the selection of test samples.
SamplePart tested_part(const TrainSettings& settings);

/// Returns the settings of reading, for any stream of the run, without the selection of samples.
StreamOptions stream_options(const TrainSettings& settings);

/// Returns number `index` of those that `row` stores.
template <class Number>
Number stored_number(std::span<const std::byte> row, std::size_t index) {
    Number value{};
    std::memcpy(&value, row.data() + index * sizeof value, sizeof value);
    return value;
}

/// A stored number that makes every loss infinite or NaN.
struct BadSample {
    std::uint64_t sample = 0;
    std::string text;        ///< "'features' of sample 3 has nan: row 3 of '/x' in 'b.h5'"
    std::string field;       ///< "features"
    bool is_finite = false;  ///< its square exceeds f32
};

/// Returns the first sample of `batch`, rows of `index`, with such a number in a target or in an
/// input named by `inputs` (the form of --inputs). Returns nothing if none of this rank's samples
/// has one.
std::optional<BadSample> bad_sample(const Batch& batch,
                                    const DatasetIndex& index,
                                    const std::string& inputs);

/// Returns E701 for the loss of step `step` that names such a sample.
std::optional<Error> sample_error(double loss,
                                  std::int64_t step,
                                  const Batch& batch,
                                  const DatasetIndex& index,
                                  const TrainSettings& settings);

}  // namespace lockstep
