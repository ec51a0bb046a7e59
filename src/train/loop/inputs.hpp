// SPDX-License-Identifier: Apache-2.0
// What a start of a run begins with: its ranks, its settings, the machine that it is on, the data
// that it learns from and is tested on, and whether they are those that the run was made with.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
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
/// Errors: those of DatasetIndex::open, the same on all ranks.
std::shared_ptr<const DatasetIndex> open_dataset(const Communicator& ranks,
                                                 const fs::path& path,
                                                 const std::string& fields,
                                                 Links links);

/// Collective. The same of data that a model is tested on, which has `own` fields besides those of
/// the training data, `trained`. Errors: those of DatasetIndex::open_test.
std::shared_ptr<const DatasetIndex> open_test_dataset(const Communicator& ranks,
                                                      const fs::path& path,
                                                      const std::string& trained,
                                                      const std::string& own,
                                                      Links links);

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

}  // namespace lockstep
