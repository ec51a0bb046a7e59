// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"

#include <ranges>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string text_in(const Json& object, const char* key) {
    const Json text = object.value(key, Json(""));
    return text.is_string() ? text.get<std::string>() : "";
}

// Damaged ones are passed over when the run is loaded, and said there.
std::optional<BitContract> newest_checkpoint_contract(const fs::path& checkpoints) {
    for (const CheckpointInfo& info : list_checkpoints(checkpoints) | std::views::reverse) {
        try {
            return read_checkpoint_state(info.path).contract;
        } catch (const Error&) {
            continue;
        }
    }
    return std::nullopt;
}

// A setting that earlier versions had. It decided bits wherever it was not the default.
Json without_wire(const fs::path& run, Json deciding) {
    if (!deciding.is_object()) return deciding;
    const std::string wire = text_in(deciding, "wire");
    check(wire.empty() || wire == "f32", [&] {
        return Error("E306",
                     fmt::format("run '{}' was made with --wire {}", run.string(), wire),
                     "this version sends gradients as fp32 only",
                     fmt::format("begin another run with its weights: 'lockstep export {} --out "
                                 "w.safetensors', then this command with --load-weights "
                                 "w.safetensors and another --run",
                                 shell_word(run.string())));
    });
    deciding.erase("wire");
    deciding.erase("powersgd-rank");
    return deciding;
}

Error other_bits(const fs::path& run, const BitContract& then, const BitContract& now) {
    return Error("E710",
                 fmt::format("run '{}' cannot continue here with the same bits", run.string()),
                 fmt::format("a step before the run gives {} on {}, and gave {} on {}",
                             now.canary.substr(0, 8),
                             now.processor,
                             then.canary.substr(0, 8),
                             then.processor),
                 "use the same kind of nodes as before (sbatch --constraint), or "
                 "--accept-other-bits: the model will be as good, but its bits will differ");
}

}  // namespace

std::vector<BitContract> recorded_contracts(const fs::path& run) {
    std::vector<BitContract> found;
    const RunPaths paths{run};
    if (std::error_code failed; fs::exists(paths.record(), failed)) {
        const RunRecord record = read_run_record(run);
        found.push_back({without_wire(run, record.deciding),
                         text_in(record.contract, "canary"),
                         text_in(record.contract, "processor")});
    }
    if (auto newest = newest_checkpoint_contract(paths.checkpoints())) {
        newest->deciding = without_wire(run, std::move(newest->deciding));
        found.push_back(*std::move(newest));
    }
    return found;
}

Json recorded_settings(const std::vector<BitContract>& recorded) {
    for (const BitContract& contract : recorded)
        if (!contract.deciding.empty()) return contract.deciding;
    return Json::object();
}

std::optional<std::string> check_recorded(const fs::path& run,
                                          const std::vector<BitContract>& recorded,
                                          const BitContract& now,
                                          const Json& origins,
                                          OtherBits other) {
    const BitContract* last = nullptr;
    for (const BitContract& contract : recorded) {
        if (!contract.deciding.empty())
            check_same_deciding(run, contract.deciding, now.deciding, origins);
        if (!contract.canary.empty()) last = &contract;
    }
    if (!last || last->canary == now.canary) return std::nullopt;
    const Error error = other_bits(run, *last, now);
    if (other == OtherBits::refuse) throw error;
    return fmt::format("{}: {}; accepted", error.what(), error.why());
}

}  // namespace lockstep
