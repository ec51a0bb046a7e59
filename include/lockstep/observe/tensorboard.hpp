// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scalars, texts and histograms for TensorBoard, as it reads them from event files.
/// Formats: TFRecord framing (tensorflow/core/lib/io/record_writer.h) around messages of
/// tensorflow/core/util/event.proto, framework/summary.proto and framework/tensor.proto.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/observe/histogram.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

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

    /// How values were spread. Nothing where `values` is empty.
    void add_histogram(std::int64_t step, std::string_view tag, const Histogram& values);

    const fs::path& path() const { return path_; }  ///< of the file

  private:
    void write_summary(std::int64_t step, const std::string& summary);
    void write_event(const std::string& event);

    fs::path path_;
    UniqueFd file_;
};

}  // namespace lockstep
