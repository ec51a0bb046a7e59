// SPDX-License-Identifier: Apache-2.0
#include "lockstep/observe/trace.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/observe/run_directory.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"
#include "trace/gzip.hpp"
#include "wire_reader.hpp"

#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t since_ns = 1'769'862'896'000'000'000;

/// Two steps of 1 ms with two phases each, one sum that both steps overlap, and a publish.
StepTrace made_up_trace(int rank, std::int64_t ahead_ns) {
    StepTrace trace{.rank = rank, .ranks = 2, .host = "n" + std::to_string(rank), .pid = 77};
    trace.steps = {3, 4};
    const auto add = [&](SliceKind kind, const char* name, std::int64_t step, int begin, int end) {
        trace.slices.push_back({.kind = kind,
                                .name = name,
                                .step = step,
                                .begin_ns = since_ns + ahead_ns + begin * 1000,
                                .end_ns = since_ns + ahead_ns + end * 1000});
    };
    for (const int step : {3, 4}) {
        const int at = (step - 3) * 1000;
        add(SliceKind::phase, "forward", step, at, at + 300);
        add(SliceKind::phase, "backward", step, at + 300, at + 1000);
        add(SliceKind::step, step == 3 ? "ProfilerStep#3" : "ProfilerStep#4", step, at, at + 1000);
    }
    add(SliceKind::collective, "reduce 1", 3, 900 + rank, 1100);
    trace.slices.back().seq = 12;
    trace.slices.back().bucket = 1;
    trace.slices.back().bytes = 4096;
    trace.slices.back().waited_ns = 2000;
    add(SliceKind::collective, "publish", 4, 1900, 1950);
    trace.slices.back().seq = 13;
    return trace;
}

TEST(TraceSteps, AreReadFromText) {
    const auto steps = [](const char* text) { return parse_trace_steps({text, "command line"}); };
    EXPECT_EQ(steps("none"), TraceSteps{});
    EXPECT_EQ(steps("steps=50-60"), (TraceSteps{50, 60}));
    EXPECT_EQ(steps("steps=7"), (TraceSteps{7, 7}));
    for (const char* text : {"none", "steps=50-60", "steps=7"})
        EXPECT_EQ(trace_steps_text(steps(text)), text);
    for (const char* text : {"",
                             "50-60",
                             "steps=",
                             "steps=0-3",
                             "steps=6-5",
                             "steps=-5",
                             "steps=5-",
                             "steps=a-b",
                             "steps=5-6,8",
                             "steps=99999999999999999999"})
        EXPECT_THAT(test::caught_text([&] { steps(text); }),
                    HasSubstr(fmt::format("E103: --trace is '{}' (from command line)", text)));
}

