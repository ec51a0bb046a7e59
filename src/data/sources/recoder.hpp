// SPDX-License-Identifier: Apache-2.0
// Converts text of other encodings to UTF-8.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <iconv.h>

namespace lockstep {

/// Bytes that are no characters of an encoding; the caller, who knows their place, makes an Error.
class NotEncoded : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Recodes a text that comes in parts, which may end within a character. Not copied.
class Recoder {
  public:
    /// `encoding` is a name of iconv's: "latin1", "cp1252", "utf-16". Errors: E103 if none exists.
    explicit Recoder(const std::string& encoding);
    ~Recoder();
    Recoder(const Recoder&) = delete;
    Recoder& operator=(const Recoder&) = delete;

    /// Converts the whole characters of `part` and of the rest before it. Throws NotEncoded.
    std::string recode(std::string_view part);

    /// Ends the text. Throws NotEncoded within a character.
    void finish() const;

  private:
    std::string encoding_;
    iconv_t converter_;
    std::string left_;
};

}  // namespace lockstep
