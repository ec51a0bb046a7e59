// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scalars, texts and histograms for TensorBoard, as it reads them from event files.
/// Formats: TFRecord framing (tensorflow/core/lib/io/record_writer.h) around messages of
/// tensorflow/core/util/event.proto, framework/summary.proto and framework/tensor.proto.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Some 1,500 buckets, each a tenth wider than the one before, on both sides of 0: those of
/// tensorflow/core/lib/histogram/histogram.cc.
class Histogram {
  public:
    /// Counts `value`, in some 20 ns; one that is not finite is passed over.
    void add(double value);

    bool empty() const { return count_ == 0; }           ///< nothing was counted
    std::int64_t count() const { return count_; }        ///< of values
    double min() const { return min_; }                  ///< of values
    double max() const { return max_; }                  ///< of values
    double sum() const { return sum_; }                  ///< of values
    double sum_squares() const { return sum_squares_; }  ///< of values

    /// A bucket, or several empty ones in a row.
    struct Bucket {
        double limit = 0;  ///< values are below it, and not below that of the one before
        double count = 0;
    };
    std::vector<Bucket> buckets() const;  ///< by limit

  private:
    std::vector<std::int64_t> counts_;
    std::int64_t count_ = 0;
    double min_ = 0, max_ = 0, sum_ = 0, sum_squares_ = 0;
};

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

/// One value of one curve, such as "train/loss".
struct Scalar {
    std::string_view tag;
    double value = 0;  ///< stored as a float
};

/// A Markdown table of two columns; what it holds cannot break it.
std::string markdown_table(std::string_view left,
                           std::string_view right,
                           std::span<const std::pair<std::string, std::string>> rows);

/// One event file; every start of a run makes a new one, as TensorBoard expects. Rank 0 only.
class EventFile {
  public:
    /// Creates events.out.tfevents.SECONDS.HOST.PID in `directory`. With `resumed_step` > 0
    /// TensorBoard is told to forget later steps of earlier files. Errors: E401, E402.
    EventFile(const fs::path& directory, std::int64_t resumed_step = 0);

    /// All values of a step in one event and one write. Errors: E402, E405.
    void add(std::int64_t step, std::span<const Scalar> scalars);

    /// One value.
    void add(std::int64_t step, std::string_view tag, double value);

    /// Markdown, in TensorBoard's TEXT tab.
    void add_text(std::int64_t step, std::string_view tag, std::string_view markdown);

    /// How values were spread. Nothing if `values` is empty.
    void add_histogram(std::int64_t step, std::string_view tag, const Histogram& values);

    const fs::path& path() const { return path_; }  ///< of the file

  private:
    void write_summary(std::int64_t step, const std::string& summary);
    void write_event(const std::string& event);

    fs::path path_;
    UniqueFd file_;
};

}  // namespace lockstep
