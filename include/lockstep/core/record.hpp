// SPDX-License-Identifier: Apache-2.0
/// @file
/// One description of a struct, which both writes it as JSON and reads it back:
///
///     void describe(Record& record, Lease& lease) {
///         record.field("host", lease.host);
///         record.later("job", lease.job);       // files of earlier versions lack it
///         record.sparse("nice", lease.nice, 0);  // not written where it is 0
///     }
///
/// Each key is therefore spelt in one place. The order of the calls is the order in the file.
/// Members whose keys are their own names can share a call; to rename one changes the format:
///
///     LOCKSTEP_EACH(record.sparse, lease.by, lease.since);
///
/// A value is a bool, int, int64, uint64, double, text, a Json object as it is, or a described
/// struct. It may also be a vector, a map by text or an optional of these.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

class Record;

/// A struct that has a describe() in its own namespace. That namespace may be unnamed only if the
/// struct is in it too.
template <class T>
concept Described = requires(Record& record, T& value) {
    describe(record, value);
};

/// Treatment of keys in a file that no description asks for.
enum class UnknownKeys {
    ignored,  ///< files of later versions have more keys
    refused,  ///< E222: in files written by people a misspelt key would lose a fact silently
};

/// The argument of describe(): a writer that collects values, or a reader that fills them in.
class Record {
  public:
    /// Makes a writer.
    Record() : made_(Json::object()) {}
    /// Makes a reader of `object`, which must outlive this and came from `origin`. Errors: E222 if
    /// it is no object.
    Record(const Json& object, std::string origin, UnknownKeys unknown_keys = UnknownKeys::ignored);

    /// Returns true if values are read from a file.
    bool is_reading() const { return read_ != nullptr; }
    /// Returns the name of the file that is read.
    const std::string& origin() const { return origin_; }

    /// Reads or writes member `key`. Errors on reading: E222 naming origin, key and the value
    /// found.
    template <class T>
    void field(const char* key, T& value) {
        if (is_reading())
            take(asked(key), key, value);
        else
            made_.add_member(key) = json_of(value);
    }

    /// Does the same as field(), but keeps `value` where the file does not have the key.
    template <class T>
    void later(const char* key, T& value) {
        if (wants(key, true)) field(key, value);
    }

    /// Does the same as field(), but does not write a value equal to `usual`; a missing key reads
    /// as `usual`.
    template <class T>
    void sparse(const char* key, T& value, const std::type_identity_t<T>& usual = {}) {
        if (wants(key, is_reading() || json_of(value) != json_of(usual)))
            field(key, value);
        else if (is_reading())
            value = usual;
    }

    /// Reads or writes an enumerator by its name in `names`. Errors on reading: E222 naming the
    /// known names.
    template <class Enum>
    requires std::is_enum_v<Enum>
    void field(const char* key, Enum& value, std::span<const std::string_view> names) {
        value = static_cast<Enum>(place(key, static_cast<std::size_t>(value), names));
    }

    /// Reads or writes a value as text: print(value) returns the text, and parse(text) an optional
    /// value. Errors on reading: E222 if parse() returns nothing; the message names `wanted`.
    template <class T, class Print, class Parse>
    void text(const char* key, T& value, Print&& print, Parse&& parse, std::string_view wanted) {
        std::string text = is_reading() ? std::string() : std::string(print(value));
        field(key, text);
        if (!is_reading()) return;
        auto parsed = parse(std::string_view(text));
        if (!parsed) throw unfit(key, Json(text), wanted);
        value = *std::move(parsed);
    }

    /// Reads or writes a number of things or bytes below 2^62, so that sums of two do not overflow.
    /// Errors: E222.
    void count(const char* key, std::uint64_t& value);

    /// Reads or writes a measured number, which is null if it is not finite. `value` is kept where
    /// the file has none. Errors on reading: E222.
    void measured(const char* key, double& value);

    /// Reads or writes the version of the format: `newest` is written, and 1 to `newest` can be
    /// read. Returns the version read, or `newest`. Errors: E305 for others.
    std::int64_t version(const char* key, std::int64_t newest);

    /// Writes text for users and other programs; it is ignored on reading.
    void mark(const char* key, std::string_view text);

    /// Returns true if `key` should be passed to field(): `is_worth_it` when writing, the key's
    /// presence when reading.
    bool wants(const char* key, bool is_worth_it);

    /// Checks for unknown keys if they are refused. Errors: E222.
    void finish() const;

    /// Returns what was written.
    Json take_made() { return std::move(made_); }

    /// Returns E222 for a value that does not fit, naming origin and key.
    Error unfit(const std::string& key, const Json& value, std::string_view wanted) const;

