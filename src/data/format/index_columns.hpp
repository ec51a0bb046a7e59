// SPDX-License-Identifier: Apache-2.0
// The form in which an index is sent: numbers, texts and columns of numbers, sealed by a hash.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Upper limit of the blocks of one field, which bounds the memory that a damaged index asks for.
inline constexpr std::uint64_t most_blocks = std::uint64_t{1} << 28;

/// Largest size of an expanded block.
inline constexpr std::uint64_t most_decoded_bytes = std::uint64_t{1} << 40;

/// Returns the number of `item` in `all`, which gets it if it is new.
template <class Item>
std::size_t number_in(std::vector<Item>& all, const Item& item) {
    const auto found = std::ranges::find(all, item);
    const auto number = static_cast<std::size_t>(found - all.begin());
    if (found == all.end()) all.push_back(item);
    return number;
}

/// Returns E230 with the reason `why`.
Error damaged_index(std::string why);

class ByteWriter {
  public:
    void add(std::uint64_t value) { add(std::as_bytes(std::span(&value, 1))); }
    void add(std::string_view text);
    void add(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }

    /// Returns all bytes, and a hash of them.
    std::vector<std::byte> finish();

  private:
    std::vector<std::byte> bytes_;
};

/// Reads untrusted bytes of a ByteWriter. Errors of all members: E230.
class ByteReader {
  public:
    explicit ByteReader(std::span<const std::byte> bytes);

    std::uint64_t number();
    std::string text();

    /// Reads the number of following items of at least `item_bytes`.
    std::uint64_t count(std::uint64_t item_bytes);

    std::span<const std::byte> take(std::uint64_t bytes);
    bool is_at_end() const { return rest_.empty(); }

  private:
    std::span<const std::byte> rest_;
};

/// Writes the members of a value in order, or reads them back, so that one description serves both
/// ways, as that of a Record does. A writer does not change them. Errors of reading: E230.
class ByteForm {
  public:
    explicit ByteForm(ByteWriter& out) : out_(&out) {}
    explicit ByteForm(ByteReader& in) : in_(&in) {}

    bool is_reading() const { return in_ != nullptr; }

    void item(std::uint64_t& value);
    void item(std::uint32_t& value);
    void item(bool& value);
    void item(std::string& text);

    /// An enumerator from 0 to `last`.
    template <class Enum>
    void item(Enum& value, Enum last) {
        auto number = static_cast<std::uint64_t>(value);
        item(number);
        if (number > static_cast<std::uint64_t>(last)) throw damaged_index("a kind is unknown");
        value = static_cast<Enum>(number);
    }

    /// A value that may be absent; `each` is called with one that is there.
    template <class T, class Each>
    void optional(std::optional<T>& value, Each&& each) {
        bool is_there = value.has_value();
        item(is_there);
        if (is_reading()) value = is_there ? std::optional<T>(std::in_place) : std::nullopt;
        if (value) each(*value);
    }
    void optional(std::optional<std::uint64_t>& value) {
        optional(value, [&](std::uint64_t& number) { item(number); });
    }

    /// A list, of whose items each takes at least `item_bytes`. `each` is called with one.
    template <class T, class Each>
    void list(std::vector<T>& items, std::uint64_t item_bytes, Each&& each) {
        std::uint64_t count = items.size();
        if (is_reading()) {
            count = in_->count(item_bytes);
            items.clear();
        } else {
            out_->add(count);
        }
        for (std::uint64_t i = 0; i < count; ++i)
            each(is_reading() ? items.emplace_back() : items[i]);
    }
    template <class T>
    void list(std::vector<T>& items) {
        list(items, sizeof(std::uint64_t), [&](T& value) { item(value); });
    }

    /// A column of at most `most` numbers, in few bytes.
    void column(std::vector<std::uint64_t>& values, std::uint64_t most);

  private:
    ByteWriter* out_ = nullptr;
    ByteReader* in_ = nullptr;
};

/// Writes a column in few bytes: none for values in equal steps, four each if all fit, else eight.
void add_column(ByteWriter& out, std::span<const std::uint64_t> values);
std::vector<std::uint64_t> take_column(ByteReader& in, std::uint64_t count);

/// Bytes of a row: file offset, stored bytes, first row within the shard, XXH3-64; all u64.
inline constexpr std::uint64_t index_row_bytes = 32;

/// The blocks that the table's `bytes` describe, if they are one row for each block of field number
/// `field` of shard number `number`, and every block lies within the file and can be what it is
/// said to expand to; else nothing.
std::optional<std::vector<StoredBlock>> parse_index_rows(std::span<const std::byte> bytes,
                                                         const Manifest& manifest,
                                                         std::size_t number,
                                                         std::size_t field);

/// The blocks of field number `field` of shard number `number`, if the table has the hash that the
/// manifest gives, and every block lies within a file of its size there; else nothing. The file at
/// `path` may have another one. Errors: those of reading.
std::optional<std::vector<StoredBlock>> read_index_rows(const fs::path& path,
                                                        const Manifest& manifest,
                                                        std::size_t number,
                                                        std::size_t field);

}  // namespace lockstep
