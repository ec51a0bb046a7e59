// SPDX-License-Identifier: Apache-2.0
// The texts are those of Open MPI 4.1 and 5.0 (help-orterun.txt, help-prun.txt, help-mpi-api.txt),
// and of SLURM's srun.
#include "lockstep/core/mpi_boxes.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::size_t longest_title = 240, shortest_rule = 40;

}  // namespace

bool is_box_rule(std::string_view line) {
    return line.size() >= shortest_rule && line.find_first_not_of('-') == line.npos;
}

bool is_blank_line(std::string_view line) {
    return line.find_first_not_of(" \t\r") == line.npos;
}

std::string box_title(const std::vector<std::string>& box) {
    std::string title;
    for (const std::string& line : box) {
        if (is_box_rule(line)) continue;
        if (is_blank_line(line) && !title.empty()) break;
        for (const char c : line + " ")
            if (c != ' ' || (!title.empty() && title.back() != ' ')) title += c;
    }
    title = title.substr(0, title.find(". "));
    while (!title.empty() && (title.back() == ' ' || title.back() == '.')) title.pop_back();
    return title.substr(0, longest_title);
}

std::string rank_of_end(std::string_view title) {
    const auto between = [title](std::string_view before) {
        const auto begin = title.find(before);
        if (begin == title.npos) return std::string_view();
        const std::string_view rest = title.substr(begin + before.size());
        return rest.substr(0, rest.find(' '));
    };
    const std::string_view rank = between("run noticed that process rank ");
    if (rank.empty()) return "";
    return "rank " + std::string(rank) + " on " + std::string(between(" on node "));
}

bool is_launcher_noise(std::string_view text) {
    constexpr std::array begins{"Primary job ",
                                "mpirun detected that one or more",
                                "prterun detected that one or more",
                                "mpirun: Forwarding signal ",
                                "MPI_ABORT was invoked",
                                "[warn] Epoll ",  // libevent's, of a launcher that ends
                                "srun: Job step aborted",
                                "srun: launch/",
                                "srun: Terminating",
                                "srun: Force Terminated"};
    constexpr std::array parts{"sent help message",
                               "/util/show_help.c at line",  // mixed output of two ranks
                               " calling \"abort\"",
                               "\"orte_base_help_aggregate\"",
                               ": error: *** STEP",
                               ": error: *** JOB"};
    return std::ranges::any_of(begins, [&](const char* word) { return text.starts_with(word); }) ||
           std::ranges::any_of(parts,
                               [&](const char* word) { return text.find(word) != text.npos; });
}

}  // namespace lockstep