  private:
    template <class T>
    static Json json_of(const T& value) {
        if constexpr (Described<T>) {
            Record inner;
            describe(inner, const_cast<T&>(value));  // a writer does not change it
            return inner.take_made();
        } else {
            return value;
        }
    }
    template <class T>
    static Json json_of(const std::optional<T>& value) {
        return value ? json_of(*value) : Json();
    }
    template <class T>
    static Json json_of(const std::vector<T>& values) {
        Json array = Json::array();
        for (const T& value : values) array.push_back(json_of(value));
        return array;
    }
    template <class T>
    static Json json_of(const std::map<std::string, T>& values) {
        Json object = Json::object();
        for (const auto& [key, value] : values) object.add_member(key) = json_of(value);
        return object;
    }

    template <Described T>
    void take(const Json& json, const std::string& key, T& value) const {
        Record inner(json, origin_ + ": " + key, unknown_keys_);
        describe(inner, value);
        inner.finish();
    }
    template <class T>
    void take(const Json& json, const std::string& key, std::optional<T>& value) const {
        if (json.is_null())
            value.reset();
        else
            take(json, key, value.emplace());
    }
    template <class T>
    void take(const Json& json, const std::string& key, std::vector<T>& values) const {
        if (!json.is_array()) throw unfit(key, json, "an array");
        values.clear();
        values.reserve(json.size());
        for (const Json& item : json) {
            const std::string place = key + "[" + std::to_string(values.size()) + "]";
            take(item, place, values.emplace_back());
        }
    }
    template <class T>
    void take(const Json& json, const std::string& key, std::map<std::string, T>& values) const {
        if (!json.is_object()) throw unfit(key, json, "an object");
        values.clear();
        for (const JsonMember& member : json.items())
            take(member.value, member.key, values[member.key]);
    }
    void take(const Json& json, const std::string& key, bool& value) const;
    void take(const Json& json, const std::string& key, int& value) const;
    void take(const Json& json, const std::string& key, std::int64_t& value) const;
    void take(const Json& json, const std::string& key, std::uint64_t& value) const;
    void take(const Json& json, const std::string& key, double& value) const;
    void take(const Json& json, const std::string& key, std::string& value) const;
    void take(const Json& json, const std::string& key, Json& value) const;

    Error senseless(std::string why) const;
    const Json& asked(const char* key);
    std::size_t place(const char* key, std::size_t now, std::span<const std::string_view> names);

    const Json* read_ = nullptr;  // nullptr: this is a writer
    Json made_;
    std::string origin_;
    UnknownKeys unknown_keys_ = UnknownKeys::ignored;
    std::vector<std::string> asked_;  // keys asked for, if unknown keys are refused
};

/// Returns the first member's name in "lease.by, lease.since", and takes it off that text.
std::string next_member(std::string_view& members);

/// Calls record.HOW(name, member) for each member: LOCKSTEP_EACH(record.HOW, value.a, value.b).
#define LOCKSTEP_EACH(how, ...)                                     \
    [&](std::string_view members, auto&... each) {                  \
        (how(::lockstep::next_member(members).c_str(), each), ...); \
    }(#__VA_ARGS__, __VA_ARGS__)

/// Returns `value` as the JSON of its describe().
template <Described T>
Json json_of_record(const T& value) {
    Record record;
    describe(record, const_cast<T&>(value));  // a writer does not change it
    return record.take_made();
}

/// Reads a T from `json` by its describe(). Errors: E222 naming `origin`.
template <Described T>
T record_from_json(const Json& json,
                   const std::string& origin,
                   UnknownKeys unknown_keys = UnknownKeys::ignored) {
    Record record(json, origin, unknown_keys);
    T value{};
    describe(record, value);
    record.finish();
    return value;
}

/// Returns member `key` of `json` as T. Errors: E222 naming `origin`, the key and the value found.
template <class T>
T json_field(const Json& json, const char* key, std::string origin) {
    Record record(json, std::move(origin));
    T value{};
    record.field(key, value);
    return value;
}

/// json_of_record() on one line, for other processes.
template <Described T>
std::string serialize(const T& value) {
    return json_of_record(value).dump();
}

/// What serialize() wrote, or people by hand: unknown keys are refused. Errors: E222 naming
/// `origin`.
template <Described T>
T deserialize(std::string_view text, const std::string& origin) {
    return record_from_json<T>(parse_json(text, origin), origin, UnknownKeys::refused);
}

/// The parts of an error, in every log and message that has one.
struct ErrorEvent {
    static constexpr std::string_view name = "error";  ///< of the event in a rank's log
    std::string code, what, why;                       ///< as Error has them
    std::optional<std::vector<int>> ranks{};           ///< who met it, if more than one rank did
    std::string fix{};                                 ///< as Error has it
};

void describe(Record& record, ErrorEvent& error);  ///< as logs and messages have it

/// The parts of `error`.
ErrorEvent event_of(const Error& error);

/// The form in which an error is sent to another process.
std::string error_bytes(const Error& error);

/// The error that error_bytes() wrote. Errors: E222 if it did not.
Error error_from_bytes(std::string_view bytes);

}  // namespace lockstep
