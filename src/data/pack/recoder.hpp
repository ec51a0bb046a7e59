// SPDX-License-Identifier: Apache-2.0
// Text of other encodings as UTF-8.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <iconv.h>

namespace lockstep {

/// Bytes that are none of an encoding's characters; whoever knows where they are makes an Error.
class NotEncoded : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Recodes a text that comes in parts, which may end within a character. Not copied.
class Recoder {
  public:
    /// `encoding` is a name of iconv's: "latin1", "cp1252", "utf-16". Errors: E103 if there is
    /// none.
    explicit Recoder(const std::string& encoding);
    ~Recoder();
    Recoder(const Recoder&) = delete;
    Recoder& operator=(const Recoder&) = delete;

    /// As far as `part` and what was left before are whole characters. Throws NotEncoded.
    std::string recode(std::string_view part);

    /// The text has ended. Throws NotEncoded within a character.
    void finish() const;

  private:
    std::string encoding_;
    iconv_t converter_;
    std::string left_;
};

}  // namespace lockstep
