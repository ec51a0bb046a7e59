// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/plan/losses.hpp"
#include "lockstep/plan/run_length.hpp"
#include "lockstep/plan/settings.hpp"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::int64_t most_kept = 1000;

// Returns false if `part` is none, or has no such value.
bool take_part(KeepSettings& keep, const std::string& name, const GivenValue& value) {
    if (name == "every") {
        keep.every = parse_period("keep", value);
        return keep.every.unit == Period::Unit::epochs || keep.every.unit == Period::Unit::steps;
    }
    const auto number = parse_integer(value.text);
    if (!number || *number < (name == "last" ? 1 : 0) || *number > most_kept) return false;
    if (name == "last") keep.last = static_cast<int>(*number);
    if (name == "best") keep.best = static_cast<int>(*number);
    return name == "last" || name == "best";
}

KeepSettings parse_keep(const GivenValue& given) {
    KeepSettings keep;
    std::set<std::string> seen;
    for (const std::string& part : split(given.text, ',')) {
        const std::size_t sign = std::min(part.find('='), part.size());
        const std::string name = part.substr(0, sign);
        const std::string value = part.substr(std::min(sign + 1, part.size()));
        bool is_taken = seen.insert(name).second;
        try {
            is_taken = is_taken && take_part(keep, name, {value, given.origin});
        } catch (const Error&) {
            is_taken = false;
        }
        check(is_taken, [&] {
            return Error("E103",
                         fmt::format("--keep is '{}' (from {})", given.text, given.origin),
                         fmt::format("'{}' is none of last=1 to {}, best=0 to {}, and every= with "
                                     "steps or epochs, each of them once",
                                     part,
                                     most_kept,
                                     most_kept),
                         "for example --keep last=3,every=10epochs");
        });
    }
    return keep;
}

std::string keep_text(const KeepSettings& keep) {
    std::string parts = fmt::format("last={}", keep.last);
    if (keep.every != Period{}) parts += ",every=" + period_text(keep.every);
    if (keep.best) parts += fmt::format(",best={}", *keep.best);
    return parts;
}

}  // namespace

Option keep_option(KeepSettings& target) {
    return {.name = "keep",
            .value = "PART[,PART]",
            .default_value = keep_text(target),
            .help =
                "checkpoints to keep: last=N, the newest; every=10epochs or every=500steps, for "
                "good the first after each such period; best=N, the best by --keep-best",
            .kind = OptionKind::list,
            .assign = [&target](const GivenValue& given) { target = parse_keep(given); },
            .current = [&target]() -> ConfigValue { return keep_text(target); }};
}

Retention retention_of(const TrainSettings& settings,
                       const RunLength& length,
                       const BestEvaluation& best,
                       std::int64_t read) {
    const bool rolls_back = settings.on_nonfinite == NonFinite::rollback;
    return {.last = settings.keep.last,
            .every = steps_of(settings.keep.every, length),
            .rollback = rolls_back ? steps_of(settings.checkpoint_every, length) : 0,
            .read = read,
            .best = kept_steps(settings, best)};
}

}  // namespace lockstep
