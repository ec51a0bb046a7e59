// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/dataset_index.hpp"

#include "codec.hpp"
#include "index_columns.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::uint64_t magic = 0x34786469'6b636f6c;  // "lockidx4"

// More than file systems hold in one.
constexpr std::uint64_t most_file_bytes = std::uint64_t{1} << 62;

// Blocks that differ in nothing but these: where they are, their size, codec and hash. Whole bands
// of tiles.
struct Run {
    std::uint64_t first_row = 0, decoded_bytes = 0, blocks = 0, cut = 0;
    std::uint32_t shard = 0, rows = 0;
};

std::uint64_t kind_of(const StoredBlock& block) {
    return static_cast<std::uint64_t>(block.codec) | std::uint64_t{block.chain} << 16 |
           std::uint64_t{block.is_hashed} << 32;
}

Run run_at(std::span<const StoredBlock> blocks) {
    Run run{.first_row = blocks[0].first_row,
            .decoded_bytes = blocks[0].decoded_bytes,
            .cut = blocks[0].cut,
            .shard = blocks[0].shard,
            .rows = blocks[0].rows};
    const auto end = std::ranges::find_if_not(blocks, [&](const StoredBlock& block) {
        return block.shard == run.shard && block.rows == run.rows && block.cut == run.cut &&
               block.decoded_bytes == run.decoded_bytes;
    });
    run.blocks = static_cast<std::uint64_t>(end - blocks.begin());
    return run;
}

void form_of(ByteForm& form, Run& run) {
    for (std::uint64_t* const number : {&run.first_row, &run.decoded_bytes, &run.blocks})
        form.item(*number);
    form.item(run.shard);
    form.item(run.rows);
    form.item(run.cut);
}

void add_run(ByteWriter& out, Run run, std::span<const StoredBlock> blocks) {
    ByteForm form(out);
    form_of(form, run);
    const auto column = [&](auto value_of) {
        std::vector<std::uint64_t> values;
        values.reserve(blocks.size());
        for (const StoredBlock& block : blocks) values.push_back(value_of(block));
        add_column(out, values);
    };
    column([](const StoredBlock& block) { return block.offset; });
    column([](const StoredBlock& block) { return block.stored_bytes; });
    column(kind_of);
    column([](const StoredBlock& block) { return block.hash; });
}

void add_blocks(ByteWriter& out, std::span<const StoredBlock> blocks) {
    out.add(blocks.size());
    while (!blocks.empty()) {
        const Run run = run_at(blocks);
        add_run(out, run, blocks.first(run.blocks));
        blocks = blocks.subspan(run.blocks);
    }
}

Codec codec_from(std::uint64_t number) {
    using enum Codec;
    for (const Codec codec : {none, deflate, lz4, zstd, filters})
        if (static_cast<std::uint64_t>(codec) == number) return codec;
    throw damaged_index("a block has an unknown codec");
}

Run take_run(ByteReader& in, const BlockForms& forms, std::uint64_t most_blocks) {
    Run run;
    ByteForm form(in);
    form_of(form, run);
    if (run.cut > forms.cuts.size()) throw damaged_index("a block is cut in an unknown way");
    if (run.blocks < 1 || run.blocks > most_blocks)
        throw damaged_index("it holds other blocks than it announces");
    return run;
}

void take_blocks_of_run(ByteReader& in,
                        const Run& run,
                        std::uint64_t tiles,
                        std::vector<StoredBlock>& out) {
    const std::vector<std::uint64_t> offsets = take_column(in, run.blocks),
                                     sizes = take_column(in, run.blocks),
                                     kinds = take_column(in, run.blocks),
                                     hashes = take_column(in, run.blocks);
    for (std::uint64_t i = 0; i < run.blocks; ++i)
        out.push_back({.first_row = run.first_row + i / tiles * run.rows,
                       .offset = offsets[i],
                       .stored_bytes = sizes[i],
                       .decoded_bytes = run.decoded_bytes,
                       .hash = hashes[i],
                       .rows = run.rows,
                       .shard = run.shard,
                       .codec = codec_from(kinds[i] & 0xffff),
                       .is_hashed = kinds[i] >> 32 != 0,
                       .chain = static_cast<std::uint16_t>(kinds[i] >> 16),
                       .cut = static_cast<std::uint16_t>(run.cut),
                       .tile = static_cast<std::uint32_t>(i % tiles)});
}

