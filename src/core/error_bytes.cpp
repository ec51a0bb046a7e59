// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error_bytes.hpp"

#include <array>

namespace lockstep {

std::string error_bytes(const Error& error) {
    std::string bytes;
    for (const std::string& part :
         {error.code(), std::string(error.what()), error.why(), error.fix()})
        bytes += std::string(part.c_str()) + '\0';
    return bytes;
}

Error error_from_bytes(std::string_view bytes) {
    std::array<std::string, 4> parts;
    for (std::string& part : parts) {
        const std::size_t end = bytes.find('\0');
        expect(end != bytes.npos, "an error has four parts");
        part = bytes.substr(0, end);
        bytes.remove_prefix(end + 1);
    }
    return Error(parts[0], parts[1], parts[2], parts[3]);
}

}  // namespace lockstep
