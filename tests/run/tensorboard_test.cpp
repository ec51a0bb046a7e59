// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/tensorboard.hpp"

#include "support/unit.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>

namespace lockstep {
namespace {

// A reader of protocol buffers that knows nothing of how they are written.

/// Takes bytes off the front of a text. Throws where there are too few.
class WireReader {
  public:
    explicit WireReader(std::string_view bytes) : rest_(bytes) {}

    bool is_done() const { return rest_.empty(); }

    std::string_view take(std::size_t count) {
        if (count > rest_.size()) throw std::runtime_error("cut short");
        const auto taken = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return taken;
    }

    /// Little endian.
    std::uint64_t number(std::size_t bytes) {
        const auto text = take(bytes);
        std::uint64_t value = 0;
        for (std::size_t i = bytes; i-- > 0;)
            value = value << 8 | static_cast<unsigned char>(text[i]);
        return value;
    }

    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const auto byte = number(1);
            value |= (byte & 0x7F) << shift;
            if (byte < 0x80) return value;
        }
        throw std::runtime_error("a number without end");
    }

  private:
    std::string_view rest_;
};

/// One field of a message: its number, and a number or bytes.
struct WireField {
    std::uint64_t key = 0, field = 0;  ///< the key has the type, too
    std::uint64_t value = 0;           ///< varint, fixed64, fixed32
    std::string_view bytes = {};       ///< texts and messages
};

std::vector<WireField> wire_fields(std::string_view message) {
    std::vector<WireField> fields;
    for (WireReader in(message); !in.is_done();) {
        const std::uint64_t key = in.varint();
        WireField& next = fields.emplace_back(WireField{key, key >> 3});
        const std::uint64_t type = key & 7;
        if (type == 2)
            next.bytes = in.take(in.varint());
        else if (type == 0)
            next.value = in.varint();
        else if (type == 1 || type == 5)
            next.value = in.number(type == 1 ? 8 : 4);
        else
            throw std::runtime_error("unknown wire type");
    }
    return fields;
}

/// CRC-32C bit by bit, as its definition has it.
std::uint32_t slow_crc32c(std::string_view bytes) {
    std::uint32_t crc = 0xFFFFFFFF;
    for (const char c : bytes) {
        crc ^= static_cast<unsigned char>(c);
        for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) ? (crc >> 1) ^ 0x82F63B78 : crc >> 1;
    }
    return crc ^ 0xFFFFFFFF;
}

/// One TFRecord with both checksums proven.
std::string_view take_record(WireReader& in) {
    const auto take_proven = [&](std::size_t bytes) {
        const std::string_view taken = in.take(bytes);
        const auto crc = slow_crc32c(taken);
        const auto masked = ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
        if (in.number(4) != masked) throw std::runtime_error("wrong checksum");
        return taken;
    };
    WireReader length(take_proven(8));
    return take_proven(length.number(8));
}

struct ReadHistogram {
    double min = 0, max = 0, count = 0, sum = 0, sum_squares = 0;
    std::vector<double> limits, counts;
};

std::vector<double> doubles_in(std::string_view bytes) {
    std::vector<double> values;
    for (WireReader in(bytes); !in.is_done();)
        values.push_back(std::bit_cast<double>(in.number(8)));
    return values;
}

ReadHistogram histogram_in(std::string_view bytes) {
    ReadHistogram found;
    double* const numbers[] = {
        &found.min, &found.max, &found.count, &found.sum, &found.sum_squares};
    for (const WireField& field : wire_fields(bytes)) {
        if (field.field <= 5) *numbers[field.field - 1] = std::bit_cast<double>(field.value);
        if (field.field == 6) found.limits = doubles_in(field.bytes);
        if (field.field == 7) found.counts = doubles_in(field.bytes);
    }
    return found;
}

/// Of a TensorProto that holds one.
std::string text_in(std::string_view bytes) {
    const auto fields = wire_fields(bytes);
    if (fields.size() != 3 || fields[0].value != 7 || fields[2].field != 8)
        throw std::runtime_error("no text");
    return std::string(fields[2].bytes);
}

struct Event {
    double wall_time = 0;
    std::int64_t step = 0;
    std::string version;
    std::map<std::string, float> scalars;
    std::map<std::string, std::string> texts;
    std::map<std::string, ReadHistogram> histograms;
    std::optional<std::uint64_t> session_status;
};

void read_value(std::string_view bytes, Event& event) {
    std::string tag;
    for (const WireField& field : wire_fields(bytes)) {
        if (field.field == 1) tag = field.bytes;
        if (field.field == 2)
            event.scalars[tag] = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
        if (field.field == 5) event.histograms[tag] = histogram_in(field.bytes);
        if (field.field == 8) event.texts[tag] = text_in(field.bytes);
        if (field.field == 9) {
            EXPECT_EQ(field.bytes, std::string_view("\x0a\x06\x0a\x04text\x20\x02"));
        }
    }
}

void read_summary(std::string_view bytes, Event& event) {
    for (const WireField& value : wire_fields(bytes)) {
        if (value.key != (1 << 3 | 2)) throw std::runtime_error("unexpected field");
        read_value(value.bytes, event);
    }
}