std::vector<StoredBlock> take_blocks(ByteReader& in,
                                     const Manifest& manifest,
                                     const BlockForms& forms) {
    const std::uint64_t count = in.number();
    // Every block has a sample, or a part of one; a column of equal values needs no bytes of its
    // own, so that the bytes that follow bound nothing.
    std::uint64_t parts = 1;
    for (const Cut& cut : forms.cuts) parts = std::max(parts, cut.tiles());
    if (count < 1 || count > most_blocks || (count - 1) / parts >= manifest.samples)
        throw damaged_index("it holds other blocks than samples");
    std::vector<StoredBlock> blocks;
    blocks.reserve(std::min<std::uint64_t>(count, 1u << 22));
    while (blocks.size() < count) {
        const Run run = take_run(in, forms, count - blocks.size());
        take_blocks_of_run(in, run, run.cut == 0 ? 1 : forms.cuts[run.cut - 1U].tiles(), blocks);
    }
    return blocks;
}

void form_of(ByteForm& form, Filter& filter) {
    auto kind = static_cast<std::uint64_t>(filter.kind);
    form.item(kind);
    if (!is_known_filter(kind) && !is_own_filter(kind))
        throw damaged_index("it names an unknown filter");
    filter.kind = static_cast<FilterKind>(kind);
    form.item(filter.element);
    if (filter.kind == FilterKind::unpacking) form.list(filter.values);
}

void form_of(ByteForm& form, BlockForms& forms) {
    form.list(forms.chains, 8, [&](FilterChain& chain) {
        form.list(chain, 16, [&](Filter& filter) { form_of(form, filter); });
        const std::string fault = form.is_reading() ? filter_fault(chain) : "";
        if (!fault.empty()) throw damaged_index(fault);
    });
    form.list(forms.cuts, 8, [&](Cut& cut) {
        form.list(cut.sample);
        form.list(cut.chunk);
        if (!cut.is_sound()) throw damaged_index("chunks cut samples in an impossible way");
    });
    if (forms.cuts.size() > 0xffff) throw damaged_index("it cuts samples in too many ways");
}

// Returns true if `block` is a tile, and `before` the previous one, if it is not the first.
bool is_tile_of(const Cut& cut, const Field& field, const StoredBlock& block) {
    const auto is_like = [](std::uint64_t size, std::int64_t extent) {
        return size == static_cast<std::uint64_t>(extent);
    };
    return block.tile < cut.tiles() && std::ranges::equal(cut.sample, field.shape, is_like);
}

bool continues_band(const StoredBlock& before, const StoredBlock& block) {
    return before.cut == block.cut && before.tile + 1 == block.tile && before.rows == block.rows &&
           before.shard == block.shard && before.decoded_bytes == block.decoded_bytes;
}

}  // namespace

std::vector<std::byte> DatasetIndex::serialize() const {
    ByteWriter out;
    out.add(magic);
    out.add(std::string_view(path_.native()));
    out.add(static_cast<std::uint64_t>(manifest_.kind));
    out.add(std::string_view(manifest_text_));
    out.add(warnings_.size());
    for (const std::string& warning : warnings_) out.add(std::string_view(warning));
    ByteForm form(out);
    form_of(form, const_cast<BlockForms&>(forms_));  // a writer does not change it
    out.add(kept_.size());
    out.add(std::span<const std::byte>(kept_));
    for (const auto& blocks : stored_) add_blocks(out, blocks);
    return out.finish();
}