TEST(Gzip, GivesBackWhatItPacked) {
    std::string text;
    for (int i = 0; i < 50'000; ++i) text += std::to_string(i);
    for (const std::string& some : {std::string(), std::string("a"), text}) {
        const std::string packed = gzip(some);
        EXPECT_EQ(gunzip(packed, text.size()), some);
        EXPECT_EQ(gunzip(packed.substr(0, packed.size() - 1), text.size()), std::nullopt);
    }
    EXPECT_LT(gzip(text).size(), text.size() / 2);
    EXPECT_EQ(gunzip(gzip(text), text.size() - 1), std::nullopt) << "more than was asked for";
    EXPECT_EQ(gunzip("no such thing", 100), std::nullopt);
}

TEST(StepTrace, IsReadAsItWasWritten) {
    const test::TempDir folder;
    const fs::path path = trace_path(folder.path(), 1);
    EXPECT_EQ(path.filename(), "rank-00001.trace.json.gz");
    const StepTrace trace = made_up_trace(1, 0);
    write_trace(path, trace);
    EXPECT_EQ(read_trace(path), trace);
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    write_trace(path, {.rank = 1, .ranks = 2, .host = "n1", .pid = 1, .steps = {5, 9}});
    EXPECT_THAT(read_trace(path).slices, IsEmpty());
}

/// The events of `text` that are slices.
std::vector<Json> slices_in(const std::string& text) {
    std::vector<Json> slices;
    const Json json = parse_json(text, "trace");
    for (const Json& event : json.at("traceEvents"))
        if (event.at("ph") == "X") slices.push_back(event);
    return slices;
}

TEST(StepTrace, IsWhatKinetosReadersExpect) {
    const test::TempDir folder;
    write_trace(folder / "t", made_up_trace(1, 333));
    const std::string text = gunzip(read_file(folder / "t"), 1 << 20).value_or("");
    EXPECT_THAT(text, HasSubstr("\"rank\": 1,")) << "HTA looks for this text";
    const Json json = parse_json(text, "trace");
    EXPECT_EQ(json.at("distributedInfo").at("world_size"), 2);
    EXPECT_EQ(json.at("schemaVersion"), 1);
    const auto slices = slices_in(text);
    ASSERT_EQ(slices.size(), 8u);
    EXPECT_EQ(slices[2].at("name"), "ProfilerStep#3");
    EXPECT_EQ(slices[2].at("cat"), "user_annotation");
    EXPECT_EQ(slices[2].at("ts"), 1769862896000000.25) << "a quarter of a microsecond at most off";
    EXPECT_EQ(slices[6].at("args").at("bytes"), 4096);
    // In floating-point numbers, too, phases lie within their step and touch each other.
    const auto begin = [&](int i) { return slices[i].at("ts").get<double>(); };
    const auto end = [&](int i) { return begin(i) + slices[i].at("dur").get<double>(); };
    EXPECT_EQ(begin(0), begin(2));
    EXPECT_EQ(end(0), begin(1));
    EXPECT_EQ(end(1), end(2));
    EXPECT_EQ(slices[0].at("tid"), slices[2].at("tid"));
    EXPECT_NE(slices[6].at("tid"), slices[7].at("tid"));
}

TEST(StepTrace, IsRefusedWhereItIsNone) {
    const test::TempDir folder;
    write_trace(folder / "t", made_up_trace(0, 0));
    const std::string whole = test::content_of(folder / "t");
    const auto code = [](const fs::path& path) {
        return test::caught_code([&] { read_trace(path); });
    };
    EXPECT_EQ(code(folder / "none"), "E201");
    EXPECT_EQ(code(folder.file("cut", whole.substr(0, whole.size() / 2))), "E222");
    EXPECT_EQ(code(folder.file("text", "text")), "E222");
    EXPECT_EQ(code(folder.file("empty", gzip(""))), "E222");
    EXPECT_EQ(code(folder.file("json", gzip("{\"traceEvents\": []}"))), "E222");
    const std::string text = gunzip(whole, 1 << 20).value_or("");
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string other = text;
        other.replace(other.find(from), from.size(), to);
        return code(folder.file("other", gzip(other)));
    };
    EXPECT_EQ(with("\"dur\":", "\"dur\":\"x\",\"d\":"), "E222");
    EXPECT_EQ(with("\"seq\":12", "\"seq\":-12"), "E222");
    EXPECT_EQ(with("steps=3-4", "steps=4-3"), "E222");
    EXPECT_EQ(with("\"dur\":", "\"dur\":1e300,\"d\":"), "E222");
    EXPECT_EQ(with("\"world_size\": 2", "\"world_size\": 2000000000"), "E222");
    EXPECT_EQ(with("\"world_size\": 2", "\"world_size\": 0"), "E222");
}

/// A run with a start whose ranks' clocks are `ahead_s` ahead, and which traced.
class MadeUpRun {
  public:
    MadeUpRun() {
        folder_.file("incarnation", "3\n");
        add_log(1, 0, 0);
        add_log(1, 1, 2.5);
        add_log(3, 0, 0);
        trace(0, 0);
        trace(1, 2'500'000'000);
    }

    const fs::path& root() const { return folder_.path(); }
    fs::path logs() const { return RunPaths{root()}.logs(1); }

  private:
    void add_log(int start, int rank, double ahead_s) {
        folder_.file(fmt::format("logs/i{}/rank-{:05}.jsonl", start, rank),
                     fmt::format("{{\"event\":\"clock\",\"t\":1,\"rank\":{0},\"host\":\"n{0}\","
                                 "\"start\":1,\"ahead_s\":{1},\"error_s\":1e-5}}\n",
                                 rank,
                                 ahead_s));
    }
    void trace(int rank, std::int64_t ahead_ns) {
        write_trace(trace_path(logs(), rank), made_up_trace(rank, ahead_ns));
    }

    test::TempDir folder_;
};

/// A slice of a merged file, put together again from its begin and its end.
struct ShownSlice {
    std::uint64_t begin = 0, end = 0;
    std::string name;
    std::size_t depth = 0;
    std::optional<std::uint64_t> flow;
};

/// What Perfetto would show: lanes ("rank 0 on n0/steps") and what is in them.
class Shown {
  public:
    explicit Shown(std::string_view trace) {
        for (const test::WireField& packet : test::wire_fields(trace)) {
            EXPECT_EQ(packet.field, 1u);
            read_packet(packet.bytes);
        }
        for (const auto& [track, open] : open_) EXPECT_THAT(open, IsEmpty()) << lane(track);
    }

