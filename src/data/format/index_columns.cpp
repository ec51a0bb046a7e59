// SPDX-License-Identifier: Apache-2.0
#include "index_columns.hpp"

#include "lockstep/core/hash.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

enum class Form : std::uint64_t { steps, narrow, wide };

bool is_in_steps(std::span<const std::uint64_t> values) {
    const std::uint64_t step = values.size() > 1 ? values[1] - values[0] : 0;
    for (std::size_t i = 1; i < values.size(); ++i)
        if (values[i] - values[i - 1] != step) return false;
    return true;
}

template <class T>
std::vector<std::uint64_t> widened(std::span<const std::byte> bytes) {
    std::vector<T> read(bytes.size() / sizeof(T));
    std::memcpy(read.data(), bytes.data(), bytes.size());
    return {read.begin(), read.end()};
}

}  // namespace

Error damaged_index(std::string why) {
    return Error("E230",
                 "the index of a data set did not arrive as it was sent",
                 std::move(why),
                 "use the same version of Lockstep on all nodes; if it is the same, check memory "
                 "and network");
}

void ByteWriter::add(std::string_view text) {
    add(text.size());
    add(bytes_of(text));
}

std::vector<std::byte> ByteWriter::finish() {
    add(hash64(bytes_));
    return std::move(bytes_);
}

ByteReader::ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {
    std::uint64_t seal = 0;
    const auto said = bytes.size() < sizeof seal ? bytes : bytes.last(sizeof seal);
    rest_ = bytes.first(bytes.size() - said.size());
    std::memcpy(&seal, said.data(), said.size());
    check(said.size() == sizeof seal && seal == hash64(rest_),
          [] { return damaged_index("its hash does not match"); });
}

std::span<const std::byte> ByteReader::take(std::uint64_t bytes) {
    check(bytes <= rest_.size(), [] { return damaged_index("it ends early"); });
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
}

std::uint64_t ByteReader::number() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
}

std::string ByteReader::text() {
    const auto bytes = take(number());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint64_t ByteReader::count(std::uint64_t item_bytes) {
    const std::uint64_t items = number();
    check(items <= rest_.size() / item_bytes, [] { return damaged_index("it ends early"); });
    return items;
}

void ByteForm::item(std::uint64_t& value) {
    if (is_reading())
        value = in_->number();
    else
        out_->add(value);
}

void ByteForm::item(std::uint32_t& value) {
    std::uint64_t number = value;
    item(number);
    check(number <= 0xffffffff, [] { return damaged_index("a number is too large"); });
    value = static_cast<std::uint32_t>(number);
}

void ByteForm::item(bool& value) {
    std::uint64_t number = value ? 1 : 0;
    item(number);
    value = number != 0;
}

void ByteForm::item(std::string& text) {
    if (is_reading())
        text = in_->text();
    else
        out_->add(std::string_view(text));
}

void ByteForm::column(std::vector<std::uint64_t>& values, std::uint64_t most) {
    std::uint64_t count = values.size();
    item(count);
    check(count <= most, [] { return damaged_index("a list is too long"); });
    if (is_reading())
        values = count == 0 ? std::vector<std::uint64_t>() : take_column(*in_, count);
    else if (count > 0)
        add_column(*out_, values);
}

void add_column(ByteWriter& out, std::span<const std::uint64_t> values) {
    if (is_in_steps(values)) {
        out.add(static_cast<std::uint64_t>(Form::steps));
        out.add(values[0]);
        out.add(values.size() > 1 ? values[1] - values[0] : 0);
    } else if (std::ranges::max(values) <= 0xffffffff) {
        out.add(static_cast<std::uint64_t>(Form::narrow));
        const std::vector<std::uint32_t> narrow(values.begin(), values.end());
        out.add(std::as_bytes(std::span(narrow)));
    } else {
        out.add(static_cast<std::uint64_t>(Form::wide));
        out.add(std::as_bytes(values));
    }
}

std::vector<std::uint64_t> take_column(ByteReader& in, std::uint64_t count) {
    const std::uint64_t form = in.number();
    if (form == static_cast<std::uint64_t>(Form::narrow))
        return widened<std::uint32_t>(in.take(count * 4));
    if (form == static_cast<std::uint64_t>(Form::wide))
        return widened<std::uint64_t>(in.take(count * 8));
    check(form == static_cast<std::uint64_t>(Form::steps),
          [] { return damaged_index("a column has an unknown form"); });
    std::uint64_t value = in.number();
    const std::uint64_t step = in.number();
    std::vector<std::uint64_t> values(count);
    for (std::uint64_t& each : values) {
        each = value;
        value += step;
    }
    return values;
}

}  // namespace lockstep
