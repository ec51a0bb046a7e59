// SPDX-License-Identifier: Apache-2.0
// A job's training data: opened once, in memory that a node's ranks share, or read as needed; and
// the sample among them that causes a loss or a metric that is not finite.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/content.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/resident.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

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