Event read_event(std::string_view bytes) {
    Event event;
    for (const WireField& part : wire_fields(bytes)) {
        if (part.key == (1 << 3 | 1))
            event.wall_time = std::bit_cast<double>(part.value);
        else if (part.key == (2 << 3 | 0))
            event.step = static_cast<std::int64_t>(part.value);
        else if (part.key == (3 << 3 | 2))
            event.version = part.bytes;
        else if (part.key == (5 << 3 | 2))
            read_summary(part.bytes, event);
        else if (part.key == (7 << 3 | 2) && wire_fields(part.bytes).at(0).key == (1 << 3 | 0))
            event.session_status = wire_fields(part.bytes)[0].value;
        else
            throw std::runtime_error("unexpected field");
    }
    return event;
}

std::vector<Event> events_of(const fs::path& path) {
    const auto content = content_of(path);
    std::vector<Event> events;
    for (WireReader in(content); !in.is_done();) events.push_back(read_event(take_record(in)));
    return events;
}

TEST(Crc32c, HasThePublishedValues) {
    // RFC 3720, appendix B.4.
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
    EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
    EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
    EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventFile, BeginsWithItsVersion) {
    const TempDir folder;
    const EventFile file(folder.path());
    EXPECT_THAT(file.path().filename().string(), StartsWith("events.out.tfevents."));
    const auto events = events_of(file.path());
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].version, "brain.Event:2");
    EXPECT_GT(events[0].wall_time, 1.7e9);
    EXPECT_EQ(caught_code([&] { EventFile(folder / "none"); }), "E201");
}

TEST(EventFile, HoldsScalarsOfAStep) {
    const TempDir folder;
    EventFile file(folder.path());
    file.add(300, std::array{Scalar{"train/loss", 0.5}, Scalar{"train/lr", -1e-3}});
    file.add(1ll << 40, "test/accuracy", 0.9);
    const auto events = events_of(file.path());
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[1].step, 300);
    EXPECT_THAT(events[1].scalars,
                UnorderedElementsAre(Pair("train/loss", 0.5f), Pair("train/lr", -1e-3f)));
    EXPECT_EQ(events[2].step, 1ll << 40);
    EXPECT_THAT(events[2].scalars, ElementsAre(Pair("test/accuracy", 0.9f)));
}

TEST(EventFile, HoldsTexts) {
    const TempDir folder;
    EventFile file(folder.path());
    const std::array rows{std::pair<std::string, std::string>{"a|b", "1\n2"},
                          std::pair<std::string, std::string>{"batch", "128"}};
    file.add_text(7, "run/settings", markdown_table("setting", "value", rows));
    const auto events = events_of(file.path());
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[1].step, 7);
    EXPECT_THAT(events[1].texts,
                ElementsAre(Pair("run/settings",
                                 "| setting | value |\n|---|---|\n"
                                 "| a\\|b | 1 2 |\n| batch | 128 |\n")));
}

TEST(EventFile, HoldsHistograms) {
    const TempDir folder;
    EventFile file(folder.path());
    Histogram values;
    file.add_histogram(8, "nothing", values);
    for (const double value : {-2.0, 0.5, 0.5, 4.0}) values.add(value);
    file.add_histogram(9, "time/step_ms", values);
    const auto events = events_of(file.path());
    ASSERT_EQ(events.size(), 2u) << "an empty one is none";
    const ReadHistogram& found = events[1].histograms.at("time/step_ms");
    EXPECT_EQ(found.min, -2);
    EXPECT_EQ(found.max, 4);
    EXPECT_EQ(found.count, 4);
    EXPECT_EQ(found.sum, 3);
    EXPECT_EQ(found.sum_squares, 20.5);
    ASSERT_EQ(found.limits.size(), found.counts.size());
    EXPECT_EQ(std::accumulate(found.counts.begin(), found.counts.end(), 0.0), 4);
}

TEST(Histogram, CountsEachValueBelowItsBucketsLimit) {
    Histogram values;
    const std::vector<double> given{-1e30, -3, -1e-13, 0, 1e-13, 1, 1.05, 2e20, 1e300};
    for (const double value : given) values.add(value);
    values.add(std::numeric_limits<double>::quiet_NaN());
    values.add(std::numeric_limits<double>::infinity());
    EXPECT_EQ(values.count(), 9);
    double below = -std::numeric_limits<double>::infinity();
    std::size_t counted = 0;
    for (const Histogram::Bucket& bucket : values.buckets()) {
        EXPECT_GT(bucket.limit, below);
        const auto inside = std::ranges::count_if(
            given, [&](double value) { return value >= below && value < bucket.limit; });
        EXPECT_EQ(bucket.count, inside) << "up to " << bucket.limit;
        counted += static_cast<std::size_t>(inside);
        below = bucket.limit;
    }
    EXPECT_EQ(counted, given.size());
    EXPECT_LT(values.buckets().size(), 20u) << "empty ones in a row are one";
}

TEST(EventFile, VoidsLaterStepsAfterAResume) {
    const TempDir folder;
    const EventFile file(folder.path(), 200);
    const auto events = events_of(file.path());
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[1].step, 201);
    EXPECT_EQ(events[1].session_status, 1u);
    // A start that ended before its first checkpoint has left events, too.
    const TempDir other;
    const EventFile from_the_begin(other.path(), 0);
    const auto later = events_of(from_the_begin.path());
    ASSERT_EQ(later.size(), 2u);
    EXPECT_EQ(later[1].step, 1);
}

}  // namespace
}  // namespace lockstep
