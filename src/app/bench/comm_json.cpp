// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/version.hpp"

#include "bench/comm_report.hpp"

namespace lockstep {
namespace {

Json row_json(const CommReport& report, const Measurement& row) {
    Json json = {{"algo", name_of(row.method)},
                 {"bytes", row.bytes},
                 {"count", row.bytes / sizeof(float)},
                 {"best_us", 1e6 * row.best_s},
                 {"median_us", 1e6 * row.median_s},
                 {"algbw_gb_per_s", algorithm_gb_per_s(row.bytes, row.median_s)},
                 {"busbw_gb_per_s", bus_gb_per_s(row.bytes, row.median_s, report.ranks)},
                 {"wrong", row.wrong ? Json(*row.wrong) : Json()}};
    if (const auto ratio = ratio_to_open_mpi(report.measured, row)) json["times_open_mpi"] = *ratio;
    return json;
}

Json hosts_json(const std::vector<RankSeat>& seats) {
    Json json = Json::array();
    for (const RankSeat& seat : seats)
        json.push_back({{"rank", seat.rank}, {"host", seat.host}, {"cpus", seat.cpus}});
    return json;
}

}  // namespace

Json report_json(const CommReport& report) {
    Json json = {{"bench", "comm"},
                 {"lockstep", version_text()},
                 {"mpi", mpi_version()},
                 {"cpu", report.cpu_model},
                 {"hosts", hosts_json(report.seats)},
                 {"ranks", report.ranks},
                 {"nodes", report.nodes},
                 {"split", split_name(report.split)},
                 {"transport", report.measured.transport},
                 {"rounds", report.plan.rounds},
                 {"results", Json::array()},
                 {"memory_limits", Json::array()}};
    for (const Measurement& row : report.measured.rows)
        json["results"].push_back(row_json(report, row));
    for (const MemoryLimit& limit : report.measured.limits)
        json["memory_limits"].push_back(
            {{"bytes", limit.bytes}, {"gb_per_s", limit.bytes_per_s / 1e9}});
    json["verdict"] = verdict_text(report);
    return json;
}

}  // namespace lockstep
