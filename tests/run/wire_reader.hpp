// SPDX-License-Identifier: Apache-2.0
// Reads protocol buffers, and knows nothing of how they are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace lockstep::test {

/// Takes bytes off the front of a text. Throws where there are too few.
class WireReader {
  public:
    explicit WireReader(std::string_view bytes) : rest_(bytes) {}

    bool is_done() const { return rest_.empty(); }
    std::string_view rest() const { return rest_; }

    std::string_view take(std::size_t count) {
        if (count > rest_.size()) throw std::runtime_error("cut short");
        const auto taken = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return taken;
    }

    /// Little endian.
    std::uint64_t number(std::size_t bytes) {
        const auto text = take(bytes);
        std::uint64_t value = 0;
        for (std::size_t i = bytes; i-- > 0;)
            value = value << 8 | static_cast<unsigned char>(text[i]);
        return value;
    }

    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const auto byte = number(1);
            value |= (byte & 0x7F) << shift;
            if (byte < 0x80) return value;
        }
        throw std::runtime_error("a number without end");
    }

  private:
    std::string_view rest_;
};

/// One field of a message: its number, and a number or bytes.
struct WireField {
    std::uint64_t field = 0;
    std::uint64_t value = 0;      ///< varint, fixed64, fixed32
    std::string_view bytes = {};  ///< texts and messages
};

inline std::vector<WireField> wire_fields(std::string_view message) {
    std::vector<WireField> fields;
    for (WireReader in(message); !in.is_done();) {
        const std::uint64_t key = in.varint();
        WireField& next = fields.emplace_back(WireField{key >> 3});
        switch (key & 7) {
            case 0:
                next.value = in.varint();
                break;
            case 1:
                next.value = in.number(8);
                break;
            case 2:
                next.bytes = in.take(in.varint());
                break;
            case 5:
                next.value = in.number(4);
                break;
            default:
                throw std::runtime_error("unknown wire type");
        }
    }
    return fields;
}

}  // namespace lockstep::test
