// SPDX-License-Identifier: Apache-2.0
// Checks whether a run's training data are those that it was made with.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/plan/settings.hpp"

#include <memory>
#include <string>

namespace lockstep {

/// The recorded facts of a run's training data.
struct RunData {
    Json facts = Json::object();  ///< "data-digest"; for foreign files "data-content", too
    std::string note;             ///< line for the log; "": none
};

/// Collective. `recorded` are the deciding settings of the run; empty for a new one. Foreign files
/// have no hashes, and their digest depends on times. So a new run also records a digest of their
/// content, if they are small or --accept-data asks for it. If the files' digest differs on a
/// resume, the content shows whether they hold the same samples. They are accepted only with
/// --accept-data, and the run continues with its old digest. Errors: E306 saying whether the
/// content was compared, and whether it differs.
RunData settle_run_data(const Communicator& ranks,
                        const TrainSettings& settings,
                        const std::shared_ptr<const DatasetIndex>& data,
                        const Json& recorded);

}  // namespace lockstep
