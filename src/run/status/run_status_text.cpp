// SPDX-License-Identifier: Apache-2.0
// Text and JSON of a run's status.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/run_status.hpp"
#include "lockstep/run/text_table.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string share_text(double part, double whole) {
    return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : "-";
}

std::string step_text(const RunStatus& status) {
    if (status.steps_total <= 0) return fmt::format("{}", status.step);
    return fmt::format(
        "{} of {} ({})",
        status.step,
        status.steps_total,
        share_text(static_cast<double>(status.step), static_cast<double>(status.steps_total)));
}

std::string eta_text(const RunStatus& status) {
    return status.eta_s < 0 ? "-" : duration_text(status.eta_s);
}

std::string row(std::string_view name, const std::string& text) {
    return text.empty() ? "" : fmt::format("  {:<11} {}\n", name, text);
}

// Why it is lost, in one sentence.
std::string loss_text(const RunStatus& status) {
    if (status.condition != RunCondition::lost) return "";
    const auto who = status.holder.empty() ? "its process" : status.holder;
    return fmt::format(
        "no process works on it: {} has ended without a message; the same command {}",
        who,
        status.saved_step < 0 ? "begins again: there is no checkpoint"
                              : fmt::format("goes on from step {}", status.saved_step));
}

std::string start_text(const StartRecord& start) {
    const auto length = duration_text(std::max(start.ended_unix_s - start.began_unix_s, 0.0));
    std::string steps = "no step";
    if (start.to_step >= 0)
        steps = fmt::format("steps {} to {}", start.from_step, start.to_step);
    else if (start.from_step >= 0)
        steps = fmt::format("from step {}, without a report", start.from_step);
    return fmt::format(
        "{}: {} | {} | {}", start.incarnation, utc_text(start.began_unix_s), length, steps);
}

std::string lost_text(const RunTimes& times) {
    if (times.elapsed <= 0) return "";
    const std::pair<const char*, double> losses[] = {{"steps done again or lost", times.repeated},
                                                     {"saving", times.saving},
                                                     {"evaluating", times.evaluating},
                                                     {"starting", times.starting},
                                                     {"between starts", times.down},
                                                     {"other", times.other}};
    std::string parts;
    for (const auto& [name, seconds] : losses)
        if (seconds >= 0.0005)
            parts +=
                fmt::format("{}{} {}", parts.empty() ? ": " : ", ", name, duration_text(seconds));
    return duration_text(times.lost()) + parts;
}

std::string goodput_text(const RunTimes& times) {
    if (times.elapsed <= 0) return "";
    return fmt::format(
        "{} of {}", share_text(times.training, times.elapsed), duration_text(times.elapsed));
}

std::string request_text(const std::optional<ControlRequest>& asked) {
    if (!asked) return "";
    return fmt::format(
        "{} asked at {} to {}", asked->by, asked->asked, control_action_name(asked->action));
}

}  // namespace

bool RunStatus::fails_again() const {
    if (condition != RunCondition::failed) return false;
    using enum ExitCode;
    constexpr std::array lasting = {
        usage, bad_data, missing_input, bug, cannot_create, io, permission, config};
    return std::ranges::count(lasting, static_cast<ExitCode>(exit)) > 0;
}

std::string_view going_on_label(const RunStatus& status) {
    return status.fails_again() ? "to resume, after that is fixed" : "to go on";
}

std::string status_text(const RunStatus& status) {
    std::string text = fmt::format("{}: {}, start {}\n",
                                   printable(status.root.string()),
                                   run_condition_name(status.condition),
                                   status.incarnation);
    text += row("step", fmt::format("{}, epoch {}", step_text(status), status.epoch));
    if (status.is_alive()) text += row("done in", eta_text(status));
    const std::int64_t saved = status.saved_step;
    text += row("saved", saved < 0 ? "no checkpoint" : fmt::format("step {}", saved));
    text += row("reason", status.reason);
    if (status.reported_s >= 0)
        text += row("reported", duration_text(status.reported_s) + " ago, for the last time");
    text += row("trouble", printable(status.trouble));
    text += row("lost", loss_text(status));
    if (status.is_alive()) text += row("held by", status.holder);
    if (status.is_alive() && status.sign_of_life_s >= 0)
        text += row("last sign", duration_text(status.sign_of_life_s) + " ago");
    text += row("asked", request_text(status.asked));
    for (const StartRecord& start : status.starts)
        text += row(&start == &status.starts.front() ? "starts" : "", start_text(start));
    text += row("goodput", goodput_text(status.times));
    text += row("lost time", lost_text(status.times));
    return text;
}

std::string status_table(std::span<const RunStatus> runs, std::span<const RunColumn> more) {
    std::vector<std::vector<std::string>> rows{
        {"run", "phase", "step", "done in", "starts", "lost", "goodput"}};
    for (const RunStatus& run : runs) {
        const RunTimes& times = run.times;
        rows.push_back({run.root.string(),
                        std::string(run_condition_name(run.condition)),
                        step_text(run),
                        eta_text(run),
                        fmt::format("{}", run.incarnation),
                        times.elapsed > 0 ? duration_text(times.lost()) : "-",
                        share_text(times.training, times.elapsed)});
    }
    for (const RunColumn& column : more) {
        rows[0].push_back(column.name);
        for (std::size_t i = 0; i < runs.size(); ++i) rows[i + 1].push_back(column.cells[i]);
    }
    return text_table(rows, Align::left, Align::right, "");
}

Json status_json(const RunStatus& status) {
    const RunTimes& times = status.times;
    Json json{{"run", status.root.string()},
              {"phase", run_condition_name(status.condition)},
              {"alive", status.is_alive()},
              {"incarnation", status.incarnation},
              {"step", status.step},
              {"steps_total", status.steps_total},
              {"epoch", status.epoch},
              {"saved_step", status.saved_step},
              {"reason", status.reason},
              {"exit", status.exit}};
    json["eta_s"] = status.eta_s < 0 ? Json() : Json(status.eta_s);
    json["trouble"] = status.trouble.empty() ? Json() : Json(status.trouble);
    json["reported_s"] = status.reported_s < 0 ? Json() : Json(status.reported_s);
    json["sign_of_life_s"] = status.sign_of_life_s < 0 ? Json() : Json(status.sign_of_life_s);
    json["asked"] = status.asked ? Json(control_action_name(status.asked->action)) : Json();
    json["goodput"] = times.elapsed > 0 ? Json(times.goodput()) : Json();
    json["starts"] = Json::array();
    for (const StartRecord& start : status.starts)
        json["starts"].push_back({{"incarnation", start.incarnation},
                                  {"began", utc_text(start.began_unix_s)},
                                  {"ended", utc_text(start.ended_unix_s)},
                                  {"from_step", start.from_step},
                                  {"to_step", start.to_step}});
    json["seconds"] = Json();
    if (times.elapsed <= 0) return json;  // not known
    json["seconds"] = {{"elapsed", times.elapsed},
                       {"training", times.training},
                       {"repeated", times.repeated},
                       {"saving", times.saving},
                       {"evaluating", times.evaluating},
                       {"starting", times.starting},
                       {"down", times.down},
                       {"other", times.other}};
    return json;
}

}  // namespace lockstep
