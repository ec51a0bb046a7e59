// SPDX-License-Identifier: Apache-2.0
// Whether a run's training data are those that it was made with.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/plan/settings.hpp"

#include <memory>
#include <string>

namespace lockstep {

/// What a run keeps of its training data.
struct RunData {
    Json facts = Json::object();  ///< "data-digest"; of foreign files "data-content", too
    std::string note;             ///< for the log; "": nothing to say
};

/// Collective. `recorded` are the deciding settings of the run; empty for a new one. Foreign files
/// have no hashes, and their digest goes by times: so a new run keeps a digest of their content, if
/// they are small or --accept-data asks for it, by which a resumed one tells whether files whose
/// digest differs hold the same samples. Those are accepted with --accept-data only, and the run
/// goes on under the digest that it had.
/// Errors: E306 saying whether the content was compared, and whether it differs.
RunData settle_run_data(const Communicator& ranks,
                        const TrainSettings& settings,
                        const std::shared_ptr<const DatasetIndex>& data,
                        const Json& recorded);

}  // namespace lockstep
