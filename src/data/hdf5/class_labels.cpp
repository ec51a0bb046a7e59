// SPDX-License-Identifier: Apache-2.0
// Labels of files that others wrote, read once when they are opened: numbers are counted, texts and
// one-hot rows become numbers. Tested: data/hdf5/foreign_labels_test.cpp.
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/foreign.hpp"

#include "format/labels.hpp"
#include "format/widening.hpp"
#include "row_layout.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t hot_bytes_at_once = std::uint64_t{8} << 20;

constexpr std::uint64_t texts_at_once = 16384;
constexpr std::uint64_t most_name_bytes = std::uint64_t{64} << 20;

Error bad_row(const RowsRequest& from,
              std::uint64_t row,
              const std::string& what,
              const std::string& why,
              const std::string& fix) {
    return Error(
        "E210",
        fmt::format(
            "row {} of '{}' in '{}' {}", grouped(row), from.dataset, from.path.string(), what),
        why,
        fix);
}

template <class Value>
std::string difference_from_hot(const std::vector<Value>& values) {
    const auto other = std::ranges::find_if(
        values, [](Value value) { return value != Value{1} && value != Value{0}; });
    if (other != values.end())
        return fmt::format("has {} at place {}", *other, other - values.begin());
    const auto ones = std::ranges::count(values, Value{1});
    return ones == 0 ? fmt::format("has {} zeros and no one", values.size())
                     : fmt::format("has {} ones", ones);
}

template <class Value>
void add_hot(std::span<const std::byte> rows,
             const RowsRequest& from,
             std::uint64_t first,
             LabelColumn& column) {
    std::vector<Value> values(column.counts.size());
    const std::size_t row_bytes = values.size() * sizeof(Value);
    for (std::size_t row = 0; row < rows.size() / row_bytes; ++row) {
        std::memcpy(values.data(), rows.data() + row * row_bytes, row_bytes);
        const auto one = std::ranges::find(values, Value{1});
        const auto zeros = std::ranges::count(values, Value{0});
        check(one != values.end() && zeros + 1 == std::ssize(values), [&] {
            return bad_row(from,
                           first + row,
                           "is not one-hot: it " + difference_from_hot(values),
                           "a label that is one-hot has one 1, and 0 elsewhere",
                           fmt::format("give --field labels={0} if several labels may be 1, or "
                                       "--field targets={0} to predict these numbers",
                                       from.dataset));
        });
        column.numbers.push_back(static_cast<std::uint32_t>(one - values.begin()));
        ++column.counts[column.numbers.back()];
    }
}

}  // namespace

std::vector<std::uint64_t> counted_classes(const DatasetIndex& index, std::size_t field) {
    ShardFiles files(std::shared_ptr<const DatasetIndex>(std::shared_ptr<void>(), &index));
    BlockReader reader(files, field);
    std::vector<std::uint64_t> counts;
    const Field& described = index.fields()[field];
    const auto& blocks = index.stored_blocks(field);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        const std::span<const std::byte> rows = reader.read_block(field, b);
        const std::optional<BadLabel> bad = first_label_beyond(described, rows, max_classes);
        check(!bad, [&] {
            const bool is_whole_number = bad->label != Widening::no_class;
            return Error(
                "E210",
                fmt::format(
                    "{} of sample {} in '{}' is {}",
                    is_whole_number ? label_text(described, bad->label) : "label",
                    grouped(blocks[b].first_row + bad->element * element_bytes(described.type) /
                                                      index.row_bytes_of(field, blocks[b])),
                    index.shards()[blocks[b].shard].name,
                    is_whole_number ? "out of range" : "no whole number"),
                "a label is a class number: 0 and up",
                (described.shape.empty()
                     ? "to predict these numbers: " + way_to_rename(index, field, "targets") + "; "
                     : "") +
                    "to number the values that occur from 0, in sorted order, " +
                    way_to_rewrite(
                        index, field, "n.unique(x,return_inverse=True)[1].reshape(x.shape)"));
        });
        count_labels(described, rows, counts);
    }
    return counts;
}

