// SPDX-License-Identifier: Apache-2.0
#include "loop/deciding_files.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"

#include "checkpoint/safetensors_file.hpp"
#include "model/model_source.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

// All ranks but the first compare theirs with its own.
std::string agreed_digest(const Communicator& ranks, const std::filesystem::path& path) {
    const std::string mine = agree(ranks, [&] { return file_digest(path); });
    const std::string root = ranks.broadcast(mine);
    agree(ranks, [&] {
        check(mine == root, [&] {
            return Error("E605",
                         fmt::format("ranks have different models: '{}' is another file here than "
                                     "on rank 0",
                                     path.string()),
                         fmt::format("its hash is {} here and {} there", mine, root),
                         "give all nodes the same file");
        });
    });
    return root;
}

}  // namespace

Json agreed_digests(const Communicator& ranks, const TrainSettings& settings) {
    Json digests = Json::object();
    if (source_of(settings.model.name) != ModelSource::registered)
        digests["model-digest"] = agreed_digest(ranks, settings.model.name);
    return digests;
}

}  // namespace lockstep
