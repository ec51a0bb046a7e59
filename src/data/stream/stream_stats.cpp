// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/batch_stream.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

constexpr double unnoticed_wait = 0.01;

}  // namespace

StreamStats& operator+=(StreamStats& total, const StreamStats& part) {
    total.read_s += part.read_s;
    total.verify_s += part.verify_s;
    total.decode_s += part.decode_s;
    total.assemble_s += part.assemble_s;
    total.wait_s += part.wait_s;
    total.bytes_read += part.bytes_read;
    total.blocks_read += part.blocks_read;
    total.requests += part.requests;
    total.retries += part.retries;
    total.masked_samples += part.masked_samples;
    return total;
}

StreamStats operator-(const StreamStats& later, const StreamStats& earlier) {
    StreamStats between = later;
    between.read_s -= earlier.read_s;
    between.verify_s -= earlier.verify_s;
    between.decode_s -= earlier.decode_s;
    between.assemble_s -= earlier.assemble_s;
    between.wait_s -= earlier.wait_s;
    between.bytes_read -= earlier.bytes_read;
    between.blocks_read -= earlier.blocks_read;
    between.retries -= earlier.retries;
    between.requests -= earlier.requests;
    between.masked_samples -= earlier.masked_samples;
    return between;
}

bool is_input_bound(const StreamStats& stats, double elapsed_s) {
    return stats.wait_s > unnoticed_wait * elapsed_s;
}

std::string_view binding_stage(const StreamStats& stats, double elapsed_s) {
    if (!is_input_bound(stats, elapsed_s)) return "not input-bound";
    using Stage = std::pair<double, std::string_view>;
    const std::array<Stage, 3> of_io_threads{Stage{stats.read_s, "I/O"},
                                             Stage{stats.verify_s, "verify"},
                                             Stage{stats.decode_s, "decode"}};
    const double io_s = (stats.read_s + stats.verify_s + stats.decode_s) /
                        static_cast<double>(std::max(stats.io_threads, 1));
    if (stats.assemble_s > io_s) return "assemble";
    return std::ranges::max(of_io_threads, {}, &Stage::first).second;
}

}  // namespace lockstep
