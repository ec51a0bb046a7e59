// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scalars for TensorBoard, as it reads them from event files.
/// Formats: TFRecord framing (tensorflow/core/lib/io/record_writer.h) around messages of
/// tensorflow/core/util/event.proto and framework/summary.proto.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

/// One value of one curve, such as "train/loss".
struct Scalar {
    std::string_view tag;
    double value = 0;  ///< stored as a float
};

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

    const fs::path& path() const { return path_; }  ///< of the file

  private:
    void write_event(const std::string& event);

    fs::path path_;
    UniqueFd file_;
};

}  // namespace lockstep
