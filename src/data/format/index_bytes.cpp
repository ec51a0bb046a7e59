// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <cstring>

namespace lockstep {
namespace {

constexpr std::uint64_t magic = 0x31786469'6b636f6c;  // "lockidx1"

class ByteWriter {
  public:
    void add(std::uint64_t value) { add(std::as_bytes(std::span(&value, 1))); }
    void add(std::string_view text) {
        add(text.size());
        add(bytes_of(text));
    }
    std::vector<std::byte> finish() {
        add(hash64(bytes_));
        return std::move(bytes_);
    }

  private:
    void add(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    std::vector<std::byte> bytes_;
};

class ByteReader {
  public:
    explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {
        expect(bytes.size() >= 8, "an index arrives whole");
        rest_ = bytes.first(bytes.size() - 8);
        ByteReader seal;
        seal.rest_ = bytes.last(8);
        expect(seal.number() == hash64(rest_), "an index arrives as it was sent");
    }
    std::uint64_t number() {
        std::uint64_t value = 0;
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }
    std::string text() {
        const auto bytes = take(number());
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    /// How many items of at least `item_bytes` follow.
    std::uint64_t count(std::uint64_t item_bytes) {
        const std::uint64_t items = number();
        expect(items <= rest_.size() / item_bytes, "an index holds what it announces");
        return items;
    }

  private:
    ByteReader() = default;
    std::span<const std::byte> take(std::uint64_t bytes) {
        expect(bytes <= rest_.size(), "an index holds what it announces");
        const auto taken = rest_.first(bytes);
        rest_ = rest_.subspan(bytes);
        return taken;
    }
    std::span<const std::byte> rest_;
};

void add_block(ByteWriter& out, const StoredBlock& block) {
    out.add(block.first_row);
    out.add(block.offset);
    out.add(block.stored_bytes);
    out.add(block.decoded_bytes);
    out.add(block.hash);
    out.add(block.rows | std::uint64_t{block.shard} << 32);
    out.add(static_cast<std::uint64_t>(block.codec) | std::uint64_t{block.is_hashed} << 32);
}

StoredBlock take_block(ByteReader& in) {
    StoredBlock block{.first_row = in.number(),
                      .offset = in.number(),
                      .stored_bytes = in.number(),
                      .decoded_bytes = in.number(),
                      .hash = in.number()};
    const std::uint64_t place = in.number(), kind = in.number();
    block.rows = static_cast<std::uint32_t>(place);
    block.shard = static_cast<std::uint32_t>(place >> 32);
    block.codec = static_cast<Codec>(kind & 0xffff);
    block.is_hashed = kind >> 32 != 0;
    return block;
}

constexpr std::uint64_t block_bytes = 7 * 8;

}  // namespace

std::vector<std::byte> DatasetIndex::serialize() const {
    ByteWriter out;
    out.add(magic);
    out.add(std::string_view(path_.native()));
    out.add(std::string_view(manifest_text_));
    out.add(warnings_.size());
    for (const std::string& warning : warnings_) out.add(std::string_view(warning));
    for (const auto& blocks : stored_) {
        out.add(blocks.size());
        for (const StoredBlock& block : blocks) add_block(out, block);
    }
    return out.finish();
}

DatasetIndex DatasetIndex::deserialize(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    expect(in.number() == magic, "these bytes are an index");
    const std::string path = in.text();
    DatasetIndex index = of_blocks(path, in.text(), {});
    for (std::uint64_t left = in.count(8); left > 0; --left) index.warnings_.push_back(in.text());
    for (std::size_t f = 0; f < index.fields().size(); ++f) {
        auto& blocks = index.stored_.emplace_back();
        const std::uint64_t count = in.count(block_bytes);
        blocks.reserve(count);
        for (std::uint64_t i = 0; i < count; ++i) blocks.push_back(take_block(in));
    }
    return index;
}

}  // namespace lockstep
