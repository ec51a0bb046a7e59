// SPDX-License-Identifier: Apache-2.0

#include "block_check.hpp"

#include "lockstep/core/hash.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/record.hpp"

#include "format/labels.hpp"
#include "stream/request_plan.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

std::string sentence(const Error& error) {
    return error.why().empty() ? error.what() : fmt::format("{}: {}", error.what(), error.why());
}

Finding BlockCheck::finding(const PlacedBlock& placed,
                            const std::string& code,
                            const std::string& why) const {
    const StoredBlock& block = placed.block;
    const Field& field = manifest_.fields[placed.field];
    return {.code = code,
            .file = manifest_.shards[shard_].name,
            .field = field.name,
            .block = static_cast<std::int64_t>(placed.number),
            .offset = block.offset,
            .bytes = block.stored_bytes,
            .text = damage_text(path_, field, placed.number, block) + ": " + why};
}

bool BlockCheck::is_intact(const PlacedBlock& placed, std::span<const std::byte> stored) const {
    return !placed.block.is_hashed || hash64(stored) == placed.block.hash;
}

std::optional<Finding> BlockCheck::check(const PlacedBlock& placed,
                                         std::span<const std::byte> stored) {
    const StoredBlock& block = placed.block;
    if (!is_intact(placed, stored))
        return finding(placed,
                       "E213",
                       fmt::format("their XXH3-64 is {}, the index says {}; read twice",
                                   hex64(hash64(stored)),
                                   hex64(block.hash)));
    if (block.codec != Codec::none) {
        decoded_.resize(block.decoded_bytes);
        if (!decoder_.decode(block.codec, stored, decoded_))
            return finding(
                placed, "E213", fmt::format("they are not valid {}", codec_name(block.codec)));
        stored = decoded_;
    }
    const Field& field = manifest_.fields[placed.field];
    return check_labels(placed, stored.first(block.rows * field.bytes_per_sample()));
}

std::optional<Finding> BlockCheck::check_labels(const PlacedBlock& placed,
                                                std::span<const std::byte> rows) const {
    const Field& field = manifest_.fields[placed.field];
    const std::optional<BadLabel> bad = first_bad_label(field, rows);
    if (!bad) return {};
    return finding(
        placed,
        "E210",
        fmt::format("{} of sample {} is out of range; there are {} classes",
                    label_text(field, bad->label),
                    grouped(placed.block.first_row +
                            bad->element * element_bytes(field.type) / field.bytes_per_sample()),
                    field.classes()));
}

namespace {

std::vector<PlacedBlock> by_offset(const std::vector<std::vector<StoredBlock>>& blocks) {
    std::vector<PlacedBlock> all;
    for (std::size_t f = 0; f < blocks.size(); ++f)
        for (std::size_t b = 0; b < blocks[f].size(); ++b) all.push_back({f, b, blocks[f][b]});
    std::ranges::stable_sort(all, {}, [](const PlacedBlock& at) { return at.block.offset; });
    return all;
}

// Cuts what lies between blocks anywhere.
class Cutter {
  public:
    Cutter(std::uint64_t usual_bytes, std::vector<FileSegment>& segments)
        : usual_(usual_bytes), segments_(segments) {}

    std::uint64_t end() const { return segment_.offset + segment_.bytes; }

    void fill_to(std::uint64_t offset) {
        while (end() < offset) {
            if (segment_.bytes >= usual_) close();
            segment_.bytes += std::min(offset - end(), usual_ - segment_.bytes);
        }
    }
    void add(PlacedBlock block) {
        fill_to(block.block.offset);
        if (segment_.bytes > 0 && segment_.bytes + block.block.stored_bytes > usual_) close();
        segment_.bytes += block.block.stored_bytes;
        segment_.blocks.push_back(std::move(block));
    }
    void close() {
        const std::uint64_t next = end();
        if (segment_.bytes > 0) segments_.push_back(std::move(segment_));
        segment_ = {.offset = next, .bytes = 0, .blocks = {}};
    }

  private:
    std::uint64_t usual_;
    std::vector<FileSegment>& segments_;
    FileSegment segment_;
};

// What one member found, group by group.
struct Findings {
    std::vector<std::vector<Finding>> groups;
};

void describe(Record& record, Findings& findings) {
    record.field("groups", findings.groups);
}

}  // namespace

SegmentPlan plan_segments(const std::vector<std::vector<StoredBlock>>& blocks,
                          std::uint64_t file_bytes,
                          std::uint64_t usual_bytes) {
    SegmentPlan plan;
    Cutter cutter(usual_bytes, plan.segments);
    for (PlacedBlock& placed : by_offset(blocks)) {
        const StoredBlock& block = placed.block;
        if (block.offset > file_bytes || block.stored_bytes > file_bytes - block.offset)
            plan.cut_off.push_back(std::move(placed));
        else if (block.offset < cutter.end())
            plan.overlaps.push_back(std::move(placed));
        else
            cutter.add(std::move(placed));
    }
    cutter.fill_to(file_bytes);
    cutter.close();
    return plan;
}

void describe(Record& record, Finding& finding) {
    record.field("code", finding.code);
    record.field("file", finding.file);
    record.field("field", finding.field);
    record.field("block", finding.block);
    record.field("offset", finding.offset);
    record.field("bytes", finding.bytes);
    record.field("text", finding.text);
}

std::vector<Finding> merged(const Team& team, const std::vector<std::vector<Finding>>& mine) {
    std::vector<Findings> theirs;
    const std::string text = json_of_record(Findings{mine}).dump();
    const std::string origin = "another rank's findings";
    for (const std::string& one : gather(team, text))
        theirs.push_back(record_from_json<Findings>(parse_json(one, origin), origin));
    std::vector<Finding> all;
    for (std::size_t group = 0; group < mine.size(); ++group)
        for (const Findings& one : theirs)
            std::ranges::copy(one.groups.at(group), std::back_inserter(all));
    return all;
}

}  // namespace lockstep
