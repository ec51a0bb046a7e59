// SPDX-License-Identifier: Apache-2.0
// Before the first step each rank tests, on generated samples, which ways of computing its leaves
// give the bits of computing them one by one, and their cost.
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"

#include "loop/job.hpp"
#include "replica/torch_cuda.hpp"

#include <bit>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

// With fewer samples, kernels for vectors give other bits than those for matrices.
constexpr std::int64_t least_leaf_rows = 4;

Error leaves_error(const std::string& why) {
    return {"E103",
            "this rank's leaves cannot be computed together",
            why,
            "use --leaves auto, which computes them one by one then"};
}

Error graph_error(const std::string& why) {
    return {"E103",
            "this rank's leaves cannot be recorded and replayed",
            why,
            "use --graph auto, which computes them as always then"};
}

std::string graph_text(const CaptureVerdict& verdict) {
    const std::string times = fmt::format("{:.2f} times as long as computed", verdict.price);
    if (!verdict.why_not.empty())
        return "off, " + verdict.why_not + (verdict.price > 0 ? ", " + times : "");
    return "leaves are recorded once and replayed, which takes " + times;
}

// Returns the cost of computing leaves together, and of the alternative.
std::string speed_text(const std::optional<LeafSpeed>& speed, int ranks) {
    constexpr double worth_a_word = 0.9;
    if (!speed) return "";
    const auto rate = [](double per_s) { return grouped(static_cast<std::uint64_t>(per_s)); };
    return fmt::format(", at {} samples/s forward and backward; as one leaf {}{}",
                       rate(speed->together),
                       rate(speed->as_one),
                       speed->together < worth_a_word * speed->as_one
                           ? fmt::format(" (--virtual-ranks {} of a new run)",
                                         std::bit_ceil(static_cast<unsigned>(ranks)))
                           : "");
}

}  // namespace

// Each rank for itself: how it computes its leaves decides no bit.
void Job::rehearse() {
    agree_on_torch(mesh_.world, [&] {
        const int count = leaves().size();
        check(settings_.graph != GraphMode::on || settings_.leaves != LeafMode::together,
              [] { return leaves_error("--graph on records them one by one"); });
        if (settings_.leaves == LeafMode::one_by_one || settings_.graph == GraphMode::on ||
            count == 1)
            return;
        const std::int64_t rows = settings_.batch / settings_.virtual_ranks;
        std::string why;
        if (settings_.micro_batches > 1)
            why = "they are cut into micro-batches";
        else if (rows < least_leaf_rows)
            why = fmt::format("{} samples each are too few", rows);
        else
            why = step_->rehearse(memory_share_ / 2);
        check(why.empty() || settings_.leaves == LeafMode::automatic,
              [&] { return leaves_error(why); });
        once(Level::info,
             "leaves: {} a rank of {} samples, {}",
             count,
             rows,
             why.empty() ? "computed together" + speed_text(step_->leaf_speed(), mesh_.data.size())
                         : "computed one by one: " + why);
    });
}

// Each rank for itself, too.
void Job::rehearse_graph() {
    agree_on_torch(mesh_.world, [&] {
        const bool is_asked_for = settings_.graph == GraphMode::on;
        check(gpu_ || !is_asked_for, [] { return graph_error("it is for GPUs"); });
        const bool is_lone = mesh_.data.size() > 1 && leaves().size() == 1;
        if (!gpu_ || settings_.graph == GraphMode::off ||
            (!is_asked_for && (is_lone || step_->is_together())))
            return;
        std::string why;
        MakeDeviceGraph make = load_device_graphs(own_library(device_graph_library), why);
        CaptureVerdict verdict{.why_not = why};
        if (make) verdict = step_->rehearse_capture(std::move(make), is_asked_for);
        check(verdict.why_not.empty() || !is_asked_for,
              [&] { return graph_error(verdict.why_not); });
        if (verdict.price >= 1 && !is_asked_for) {
            verdict.why_not = "it is not quicker";
            step_->end_capture();
        }
        once(Level::info, "graph: {}", graph_text(verdict));
    });
}

}  // namespace lockstep
