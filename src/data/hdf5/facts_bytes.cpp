// SPDX-License-Identifier: Apache-2.0
#include "file_facts.hpp"
#include "format/index_columns.hpp"

#include <algorithm>
#include <bit>

namespace lockstep {
namespace {

constexpr std::uint64_t version = 8;

void form_of(ByteForm& form, StoredNumber& number) {
    form.item(number.bytes);
    if (number.bytes > 0xffffffff) throw damaged_index("a number is too wide");
    for (bool* const is : {&number.is_whole,
                           &number.has_sign,
                           &number.is_big_endian,
                           &number.is_usual,
                           &number.is_brain})
        form.item(*is);
}

void form_of(ByteForm& form, CfFacts& cf) {
    for (std::optional<double>* const real : {&cf.packing.scale, &cf.packing.offset})
        form.optional(*real, [&](double& value) {
            auto bits = std::bit_cast<std::uint64_t>(value);
            form.item(bits);
            value = std::bit_cast<double>(bits);
        });
    form.column(cf.packing.missing, most_missing_values);
    form.optional(cf.packing.least);
    form.optional(cf.packing.most);
    form.item(cf.is_unsigned);
    form.item(cf.fault);
}

// `most`: chunks that it may have.
void form_of(ByteForm& form, ChunkFacts& chunks, std::uint64_t most) {
    for (auto* const column : {&chunks.offsets, &chunks.bytes, &chunks.skipped})
        form.column(*column, most);
    form.item(chunks.fault);
    const std::size_t count = chunks.offsets.size();
    if (chunks.bytes.size() != count || chunks.skipped.size() != count)
        throw damaged_index("a chunk is described in part");
}

void form_of(ByteForm& form, DatasetFacts& facts, std::uint64_t most, bool is_part = false) {
    constexpr std::uint64_t most_dimensions = 32;
    form.item(facts.layout, StorageLayout::linked);
    form.item(facts.file);
    form.optional(facts.type, [&](ElementType& type) { form.item(type, ElementType::f64); });
    form.optional(facts.number, [&](StoredNumber& number) { form_of(form, number); });
    form.list(facts.members, 16, [&](EnumMember& member) {
        form.item(member.name);
        auto value = static_cast<std::uint64_t>(member.value);
        form.item(value);
        member.value = static_cast<std::int64_t>(value);
    });
    form.item(facts.is_text);
    form.item(facts.type_text);
    form.item(facts.has_numbers);
    form.item(facts.has_bytes);
    form.column(facts.size, most_dimensions);
    form.item(facts.offset);
    form.column(facts.chunk, most_dimensions);
    form.list(facts.filters, 16, [&](FilterFacts& filter) {
        form.item(filter.kind);
        form.list(filter.values);
    });
    form.item(facts.leaves_partial_chunks);
    form_of(form, facts.chunks, most);
    form.optional(facts.cf, [&](CfFacts& cf) { form_of(form, cf); });
    form.list(facts.parts, 64, [&](DatasetFacts& part) {
        if (is_part) throw damaged_index("a part has parts");
        form_of(form, part, most, true);
    });
}

void form_of(ByteForm& form, fs::path& path) {
    std::string text = path;
    form.item(text);
    path = text;
}

void form_of(ByteForm& form, FileRequest& request) {
    form_of(form, request.path);
    form.list(request.datasets);
    form.item(request.links, Links::followed);
}

void form_of(ByteForm& form, RowsRequest& request) {
    form_of(form, request.path);
    form.item(request.dataset);
    form.item(request.type, ElementType::f64);
    for (std::uint64_t* const number : {&request.first, &request.rows, &request.bytes})
        form.item(*number);
    form.item(request.links, Links::followed);
}

void form_of(ByteForm& form, FileFacts& facts, std::uint64_t most = most_chunks) {
    form.optional(facts.uuid, [&](std::string& uuid) { form.item(uuid); });
    for (auto* const number : {&facts.shard_index, &facts.samples, &facts.first_sample})
        form.optional(*number);
    form.list(facts.datasets, 64, [&](DatasetFacts& dataset) { form_of(form, dataset, most); });
}

void form_of(ByteForm& form, Lists& lists) {
    form.list(lists);
}

template <class T, class... Limits>
T read_back(std::span<const std::byte> bytes, Limits... limits) {
    ByteReader in(bytes);
    if (in.number() != version) throw damaged_index("it is of another version");
    T value;
    ByteForm form(in);
    form_of(form, value, limits...);
    if (!in.is_at_end()) throw damaged_index("it holds more than it announces");
    return value;
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

bool DatasetFacts::is_column_of_texts() const {
    return is_text && (size.size() == 1 || (size.size() == 2 && size[1] == 1));
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

template <class T>
std::vector<std::byte> to_bytes(const T& value) {
    ByteWriter out;
    out.add(version);
    ByteForm form(out);
    form_of(form, const_cast<T&>(value));  // a writer does not change it
    return out.finish();
}

template std::vector<std::byte> to_bytes(const FileRequest&);
template std::vector<std::byte> to_bytes(const RowsRequest&);
template std::vector<std::byte> to_bytes(const FileFacts&);
template std::vector<std::byte> to_bytes(const Lists&);

FileRequest request_from(std::span<const std::byte> bytes) {
    return read_back<FileRequest>(bytes);
}

RowsRequest rows_request_from(std::span<const std::byte> bytes) {
    return read_back<RowsRequest>(bytes);
}

FileFacts facts_from(std::span<const std::byte> bytes, std::size_t datasets, std::uint64_t most) {
    FileFacts facts = read_back<FileFacts>(bytes, std::min(most, most_chunks));
    if (facts.datasets.size() != datasets) throw damaged_index("it is about other data sets");
    return facts;
}

Lists lists_from(std::span<const std::byte> bytes, std::uint64_t rows) {
    Lists lists = read_back<Lists>(bytes);
    if (lists.size() != rows) throw damaged_index("it is about other rows");
    return lists;
}

}  // namespace lockstep
