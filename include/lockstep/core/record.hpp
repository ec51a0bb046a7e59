// SPDX-License-Identifier: Apache-2.0
/// @file
/// One description of a struct, by which it is both written as JSON and read back:
///
///     void describe(Record& record, Lease& lease) {
///         record.field("host", lease.host);
///         record.later("job", lease.job);       // files of earlier versions lack it
///         record.sparse("nice", lease.nice, 0);  // not written where it is 0
///     }
///
/// so that a key is spelt in one place. The order of the calls is the order in the file. A value is
/// a bool, int, int64, uint64, double, text, a Json object as it is, a described struct, or a
/// vector, map by text or optional of these.
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

/// A struct that has its describe(), in the same namespace: an unnamed one only where the struct
/// is in it too.
template <class T>
concept Described = requires(Record& record, T& value) {
    describe(record, value);
};

/// What becomes of a key in a file that no description asks for.
enum class UnknownKeys {
    ignored,  ///< files of later versions have more
    refused,  ///< E222: people write these, and a misspelt key would be a fact silently left out
};

/// What a description is shown to: a writer that collects values, or a reader that hands them out.
class Record {
  public:
    /// Writes.
    Record() : made_(Json::object()) {}
    /// Reads from `object`, which outlives this and came from `origin`. Errors: E222 if it is no
    /// object.
    Record(const Json& object, std::string origin, UnknownKeys unknown_keys = UnknownKeys::ignored);

    /// Whether values come from a file.
    bool is_reading() const { return read_ != nullptr; }
    /// The file, if one is read.
    const std::string& origin() const { return origin_; }

    /// Member `key`. Errors, when read: E222 naming origin, key and what is there.
    template <class T>
    void field(const char* key, T& value) {
        if (is_reading())
            take(asked(key), key, value);
        else
            made_.add_member(key) = json_of(value);
    }

    /// The same, but `value` stays as it is where the file does not have the key.
    template <class T>
    void later(const char* key, T& value) {
        if (wants(key, true)) field(key, value);
    }

    /// The same, but what equals `usual` is not written: what is not there is `usual`.
    template <class T>
    void sparse(const char* key, T& value, const std::type_identity_t<T>& usual = {}) {
        if (wants(key, is_reading() || json_of(value) != json_of(usual)))
            field(key, value);
        else if (is_reading())
            value = usual;
    }

    /// An enumerator by its place in `names`. Errors, when read: E222 naming what is known.
    template <class Enum>
    requires std::is_enum_v<Enum>
    void field(const char* key, Enum& value, std::span<const std::string_view> names) {
        value = static_cast<Enum>(place(key, static_cast<std::size_t>(value), names));
    }

    /// A value that stands there as text: print(value) gives it, and parse(text) an optional value.
    /// Errors, when read: E222 if that is none, saying that it is not `wanted`.
    template <class T, class Print, class Parse>
    void text(const char* key, T& value, Print&& print, Parse&& parse, std::string_view wanted) {
        std::string text = is_reading() ? std::string() : std::string(print(value));
        field(key, text);
        if (!is_reading()) return;
        auto parsed = parse(std::string_view(text));
        if (!parsed) throw unfit(key, Json(text), wanted);
        value = *std::move(parsed);
    }

    /// A number of things or bytes below 2^62, so that sums of two do not overflow. Errors: E222.
    void count(const char* key, std::uint64_t& value);

    /// A measured number, which is null if it is not finite; kept if the file has none.
    /// Errors, when read: E222.
    void measured(const char* key, double& value);

    /// The version of the format: `newest` is written, and 1 to `newest` can be read. Returns what
    /// was read, or `newest`. Errors: E305 for others.
    std::int64_t version(const char* key, std::int64_t newest);

    /// Text that is written for users and other programs, and ignored when read.
    void mark(const char* key, std::string_view text);

    /// Whether `key` is shown to field(): where written, `is_worth_it`; else whether it is there.
    bool wants(const char* key, bool is_worth_it);

    /// Errors: E222 for unknown keys, if they are refused.
    void finish() const;

    /// What was written.
    Json take_made() { return std::move(made_); }

    /// E222 for a value that does not fit, naming origin and key.
    Error unfit(const std::string& key, const Json& value, std::string_view wanted) const;

  private:
    template <class T>
    static Json json_of(const T& value) {
        if constexpr (Described<T>) {
            Record inner;
            describe(inner, const_cast<T&>(value));  // which a writer does not change
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
        Record inner(json, within(key), unknown_keys_);
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
            const std::string place = item_key(key, values.size());
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
    std::string within(const std::string& key) const;
    static std::string item_key(const std::string& key, std::size_t index);

    const Json* read_ = nullptr;  // none: this writes
    Json made_;
    std::string origin_;
    UnknownKeys unknown_keys_ = UnknownKeys::ignored;
    std::vector<std::string> asked_;  // in case that unknown keys are refused
};

/// `value` as the JSON that its describe() names.
template <Described T>
Json json_of_record(const T& value) {
    Record record;
    describe(record, const_cast<T&>(value));  // which a writer does not change
    return record.take_made();
}

/// A T from `json`, by the same describe(). Errors: E222 naming `origin`.
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
