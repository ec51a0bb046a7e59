// SPDX-License-Identifier: Apache-2.0
// The keys are documented in docs/report.md; later versions only add some.
#include "lockstep/run/root_cause.hpp"

#include "report/report_words.hpp"

#include <ranges>

namespace lockstep {
namespace {

Json cause_json(const RootCause& cause) {
    Json json = json_of(cause.error);
    json["trouble"] = cause.trouble.empty() ? Json() : Json(cause.trouble);
    json["consequences"] = cause.followers;
    return json;
}

Json json_of(const ReportFinding& finding) {
    return {{"kind", finding.kind},
            {"weight", finding_weight_name(finding.weight)},
            {"title", finding.title},
            {"advice", finding.advice},
            {"command", finding.command.empty() ? Json() : Json(finding.command)}};
}

Json json_of(const PlacementTable& placement) {
    Json rows = Json::array();
    for (const auto& row : placement.rows | std::views::drop(1)) {
        Json cells = Json::object();
        for (std::size_t i = 0; i < row.size(); ++i) cells[placement.rows.front()[i]] = row[i];
        rows.push_back(std::move(cells));
    }
    return rows;
}

Json json_of(const ReportCurve& curve, std::int64_t batch) {
    Json points = Json::array();
    for (const ReportPoint& point : curve.points) {
        Json one{{"step", point.step},
                 {"value", point.value},
                 {"least", point.least},
                 {"most", point.most}};
        if (batch > 0)
            one["samples"] = static_cast<double>(point.step) * static_cast<double>(batch);
        points.push_back(std::move(one));
    }
    Json json{{"name", curve.name},
              {"last", curve.last},
              {"least", curve.best_low},
              {"least_step", curve.low_step},
              {"most", curve.best_high},
              {"most_step", curve.high_step}};
    json["points"] = std::move(points);
    return json;
}

Json json_of(const MeanStep& mean) {
    Json phases = Json::object();
    for (const Phase phase : phase_order) phases[phase_name(phase)] = mean.phases[phase];
    return {{"steps", mean.steps}, {"wall_s", mean.wall_s()}, {"phases_s", std::move(phases)}};
}

Json json_of(const ReportRank& rank) {
    Json json{{"rank", rank.rank}, {"host", rank.host}};
    json.update(json_of(rank.mean));
    if (!rank.damage.empty()) json["damage"] = rank.damage;
    return json;
}

/// JSON has no NaN: what is not known is null.
Json json_of(const HeatMap& heat) {
    Json json{{"last_step", heat.last_step}};
    json["first_step"] = heat.first_step;
    json["rows"] = Json::array();
    for (const HeatRow& row : heat.rows) {
        Json one{{"first_rank", row.first}, {"last_rank", row.last}, {"mean", row.mean}};
        one["ratio"] = row.ratio;
        json["rows"].push_back(std::move(one));
    }
    return json;
}

template <class Items>
Json list_of(const Items& items) {
    Json list = Json::array();
    for (const auto& item : items) list.push_back(json_of(item));
    return list;
}

}  // namespace

Json report_json(const Report& report) {
    Json json{
        {"run", report.run()}, {"incarnation", report.incarnation}, {"outcome", report.outcome}};
    json["cause"] = report.clues.cause ? cause_json(*report.clues.cause) : Json();
    json["findings"] = list_of(report.findings);
    json["facts"] = Json::object();
    for (const ReportFact& fact : report.facts) json["facts"][fact.name] = fact.value;
    json["placement"] = json_of(report.placement);
    json["charts"] = Json::array();
    for (const ReportChart& chart : report.charts) {
        Json curves = Json::array();
        for (const ReportCurve& curve : chart.curves)
            curves.push_back(json_of(curve, report.batch));
        json["charts"].push_back({{"title", chart.title}, {"curves", std::move(curves)}});
    }
    json["step"] = json_of(report.mean);
    json["ranks"] = list_of(report.ranks);
    json["stragglers"] = list_of(report.stragglers);
    json["heat_map"] = json_of(report.heat);
    json["status"] = status_json(report.clues.status);
    json["next"] = report.clues.next;
    json["resume"] = report.clues.resume.empty() ? Json() : Json(report.clues.resume);
    return json;
}

}  // namespace lockstep
