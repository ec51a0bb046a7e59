// SPDX-License-Identifier: Apache-2.0
#include "texts.hpp"

#include "format/index_columns.hpp"

#include <algorithm>

namespace lockstep {

std::vector<std::byte> to_bytes(const Texts& texts) {
    ByteWriter out;
    out.add(texts.distinct.size());
    for (const std::string& text : texts.distinct) out.add(std::string_view(text));
    const std::vector<std::uint64_t> numbers(texts.rows.begin(), texts.rows.end());
    if (!numbers.empty()) add_column(out, numbers);
    return out.finish();
}

Texts texts_from(std::span<const std::byte> bytes, std::uint64_t rows) {
    ByteReader in(bytes);
    Texts texts;
    for (std::uint64_t left = in.count(8); left > 0; --left) {
        texts.distinct.push_back(in.text());
        if (texts.distinct.back().size() > most_text_bytes + 1)
            throw damaged_index("a text is too long");
    }
    const std::vector<std::uint64_t> numbers =
        rows == 0 ? std::vector<std::uint64_t>{} : take_column(in, rows);
    for (const std::uint64_t number : numbers) {
        if (number >= texts.distinct.size()) throw damaged_index("a row has no text");
        texts.rows.push_back(static_cast<std::uint32_t>(number));
    }
    if (!in.is_at_end()) throw damaged_index("it holds more than it announces");
    return texts;
}

}  // namespace lockstep