    std::map<std::string, std::vector<ShownSlice>> lanes() const {
        std::map<std::string, std::vector<ShownSlice>> lanes;
        for (const auto& [track, slices] : slices_) lanes[lane(track)] = slices;
        return lanes;
    }

  private:
    struct Track {
        std::string name;
        std::uint64_t parent = 0;
    };
    using Names = std::map<std::uint64_t, std::string>;

    std::string lane(std::uint64_t track) const {
        const Track& found = tracks_.at(track);
        return tracks_.at(found.parent).name + "/" + found.name;
    }

    void read_packet(std::string_view bytes) {
        std::uint64_t time = 0, sequence = 0;
        std::string_view event, descriptor;
        for (const test::WireField& field : test::wire_fields(bytes)) {
            if (field.field == 8) time = field.value;
            if (field.field == 10) sequence = field.value;
            if (field.field == 11) event = field.bytes;
            if (field.field == 12) intern(field.bytes);
            if (field.field == 60) descriptor = field.bytes;
            if (field.field == 13 && field.value == 1) names_.clear();
        }
        EXPECT_GT(sequence, 0u);
        if (!descriptor.empty()) describe(descriptor);
        if (!event.empty()) read_event(event, time);
    }

    void intern(std::string_view bytes) {
        for (const test::WireField& entry : test::wire_fields(bytes)) {
            const auto fields = test::wire_fields(entry.bytes);
            names_[{entry.field, fields.at(0).value}] = fields.at(1).bytes;
        }
    }

    void describe(std::string_view bytes) {
        std::uint64_t uuid = 0;
        Track track;
        for (const test::WireField& field : test::wire_fields(bytes)) {
            if (field.field == 1) uuid = field.value;
            if (field.field == 2) track.name = field.bytes;
            if (field.field == 5) track.parent = field.value;
            if (field.field == 3)
                for (const test::WireField& part : test::wire_fields(field.bytes))
                    if (part.field == 6) track.name = part.bytes;
        }
        EXPECT_TRUE(tracks_.emplace(uuid, track).second) << "two tracks have one number";
    }

    void read_event(std::string_view bytes, std::uint64_t time) {
        std::uint64_t type = 0, track = 0;
        ShownSlice slice{.begin = time};
        for (const test::WireField& field : test::wire_fields(bytes)) {
            if (field.field == 9) type = field.value;
            if (field.field == 10) slice.name = names_.at({2, field.value});
            if (field.field == 11) track = field.value;
            if (field.field == 47) slice.flow = field.value;
        }
        auto& open = open_[track];
        auto& slices = slices_[track];
        if (type == 1) {
            slice.depth = open.size();
            open.push_back(slices.size());
            slices.push_back(slice);
            return;
        }
        ASSERT_EQ(type, 2u);
        ASSERT_FALSE(open.empty()) << "an end without a begin";
        slices[open.back()].end = time;
        open.pop_back();
    }