LabelColumn classes_of_hot_rows(const DatasetIndex& index,
                                std::size_t field,
                                const std::vector<RowsRequest>& files) {
    const Field& stored = index.fields()[field];
    LabelColumn column{
        .counts = std::vector<std::uint64_t>(static_cast<std::size_t>(stored.shape.at(0)))};
    ShardFiles shards(std::shared_ptr<const DatasetIndex>(std::shared_ptr<void>(), &index));
    BlockReader reader(shards, field);
    const std::uint64_t row_bytes = stored.bytes_per_sample();
    const std::uint64_t most = std::max<std::uint64_t>(hot_bytes_at_once / row_bytes, 1);
    std::vector<std::byte> rows;
    std::uint64_t begin = 0;
    for (const RowsRequest& file : files) {
        for (std::uint64_t first = 0; first < file.rows; first += most) {
            const std::uint64_t count = std::min(most, file.rows - first);
            rows.resize(count * row_bytes);
            reader.read_rows(field, begin + first, count, rows);
            add_hot_rows(column, stored.type, rows, file, first);
        }
        begin += file.rows;
    }
    return column;
}

std::vector<std::byte> LabelColumn::bytes() const {
    std::vector<std::byte> bytes(numbers.size() * element_bytes(type()));
    if (type() == ElementType::u8)
        std::ranges::transform(numbers, bytes.begin(), [](std::uint32_t number) {
            return static_cast<std::byte>(number);
        });
    else if (!numbers.empty())
        std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
}

void TextLabels::add(Sandbox& sandbox, const RowsRequest& from) {
    for (std::uint64_t first = 0; first < from.rows; first += texts_at_once) {
        RowsRequest some = from;
        some.first = first;
        some.rows = std::min(texts_at_once, from.rows - first);
        std::uint64_t row = first;
        for (std::string& text : sandbox.read_lists(some))
            numbers_.push_back(number_of(std::move(text), from, row++));
    }
}

std::uint32_t TextLabels::number_of(std::string text, const RowsRequest& from, std::uint64_t row) {
    const char* const named = "a label that is a text is the name of a class";
    if (text.empty())
        throw bad_row(
            from,
            row,
            "is empty",
            named,
            fmt::format("to call such rows '?', which changes the file: python3 -c 'import "
                        "sys,h5py; f=h5py.File(sys.argv[1],\"r+\"); d=f[sys.argv[2]]; x=d[()]; "
                        "x[x==b\"\"]=b\"?\"; d[...]=x' {} {}",
                        shell_word(from.path.string()),
                        shell_word(from.dataset)));
    if (text.size() > most_text_bytes)
        throw bad_row(from,
                      row,
                      fmt::format("has more than {} bytes", grouped(most_text_bytes)),
                      named,
                      "give a data set of shorter names");
    const auto [at, is_new] =
        met_.try_emplace(std::move(text), static_cast<std::uint32_t>(met_.size()));
    name_bytes_ += is_new ? at->first.size() : 0;
    if (std::ssize(met_) > max_classes || name_bytes_ > most_name_bytes)
        throw bad_row(
            from,
            row,
            fmt::format("is one of more than {} different texts", grouped(met_.size() - 1)),
            named,
            "give a data set of fewer classes");
    return at->second;
}

LabelColumn TextLabels::finish() {
    LabelColumn column;
    std::vector<std::uint32_t> sorted(met_.size());
    for (const auto& [name, met] : met_) {
        sorted[met] = static_cast<std::uint32_t>(column.names.size());
        column.names.push_back(name);
    }
    column.counts.resize(column.names.size());
    column.numbers = std::move(numbers_);
    for (std::uint32_t& number : column.numbers) {
        number = sorted[number];
        ++column.counts[number];
    }
    return column;
}

void add_hot_rows(LabelColumn& column,
                  ElementType type,
                  std::span<const std::byte> rows,
                  const RowsRequest& from,
                  std::uint64_t first) {
    with_type(type, [&]<class Value>(Value) { add_hot<Value>(rows, from, first, column); });
}

}  // namespace lockstep
