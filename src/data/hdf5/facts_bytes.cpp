// SPDX-License-Identifier: Apache-2.0
#include "file_facts.hpp"
#include "format/index_columns.hpp"

#include <algorithm>
#include <bit>

namespace lockstep {
namespace {

constexpr std::uint64_t version = 7;
constexpr std::uint64_t absent = ~std::uint64_t{0};

void add_numbers(ByteWriter& out, std::span<const std::uint64_t> values) {
    out.add(values.size());
    if (!values.empty()) add_column(out, values);
}

std::vector<std::uint64_t> take_numbers(ByteReader& in, std::uint64_t most) {
    const std::uint64_t count = in.number();
    if (count > most) throw damaged_index("a list is too long");
    return count == 0 ? std::vector<std::uint64_t>{} : take_column(in, count);
}

void add_optional(ByteWriter& out, const std::optional<std::uint64_t>& value) {
    out.add(std::uint64_t{value.has_value()});
    out.add(value.value_or(0));
}

std::optional<std::uint64_t> take_optional(ByteReader& in) {
    const bool is_there = in.number() != 0;
    const std::uint64_t value = in.number();
    return is_there ? std::optional(value) : std::nullopt;
}

template <class Enum>
Enum take_enum(ByteReader& in, Enum last) {
    const std::uint64_t value = in.number();
    if (value > static_cast<std::uint64_t>(last)) throw damaged_index("a kind is unknown");
    return static_cast<Enum>(value);
}

void add_filters(ByteWriter& out, const std::vector<FilterFacts>& filters) {
    out.add(filters.size());
    for (const FilterFacts& filter : filters) {
        out.add(filter.kind);
        out.add(filter.values.size());
        for (const std::uint32_t value : filter.values) out.add(value);
    }
}

std::vector<FilterFacts> take_filters(ByteReader& in) {
    std::vector<FilterFacts> filters(in.count(16));
    for (FilterFacts& filter : filters) {
        filter.kind = in.number();
        filter.values.resize(in.count(8));
        for (std::uint32_t& value : filter.values) value = static_cast<std::uint32_t>(in.number());
    }
    return filters;
}

void add_number(ByteWriter& out, const std::optional<NumberFacts>& number) {
    if (!number) return out.add(absent);
    const auto bit = [](bool is_set, int place) { return std::uint64_t{is_set} << place; };
    out.add(number->bytes | bit(number->is_whole, 32) | bit(number->has_sign, 33) |
            bit(number->is_big_endian, 34) | bit(number->is_usual, 35) | bit(number->is_brain, 36));
}

std::optional<NumberFacts> take_number(ByteReader& in) {
    const std::uint64_t value = in.number();
    if (value == absent) return {};
    if (value >> 37 != 0) throw damaged_index("a number is of an unknown kind");
    const auto has_bit = [&](int place) { return (value >> place & 1) != 0; };
    return NumberFacts{
        value & 0xffffffff, has_bit(32), has_bit(33), has_bit(34), has_bit(35), has_bit(36)};
}

void add_members(ByteWriter& out, const std::vector<EnumMember>& members) {
    out.add(members.size());
    for (const EnumMember& member : members) {
        out.add(std::string_view(member.name));
        out.add(static_cast<std::uint64_t>(member.value));
    }
}

std::vector<EnumMember> take_members(ByteReader& in) {
    std::vector<EnumMember> members(in.count(16));
    for (EnumMember& member : members) {
        member.name = in.text();
        member.value = static_cast<std::int64_t>(in.number());
    }
    return members;
}

void add_cf(ByteWriter& out, const std::optional<CfFacts>& cf) {
    out.add(std::uint64_t{cf.has_value()});
    if (!cf) return;
    const auto bits = [](const std::optional<double>& value) {
        return value ? std::optional(std::bit_cast<std::uint64_t>(*value)) : std::nullopt;
    };
    add_optional(out, bits(cf->packing.scale));
    add_optional(out, bits(cf->packing.offset));
    add_numbers(out, cf->packing.missing);
    add_optional(out, cf->packing.least);
    add_optional(out, cf->packing.most);
    out.add(std::uint64_t{cf->is_unsigned});
    out.add(std::string_view(cf->fault));
}

std::optional<CfFacts> take_cf(ByteReader& in) {
    if (in.number() == 0) return {};
    const auto real = [&]() -> std::optional<double> {
        const auto bits = take_optional(in);
        return bits ? std::optional(std::bit_cast<double>(*bits)) : std::nullopt;
    };
    CfFacts cf;
    cf.packing.scale = real();
    cf.packing.offset = real();
    cf.packing.missing = take_numbers(in, most_missing_values);
    cf.packing.least = take_optional(in);
    cf.packing.most = take_optional(in);
    cf.is_unsigned = in.number() != 0;
    cf.fault = in.text();
    return cf;
}

void add_dataset(ByteWriter& out, const DatasetFacts& facts) {
    out.add(static_cast<std::uint64_t>(facts.layout));
    out.add(std::string_view(facts.file));
    out.add(facts.type ? static_cast<std::uint64_t>(*facts.type) : absent);
    add_number(out, facts.number);
    add_members(out, facts.members);
    out.add(std::uint64_t{facts.is_text});
    out.add(std::string_view(facts.type_text));
    out.add(std::uint64_t{facts.has_numbers});
    out.add(std::uint64_t{facts.has_bytes});
    add_numbers(out, facts.size);
    out.add(facts.offset);
    add_numbers(out, facts.chunk);
    add_filters(out, facts.filters);
    out.add(std::uint64_t{facts.leaves_partial_chunks});
    add_numbers(out, facts.chunks.offsets);
    add_numbers(out, facts.chunks.bytes);
    add_numbers(out, facts.chunks.skipped);
    out.add(std::string_view(facts.chunks.fault));
    add_cf(out, facts.cf);
    out.add(facts.parts.size());
    for (const DatasetFacts& part : facts.parts) add_dataset(out, part);
}

std::optional<ElementType> take_type(ByteReader& in) {
    const std::uint64_t value = in.number();
    if (value == absent) return {};
    if (value > static_cast<std::uint64_t>(ElementType::f64))
        throw damaged_index("a type is unknown");
    return static_cast<ElementType>(value);
}

DatasetFacts take_dataset(ByteReader& in, std::uint64_t most, bool is_part = false) {
    constexpr std::uint64_t most_dimensions = 32;
    DatasetFacts facts;
    facts.layout = take_enum(in, StorageLayout::linked);
    facts.file = in.text();
    facts.type = take_type(in);
    facts.number = take_number(in);
    facts.members = take_members(in);
    facts.is_text = in.number() != 0;
    facts.type_text = in.text();
    facts.has_numbers = in.number() != 0;
    facts.has_bytes = in.number() != 0;
    facts.size = take_numbers(in, most_dimensions);
    facts.offset = in.number();
    facts.chunk = take_numbers(in, most_dimensions);
    facts.filters = take_filters(in);
    facts.leaves_partial_chunks = in.number() != 0;
    facts.chunks.offsets = take_numbers(in, most);
    facts.chunks.bytes = take_numbers(in, most);
    facts.chunks.skipped = take_numbers(in, most);
    facts.chunks.fault = in.text();
    facts.cf = take_cf(in);
    const std::size_t chunks = facts.chunks.offsets.size();
    if (facts.chunks.bytes.size() != chunks || facts.chunks.skipped.size() != chunks)
        throw damaged_index("a chunk is described in part");
    const std::size_t parts = in.count(64);
    if (is_part && parts > 0) throw damaged_index("a part has parts");
    for (std::size_t left = parts; left > 0; --left)
        facts.parts.push_back(take_dataset(in, most, true));
    return facts;
}

void check_end(const ByteReader& in) {
    if (!in.is_at_end()) throw damaged_index("it holds more than it announces");
}

}  // namespace

bool DatasetFacts::has_sound_chunks() const {
    if (chunk.empty() || chunk.size() != size.size() || chunk[0] > 0x7fffffff) return false;
    std::uint64_t count = 1;
    for (std::size_t d = 0; d < size.size(); ++d) {
        if (size[d] < 1 || chunk[d] < 1) return false;
        const std::uint64_t along = (size[d] - 1) / chunk[d] + 1;
        if (along > (std::uint64_t{1} << 60) / count) return false;
        count *= along;
    }
    return true;
}

bool DatasetFacts::has_one_number_a_row() const {
    return !size.empty() && std::all_of(size.begin() + 1, size.end(), [](std::uint64_t extent) {
        return extent == 1;
    });
}

bool DatasetFacts::has_whole_rows() const {
    return has_sound_chunks() && std::equal(chunk.begin() + 1, chunk.end(), size.begin() + 1);
}

std::uint64_t DatasetFacts::chunk_count() const {
    std::uint64_t count = 1;
    for (std::size_t d = 0; d < size.size(); ++d) count *= (size[d] - 1) / chunk[d] + 1;
    return count;
}

std::span<const DatasetFacts> DatasetFacts::stored() const {
    return parts.empty() ? std::span(this, 1) : std::span(parts);
}

std::vector<std::byte> to_bytes(const FileRequest& request) {
    ByteWriter out;
    out.add(version);
    out.add(std::string_view(request.path.native()));
    out.add(request.datasets.size());
    for (const std::string& name : request.datasets) out.add(std::string_view(name));
    out.add(static_cast<std::uint64_t>(request.links));
    return out.finish();
}

FileRequest request_from(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    if (in.number() != version) throw damaged_index("it is of another version");
    FileRequest request{in.text(), {}};
    for (std::uint64_t left = in.count(8); left > 0; --left) request.datasets.push_back(in.text());
    request.links = take_enum(in, Links::followed);
    check_end(in);
    return request;
}

std::vector<std::byte> to_bytes(const RowsRequest& request) {
    ByteWriter out;
    out.add(version);
    out.add(std::string_view(request.path.native()));
    out.add(std::string_view(request.dataset));
    out.add(static_cast<std::uint64_t>(request.type));
    for (const std::uint64_t number : {request.first, request.rows, request.bytes}) out.add(number);
    out.add(static_cast<std::uint64_t>(request.links));
    return out.finish();
}

RowsRequest rows_request_from(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    if (in.number() != version) throw damaged_index("it is of another version");
    RowsRequest request{.path = in.text(), .dataset = in.text()};
    request.type = take_enum(in, ElementType::f64);
    request.first = in.number();
    request.rows = in.number();
    request.bytes = in.number();
    request.links = take_enum(in, Links::followed);
    check_end(in);
    return request;
}

std::vector<std::byte> to_bytes(const FileFacts& facts) {
    ByteWriter out;
    out.add(version);
    out.add(std::uint64_t{facts.uuid.has_value()});
    out.add(std::string_view(facts.uuid.value_or("")));
    add_optional(out, facts.shard_index);
    add_optional(out, facts.samples);
    add_optional(out, facts.first_sample);
    out.add(facts.datasets.size());
    for (const DatasetFacts& dataset : facts.datasets) add_dataset(out, dataset);
    return out.finish();
}

FileFacts facts_from(std::span<const std::byte> bytes, std::size_t datasets, std::uint64_t most) {
    ByteReader in(bytes);
    if (in.number() != version) throw damaged_index("it is of another version");
    FileFacts facts;
    const bool has_uuid = in.number() != 0;
    const std::string uuid = in.text();
    if (has_uuid) facts.uuid = uuid;
    facts.shard_index = take_optional(in);
    facts.samples = take_optional(in);
    facts.first_sample = take_optional(in);
    if (in.count(64) != datasets) throw damaged_index("it is about other data sets");
    for (std::size_t left = datasets; left > 0; --left)
        facts.datasets.push_back(take_dataset(in, std::min(most, most_chunks)));
    check_end(in);
    return facts;
}

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

std::vector<std::byte> to_bytes(const Lists& lists) {
    ByteWriter out;
    for (const std::string& list : lists) out.add(std::string_view(list));
    return out.finish();
}

Lists lists_from(std::span<const std::byte> bytes, std::uint64_t rows) {
    ByteReader in(bytes);
    Lists lists;
    for (std::uint64_t row = 0; row < rows; ++row) lists.push_back(in.text());
    if (!in.is_at_end()) throw damaged_index("it holds more than it announces");
    return lists;
}

}  // namespace lockstep