    std::map<std::uint64_t, Track> tracks_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> names_;  // of this sequence
    std::map<std::uint64_t, std::vector<std::size_t>> open_;
    std::map<std::uint64_t, std::vector<ShownSlice>> slices_;
};

TEST(MergedTraces, AreWhatPerfettoShows) {
    const MadeUpRun run;
    const MergedTraces merged = merge_traces(run.root(), 0, TraceFormat::perfetto);
    EXPECT_EQ(merged.incarnation, 1) << "later starts have none";
    EXPECT_EQ(merged.file, run.root() / "trace-i1.pftrace");
    EXPECT_THAT(merged.ranks, ElementsAre(0, 1));
    EXPECT_EQ(merged.slices, 16u);
    EXPECT_EQ(merged.steps, (TraceSteps{3, 4}));
    EXPECT_EQ(merged.correction_s, 2.5);
    EXPECT_EQ(fs::status(merged.file).permissions(),
              fs::perms::owner_read | fs::perms::owner_write);

    const auto lanes = Shown(test::content_of(merged.file)).lanes();
    ASSERT_EQ(lanes.size(), 6u);
    for (const int rank : {0, 1}) {
        const auto& steps = lanes.at(fmt::format("rank {0} on n{0}/steps", rank));
        std::vector<std::string> names;
        for (const ShownSlice& slice : steps) {
            names.push_back(slice.name);
            EXPECT_EQ(slice.depth, slice.name.starts_with("Profiler") ? 0u : 1u) << slice.name;
        }
        EXPECT_THAT(
            names,
            ElementsAre(
                "ProfilerStep#3", "forward", "backward", "ProfilerStep#4", "forward", "backward"));
        EXPECT_EQ(steps[0].begin, static_cast<std::uint64_t>(since_ns)) << "on rank 0's clock";
        EXPECT_EQ(steps[2].end, steps[0].end);
    }
    const auto& own = lanes.at("rank 0 on n0/bucket 1").at(0);
    const auto& others = lanes.at("rank 1 on n1/bucket 1").at(0);
    EXPECT_EQ(own.name, "reduce 1");
    EXPECT_EQ(own.flow, others.flow) << "one sum";
    EXPECT_EQ(own.begin + 1000, others.begin);
    EXPECT_NE(own.flow, lanes.at("rank 0 on n0/publish").at(0).flow);
}

TEST(MergedTraces, AreOneJsonText) {
    const MadeUpRun run;
    const fs::path out = run.root() / "a.json";
    EXPECT_EQ(merge_traces(run.root(), 1, TraceFormat::chrome, out).file, out);
    std::set<std::int64_t> processes;
    const auto slices = slices_in(test::content_of(out));
    for (const Json& slice : slices) {
        processes.insert(slice.at("pid").get<std::int64_t>());
        EXPECT_GE(slice.at("ts").get<double>(), since_ns / 1000);
        EXPECT_LT(slice.at("ts").get<double>(), since_ns / 1000 + 2000);
    }
    EXPECT_EQ(slices.size(), 16u);
    EXPECT_THAT(processes, ElementsAre(0, 1));
}

TEST(MergedTraces, NameWhoIsMissing) {
    const MadeUpRun run;
    fs::remove(trace_path(run.logs(), 0));
    EXPECT_THAT(merge_traces(run.root(), 0, TraceFormat::chrome).missing, ElementsAre(0));
    fs::remove(trace_path(run.logs(), 1));
    const auto failed = test::caught([&] { merge_traces(run.root(), 0, TraceFormat::perfetto); });
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->code(), "E201");
    EXPECT_THAT(failed->text(), HasSubstr("--trace steps=FIRST-LAST"));
}

TEST(MergedTraces, LeaveNothingBehindThatIsNotWhole) {
    const MadeUpRun run;
    test::TempDir elsewhere;
    elsewhere.file("damaged", "text");
    fs::copy_file(
        elsewhere / "damaged", trace_path(run.logs(), 1), fs::copy_options::overwrite_existing);
    const fs::path out = elsewhere / "out";
    EXPECT_EQ(test::caught_code([&] { merge_traces(run.root(), 1, TraceFormat::chrome, out); }),
              "E222");
    EXPECT_EQ(std::distance(fs::directory_iterator(elsewhere.path()), {}), 1);
    EXPECT_EQ(test::caught_code([&] { merge_traces(run.root(), 2, TraceFormat::chrome); }), "E201");
    EXPECT_NE(test::caught_code([&] {
                  merge_traces(run.root(), 1, TraceFormat::chrome, elsewhere / "no" / "out");
              }),
              "");
}

}  // namespace
}  // namespace lockstep
