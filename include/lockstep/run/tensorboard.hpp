// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scalars, texts and histograms in event files of TensorBoard. Formats: TFRecord framing
/// (tensorflow/core/lib/io/record_writer.h) around messages of tensorflow/core/util/event.proto,
/// framework/summary.proto and framework/tensor.proto.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// About 1,500 buckets, each a tenth wider than the previous one, on both sides of 0: those of
/// tensorflow/core/lib/histogram/histogram.cc.
class Histogram {
  public:
    /// Counts `value`, in about 20 ns; a value that is not finite is skipped.
    void add(double value);

    bool empty() const { return count_ == 0; }           ///< true if nothing was counted
    std::int64_t count() const { return count_; }        ///< number of values
    double min() const { return min_; }                  ///< smallest value
    double max() const { return max_; }                  ///< largest value
    double sum() const { return sum_; }                  ///< sum of the values
    double sum_squares() const { return sum_squares_; }  ///< sum of the squared values

    /// A bucket, or several empty ones in a row.
    struct Bucket {
        double limit = 0;  ///< upper limit; the previous bucket's is the lower one
        double count = 0;
    };
    std::vector<Bucket> buckets() const;  ///< sorted by limit

  private:
    std::vector<std::int64_t> counts_;
    std::int64_t count_ = 0;
    double min_ = 0, max_ = 0, sum_ = 0, sum_squares_ = 0;
};

/// Returns CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

/// One value of one curve, such as "train/loss".
struct Scalar {
    std::string_view tag;
    double value = 0;  ///< stored as a float
};

/// Returns a Markdown table of two columns; cells are escaped.
std::string markdown_table(std::string_view left,
                           std::string_view right,
                           std::span<const std::pair<std::string, std::string>> rows);

/// One event file. Every start of a run makes a new one, as TensorBoard expects. Rank 0 only.
class EventFile {
  public:
    /// Creates events.out.tfevents.SECONDS.HOST.PID in `directory`. With `resumed_step` >= 0
    /// it makes TensorBoard drop later steps of earlier files: those of a start that ended before
    /// its first checkpoint, too. Errors: E401, E402.
    EventFile(const fs::path& directory, std::int64_t resumed_step = -1);

    /// Writes all values of a step in one event and one write. Errors: E402, E405.
    void add(std::int64_t step, std::span<const Scalar> scalars);

    /// Writes one value.
    void add(std::int64_t step, std::string_view tag, double value);

    /// Writes Markdown for TensorBoard's TEXT tab.
    void add_text(std::int64_t step, std::string_view tag, std::string_view markdown);

    /// Writes a histogram; nothing if `values` is empty.
    void add_histogram(std::int64_t step, std::string_view tag, const Histogram& values);

    const fs::path& path() const { return path_; }  ///< path of the file

  private:
    void write_summary(std::int64_t step, const std::string& summary);
    void write_event(const std::string& event);

    fs::path path_;
    UniqueFd file_;
};

}  // namespace lockstep
