// SPDX-License-Identifier: Apache-2.0
/// @file
/// One description of a struct, by which it is both written as JSON and read back:
///
///     void describe(Record& record, Lease& lease) {
///         record.field("host", lease.host);
///         record.later("job", lease.job);  // files of earlier versions lack it
///     }
///
/// so that a key is spelt in one place. The order of the calls is the order in the file.
#pragma once

#include "lockstep/core/json.hpp"

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// What a description is shown to: a writer that collects values, or a reader that hands them out.
class Record {
  public:
    /// Writes.
    Record();
    /// Reads from `object`, which came from `origin`. Errors: E222 where it is no object.
    Record(Json object, std::string origin);

    /// Whether values come from a file.
    bool is_reading() const { return is_reading_; }
    /// The file, where one is read.
    const std::string& origin() const { return origin_; }

    /// Member `key`: bool, int, int64, uint64, double, text, or Json for an object as it is.
    /// Errors, when read: E222 naming origin, key and what is there.
    template <class T>
    void field(const char* key, T& value);

    /// The same, but `value` stays as it is where the file does not have the key.
    template <class T>
    void later(const char* key, T& value) {
        if (!is_reading_ || object_.contains(key)) field(key, value);
    }

    /// An enumerator by its place in `names`. Errors, when read: E222 naming what is known.
    template <class Enum>
    void field(const char* key, Enum& value, std::span<const std::string_view> names) {
        value = static_cast<Enum>(place(key, static_cast<std::size_t>(value), names));
    }

    /// Text that is written for people and programs of others, and not looked at when read.
    void mark(const char* key, std::string_view text);

    /// What was written.
    Json take() { return std::move(object_); }

  private:
    std::size_t place(const char* key, std::size_t now, std::span<const std::string_view> names);

    Json object_;
    std::string origin_;
    bool is_reading_;
};

/// `value` as the JSON that its describe() names.
template <class T>
Json json_of_record(T value) {
    Record record;
    describe(record, value);
    return record.take();
}

/// A T from `json`, by the same describe(). Errors: E222 naming `origin`.
template <class T>
T record_from_json(Json json, const std::string& origin) {
    Record record(std::move(json), origin);
    T value;
    describe(record, value);
    return value;
}

}  // namespace lockstep
