// SPDX-License-Identifier: Apache-2.0
#include "lockstep/observe/tensorboard.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <array>
#include <bit>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::StartsWith;
using testing::UnorderedElementsAre;

/// CRC-32C bit by bit, as its definition has it.
std::uint32_t slow_crc32c(std::string_view bytes) {
    std::uint32_t crc = 0xFFFFFFFF;
    for (const char c : bytes) {
        crc ^= static_cast<unsigned char>(c);
        for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) ? (crc >> 1) ^ 0x82F63B78 : crc >> 1;
    }
    return crc ^ 0xFFFFFFFF;
}

/// Reads what the writer wrote, and knows nothing of how.
class Reader {
  public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}

    bool is_done() const { return rest_.empty(); }

    std::string_view take(std::size_t count) {
        if (count > rest_.size()) throw std::runtime_error("cut short");
        const auto taken = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return taken;
    }

    std::uint64_t number(std::size_t bytes) {
        const auto text = take(bytes);
        std::uint64_t value = 0;
        for (std::size_t i = bytes; i-- > 0;) {
            value = value << 8 | static_cast<unsigned char>(text[i]);
        }
        return value;
    }

    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            const auto byte = number(1);
            value |= (byte & 0x7F) << shift;
            if (byte < 0x80) return value;
        }
    }

    /// One TFRecord with both checksums proven.
    std::string_view record() {
        const auto length_bytes = rest_.substr(0, 8);
        const auto length = number(8);
        prove(length_bytes);
        const auto data = take(length);
        prove(data);
        return data;
    }

  private:
    void prove(std::string_view bytes) {
        const auto crc = slow_crc32c(bytes);
        const auto masked = ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
        if (number(4) != masked) throw std::runtime_error("wrong checksum");
    }

    std::string_view rest_;
};

struct Event {
    double wall_time = 0;
    std::int64_t step = 0;
    std::string version;
    std::map<std::string, float> scalars;
    std::optional<std::uint64_t> session_status;
};

void read_value(std::string_view bytes, Event& event) {
    std::string tag;
    for (Reader in(bytes); !in.is_done();) {
        const auto key = in.varint();
        if (key == (1 << 3 | 2)) tag = in.take(in.varint());
        if (key == (2 << 3 | 5)) {
            event.scalars[tag] = std::bit_cast<float>(static_cast<std::uint32_t>(in.number(4)));
        }
    }
}

void read_summary(std::string_view bytes, Event& event) {
    for (Reader in(bytes); !in.is_done();) {
        if (in.varint() != (1 << 3 | 2)) throw std::runtime_error("unexpected field");
        read_value(in.take(in.varint()), event);
    }
}

Event read_event(std::string_view bytes) {
    Event event;
    for (Reader in(bytes); !in.is_done();) {
        switch (in.varint()) {
            case 1 << 3 | 1:
                event.wall_time = std::bit_cast<double>(in.number(8));
                break;
            case 2 << 3 | 0:
                event.step = static_cast<std::int64_t>(in.varint());
                break;
            case 3 << 3 | 2:
                event.version = in.take(in.varint());
                break;
            case 5 << 3 | 2:
                read_summary(in.take(in.varint()), event);
                break;
            case 7 << 3 | 2: {
                Reader log(in.take(in.varint()));
                if (log.varint() == (1 << 3 | 0)) event.session_status = log.varint();
                break;
            }
            default:
                throw std::runtime_error("unexpected field");
        }
    }
    return event;
}

std::vector<Event> events_of(const fs::path& path) {
    const auto content = test::content_of(path);
    std::vector<Event> events;
    for (Reader in(content); !in.is_done();) events.push_back(read_event(in.record()));
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
    const test::TempDir folder;
    const EventFile file(folder.path());
    EXPECT_THAT(file.path().filename().string(), StartsWith("events.out.tfevents."));
    const auto events = events_of(file.path());
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].version, "brain.Event:2");
    EXPECT_GT(events[0].wall_time, 1.7e9);
}

TEST(EventFile, HoldsScalarsOfAStep) {
    const test::TempDir folder;
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

TEST(EventFile, VoidsLaterStepsAfterAResume) {
    const test::TempDir folder;
    const EventFile file(folder.path(), 200);
    const auto events = events_of(file.path());
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[1].step, 201);
    EXPECT_EQ(events[1].session_status, 1u);
}

TEST(EventFile, RefusesAMissingFolder) {
    const test::TempDir folder;
    EXPECT_EQ(test::caught_code([&] { EventFile(folder / "none"); }), "E201");
}

}  // namespace
}  // namespace lockstep
