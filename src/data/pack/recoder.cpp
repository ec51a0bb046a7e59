// SPDX-License-Identifier: Apache-2.0
#include "recoder.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include <array>
#include <cerrno>

#include <fmt/format.h>

namespace lockstep {

Recoder::Recoder(const std::string& encoding)
    : encoding_(encoding), converter_(::iconv_open("UTF-8", encoding.c_str())) {
    check(converter_ != reinterpret_cast<iconv_t>(-1), [&] {
        return Error("E103",
                     fmt::format("--encoding is '{}'", printable(encoding)),
                     "the system's iconv knows no encoding of that name",
                     "'iconv -l' lists them: latin1, cp1252, utf-16, shift_jis, ...");
    });
}

Recoder::~Recoder() {
    ::iconv_close(converter_);
}

std::string Recoder::recode(std::string_view part) {
    left_ += part;
    char* from = left_.data();
    std::size_t bytes = left_.size();
    std::string text;
    while (bytes > 0) {
        std::array<char, 4096> buffer;
        char* to = buffer.data();
        std::size_t room = buffer.size();
        const std::size_t done = ::iconv(converter_, &from, &bytes, &to, &room);
        const int problem = done == static_cast<std::size_t>(-1) ? errno : 0;
        text.append(buffer.data(), to);
        if (problem == EINVAL) break;  // the rest of a character is yet to come
        if (problem != 0 && problem != E2BIG)
            throw NotEncoded(fmt::format("bytes that are no {}", printable(encoding_)));
    }
    left_.erase(0, left_.size() - bytes);
    return text;
}

void Recoder::finish() const {
    if (!left_.empty())
        throw NotEncoded(
            fmt::format("bytes that end within a character of {}", printable(encoding_)));
}

}  // namespace lockstep