DatasetIndex DatasetIndex::deserialize(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    if (in.number() != magic) throw damaged_index("it begins differently");
    DatasetIndex index;
    index.path_ = in.text();
    const std::uint64_t kind = in.number();
    if (kind > static_cast<std::uint64_t>(ManifestKind::foreign))
        throw damaged_index("it is of an unknown kind");
    index.manifest_text_ = in.text();
    index.manifest_ =
        parse_manifest(index.manifest_text_, "index", static_cast<ManifestKind>(kind));
    for (std::uint64_t left = in.count(8); left > 0; --left) index.warnings_.push_back(in.text());
    ByteForm form(in);
    form_of(form, index.forms_);
    const std::span<const std::byte> kept = in.take(in.count(1));
    index.kept_.assign(kept.begin(), kept.end());
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        index.stored_.push_back(take_blocks(in, index.manifest_, index.forms_));
    if (!in.is_at_end()) throw damaged_index("it holds more than it announces");
    index.check_blocks();
    return index;
}

// Rows of a band are counted with its last tile.
void DatasetIndex::check_tiles(std::size_t field) const {
    const StoredBlock* before = nullptr;  // previous tile of an incomplete band
    for (const StoredBlock& block : stored_[field]) {
        const Cut* const cut = cut_of(block);
        const bool is_right = before ? continues_band(*before, block) : block.tile == 0;
        if (!is_right || (cut && !is_tile_of(*cut, fields()[field], block)))
            throw damaged_index("a tile is not where it belongs");
        before = cut && block.tile + 1 < cut->tiles() ? &block : nullptr;
    }
    if (before) throw damaged_index("a band lacks tiles");
}

// The next rows, from a file that has them.
void DatasetIndex::check_rows(const StoredBlock& block, std::uint64_t next) const {
    bool has_rows = block.first_row == next && block.rows >= 1 && block.rows <= samples() - next;
    if (block.shard != kept_in_index) {
        const Shard& shard = shards()[block.shard];
        const bool is_linked = shard.samples == 0;  // its rows are those of the file with the link
        has_rows = (has_rows && is_linked) ||
                   (has_rows && block.first_row >= shard.first_sample &&
                    block.first_row - shard.first_sample <= shard.samples &&
                    block.rows <= shard.samples - (block.first_row - shard.first_sample));
    }
    if (!has_rows) throw damaged_index("a block has wrong rows");
}

void DatasetIndex::check_bytes(std::size_t field, const StoredBlock& block) const {
    const Cut* const cut = cut_of(block);
    const std::uint64_t row_bytes =
        cut ? cut->chunk_elements() * element_bytes(fields()[field].type)
            : fields()[field].bytes_per_sample();
    // A shard that was rewritten after it was packed has another size, and no hashes: its blocks
    // were compared with the file when they were found.
    const bool is_as_packed = block.is_hashed || manifest_.kind == ManifestKind::foreign;
    const std::uint64_t end = block.shard == kept_in_index ? kept_.size()
                              : is_as_packed               ? shards()[block.shard].bytes
                                                           : most_file_bytes;
    const bool has_bytes =
        block.stored_bytes >= 1 && block.offset <= end &&
        block.stored_bytes <= end - block.offset && block.decoded_bytes <= most_decoded_bytes &&
        block.rows <= block.decoded_bytes / row_bytes &&
        (block.codec != Codec::none || block.stored_bytes == block.decoded_bytes);
    if (!has_bytes) throw damaged_index("a block has wrong bytes");
    if (block.codec == Codec::filters && block.chain >= forms_.chains.size())
        throw damaged_index("a block went through filters that are not named");
    if (block.codec != Codec::none &&
        block.decoded_bytes > most_expanded(chain_of(block), block.stored_bytes))
        throw damaged_index("a block cannot expand to what it is said to");
}

void DatasetIndex::check_blocks() const {
    for (std::size_t f = 0; f < fields().size(); ++f) {
        check_tiles(f);
        std::uint64_t next = 0, shard_now = 0;
        for (const StoredBlock& block : stored_[f]) {
            const bool is_somewhere = block.shard == kept_in_index || block.shard < shards().size();
            if (!is_somewhere || block.shard < shard_now)
                throw damaged_index("a block lies in no shard");
            shard_now = block.shard;
            check_rows(block, next);
            check_bytes(f, block);
            const Cut* const cut = cut_of(block);
            const bool ends_rows = !cut || block.tile + 1 == cut->tiles();
            if (ends_rows) next += block.rows;
        }
        if (next != samples()) throw damaged_index("its blocks do not hold all samples");
    }
}

}  // namespace lockstep
