// SPDX-License-Identifier: Apache-2.0
#include "submit/submit_estimate.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/manifest.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/plan/run_length.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Memory of a rank with LibTorch and MPI: the value in the quick start's step line, less its small
// model.
constexpr std::uint64_t bare_rank_bytes = 220u << 20;

struct DataShape {
    ModelShape model;
    std::uint64_t bytes = 0;
};

// Puts what `field` says of a model's inputs and outputs into `shape`.
void add_field(const Field& field, ModelShape& shape) {
    if (field.classes() > 0) shape.classes = field.classes();
    if (field.name == "tokens" && field.shape.size() == 1) {
        shape.vocabulary = field.classes();
        shape.width = field.shape[0] - 1;  // the last is only predicted
    }
    if (field.shape.size() != 3) return;
    shape.channels = field.shape[0];
    shape.height = field.shape[1];
    shape.width = field.shape[2];
}

// `usual` where the data cannot be seen from this host, or are no packed shards.
DataShape data_shape(const fs::path& folder, const ModelShape& usual) {
    DataShape shape{.model = usual};
    std::error_code missing;
    if (!fs::exists(folder / manifest_name, missing)) return shape;
    const Manifest data =
        parse_manifest(read_manifest_text(folder), (folder / manifest_name).string());
    shape.bytes = data.samples * data.bytes_per_sample();
    for (const Field& field : data.fields) add_field(field, shape.model);
    return shape;
}

// The built-in model; nullptr where it is another, or where settings give it other sizes.
const ModelFacts* usual_model(const ModelSettings& model) {
    const bool is_usual =
        model.channels.empty() && model.layers == 0 && model.heads == 0 && model.width == 0;
    return is_usual ? find_built_in(model.name) : nullptr;
}

// Vectors as long as the parameters that the optimizer keeps.
std::uint64_t state_vectors(const OptimizerSettings& optimizer) {
    const std::uint64_t averages = optimizer.average_decay > 0 ? 1 : 0;
    if (optimizer.kind == OptimizerKind::sgd) return averages + (optimizer.momentum > 0 ? 1 : 0);
    return averages + (optimizer.kind == OptimizerKind::lars ? 1 : 2);
}

// A rank adds up the leaves it has in a tree: a slot for each level, and one to compute into.
std::uint64_t gradient_slots(const TrainSettings& settings,
                             std::uint64_t parameters,
                             std::uint64_t ranks) {
    const ModelTraits traits{.parameters = static_cast<std::int64_t>(parameters)};
    const auto leaves = static_cast<std::uint64_t>(
        settings.virtual_ranks > 0
            ? settings.virtual_ranks
            : default_virtual_ranks(settings, settings.batch, traits, static_cast<int>(ranks)));
    return 1 + static_cast<std::uint64_t>(std::bit_width((leaves + ranks - 1) / ranks));
}

int kept_checkpoints(const TrainSettings& settings) {
    const int best = settings.keep_best.empty() ? 0 : 1;
    const int to_roll_back_to = settings.on_nonfinite == NonFinite::rollback ? 1 : 0;
    return settings.keep_checkpoints + best + to_roll_back_to;
}

}  // namespace

JobEstimate estimate_job(const TrainSettings& settings,
                         const JobPart& part,
                         std::uint64_t parameters) {
    const ModelFacts* const model = usual_model(settings.model);
    const DataShape data = data_shape(settings.data, model ? model->usual : ModelShape{});
    JobEstimate estimate{.parameters = parameters, .data_bytes = data.bytes};
    if (model && parameters == 0)
        estimate.parameters = static_cast<std::uint64_t>(model->parameters(data.model));
    const auto node_ranks = static_cast<std::uint64_t>(part.ranks_per_node());
    const std::uint64_t ranks = node_ranks * static_cast<std::uint64_t>(part.node_count());
    const std::uint64_t vector_bytes = 4 * estimate.parameters;
    const std::uint64_t states = state_vectors(settings.optimizer);
    const std::uint64_t reading = node_ranks * settings.data_memory;
    estimate.node_memory_bytes =
        node_ranks * bare_rank_bytes + (1 + states) * vector_bytes +
        node_ranks * gradient_slots(settings, estimate.parameters, ranks) * vector_bytes +
        (data.bytes > 0 ? std::min(data.bytes, reading) : reading);
    estimate.checkpoint_bytes = (1 + states) * vector_bytes;
    // Those that are kept, while one more is written.
    estimate.disk_bytes =
        (static_cast<std::uint64_t>(kept_checkpoints(settings)) + 1) * estimate.checkpoint_bytes;
    return estimate;
}

std::string estimate_text(const JobEstimate& estimate, const TrainSettings& settings) {
    if (estimate.parameters == 0)
        return fmt::format("# model '{}': give --parameters N for an estimate of memory and disk\n",
                           settings.model.name);
    return fmt::format(
        "# memory of a node  about {} ({} parameters; data {})\n"
        "# disk of the run   about {} ({} checkpoints of {}, and one being written)\n",
        bytes_text(estimate.node_memory_bytes),
        grouped(estimate.parameters),
        estimate.data_bytes > 0 ? bytes_text(estimate.data_bytes) : "not visible from here",
        bytes_text(estimate.disk_bytes),
        kept_checkpoints(settings),
        bytes_text(estimate.checkpoint_bytes));
}

}  // namespace lockstep
