// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/trace.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/run_directory.hpp"

#include "support/unit.hpp"
#include "trace/gzip.hpp"

#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

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
    const auto steps = [](const std::string& text) {
        return parse_trace_steps({text, "command line"});
    };
    EXPECT_EQ(steps("none"), TraceSteps{});
    EXPECT_EQ(steps("steps=50-60"), (TraceSteps{50, 60}));
    EXPECT_EQ(steps("steps=7"), (TraceSteps{7, 7}));
    for (const char* text : {"none", "steps=50-60", "steps=7"})
        EXPECT_EQ(trace_steps_text(steps(text)), text);
    for (const std::string& text : split("|3|50-60|steps=|steps=0-3|steps=6-5|steps=-5|steps=5-|"
                                         "steps=a-b|steps=5-6,8|steps=99999999999999999999",
                                         '|'))
        EXPECT_THAT(caught_text([&] { steps(text); }),
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
    const TempDir folder;
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
    const TempDir folder;
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
    const TempDir folder;
    write_trace(folder / "t", made_up_trace(0, 0));
    const std::string whole = content_of(folder / "t");
    const auto code = [](const fs::path& path) { return caught_code([&] { read_trace(path); }); };
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
    EXPECT_EQ(with("\"traceEvents\"", "\"events\""), "E222");
    EXPECT_EQ(with("},\n", "}" + std::string(1 << 20, ' ') + ",\n"), "E222");
    EXPECT_EQ(with("\n]}\n", "\n"), "E222");
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

    TempDir folder_;
};

/// An arrow's end, or a slice, as it is drawn.
struct Drawn {
    std::string lane;  ///< "rank 0 on n0/steps"
    std::string name;
    double begin = 0, end = 0;  ///< microseconds since 1970
};

/// What a viewer draws of a merged file.
struct Drawing {
    explicit Drawing(const fs::path& file) {
        const Json json = parse_json(content_of(file), file.string());
        std::map<std::int64_t, std::string> processes;
        std::map<std::int64_t, std::string> lanes;
        for (const Json& event : json.at("traceEvents")) {
            const auto pid = event.at("pid").get<std::int64_t>();
            const auto thread = event.at("tid").get<std::int64_t>();
            const auto what = event.at("ph").get<std::string>();
            const auto name = event.at("name").get<std::string>();
            if (what == "M") {
                const auto text = event.at("args").at("name").get<std::string>();
                if (name == "process_name")
                    EXPECT_TRUE(processes.emplace(pid, text).second) << "one number for two ranks";
                else
                    EXPECT_TRUE(lanes.emplace(thread, processes.at(pid) + "/" + text).second);
                continue;
            }
            const double begin = event.at("ts").get<double>();
            Drawn drawn{lanes.at(thread), name, begin, begin};
            if (what == "X") {
                drawn.end += event.at("dur").get<double>();
                slices[drawn.lane].push_back(drawn);
            } else {
                auto& ends = what == "s" ? from : to;
                EXPECT_TRUE(ends.emplace(event.at("id").get<std::string>(), drawn).second);
            }
        }
    }

    /// The slice that an end of an arrow lies in.
    const Drawn* slice_at(const Drawn& end) const {
        for (const Drawn& slice : slices.at(end.lane))
            if (slice.begin <= end.begin && end.begin <= slice.end) return &slice;
        return nullptr;
    }

    std::map<std::string, std::vector<Drawn>> slices;  ///< by lane
    std::map<std::string, Drawn> from, to;             ///< ends of arrows by their number
};

TEST(MergedTraces, DrawARankAsAProcess) {
    const MadeUpRun run;
    const MergedTraces merged = merge_traces(run.root(), 0);
    EXPECT_EQ(merged.incarnation, 1) << "later starts have none";
    EXPECT_EQ(merged.file, run.root() / "trace-i1.json");
    EXPECT_THAT(merged.ranks, ElementsAre(0, 1));
    EXPECT_EQ(merged.slices, 16u);
    EXPECT_EQ(merged.steps, (TraceSteps{3, 4}));
    EXPECT_EQ(merged.correction_s, 2.5);
    EXPECT_EQ(fs::status(merged.file).permissions(),
              fs::perms::owner_read | fs::perms::owner_write);

    const Drawing drawing(merged.file);
    ASSERT_EQ(drawing.slices.size(), 6u);
    for (const int rank : {0, 1}) {
        const auto& steps = drawing.slices.at(fmt::format("rank {0} on n{0}/steps", rank));
        std::vector<std::string> names;
        for (const Drawn& slice : steps) names.push_back(slice.name);
        EXPECT_THAT(
            names,
            ElementsAre(
                "ProfilerStep#3", "forward", "backward", "ProfilerStep#4", "forward", "backward"))
            << "a step before what lies within it";
        EXPECT_EQ(steps[0].begin, since_ns / 1000) << "on rank 0's clock";
        EXPECT_EQ(steps[2].end, steps[0].end);
    }
}

TEST(MergedTraces, LeadFromEachCollectiveToTheSameOnTheNextRank) {
    const MadeUpRun run;
    const fs::path out = run.root() / "a.json";
    EXPECT_EQ(merge_traces(run.root(), 1, out).file, out);
    const Drawing drawing(out);
    std::vector<std::string> names;
    for (const auto& [number, begin] : drawing.from) {
        const Drawn& end = drawing.to.at(number);
        EXPECT_LE(begin.begin, end.begin);
        EXPECT_THAT(begin.lane, StartsWith("rank 0 on n0/"));
        EXPECT_THAT(end.lane, StartsWith("rank 1 on n1/"));
        const Drawn* const here = drawing.slice_at(begin);
        const Drawn* const there = drawing.slice_at(end);
        ASSERT_TRUE(here != nullptr && there != nullptr);
        EXPECT_EQ(here->name, there->name);
        names.push_back(here->name);
    }
    EXPECT_THAT(names, UnorderedElementsAre("reduce 1", "publish"));
    EXPECT_EQ(drawing.to.size(), 2u);
}

TEST(MergedTraces, NameWhoIsMissing) {
    const MadeUpRun run;
    fs::remove(trace_path(run.logs(), 0));
    EXPECT_THAT(merge_traces(run.root(), 0).missing, ElementsAre(0));
    fs::remove(trace_path(run.logs(), 1));
    const Error failed = test::error_of([&] { merge_traces(run.root(), 0); });
    EXPECT_EQ(failed.code(), "E201");
    EXPECT_THAT(failed.text(), HasSubstr("--trace steps=FIRST-LAST"));
}

TEST(MergedTraces, LeaveNothingBehindThatIsNotWhole) {
    const MadeUpRun run;
    TempDir elsewhere;
    elsewhere.file("damaged", "text");
    fs::copy_file(
        elsewhere / "damaged", trace_path(run.logs(), 1), fs::copy_options::overwrite_existing);
    const fs::path out = elsewhere / "out";
    EXPECT_EQ(caught_code([&] { merge_traces(run.root(), 1, out); }), "E222");
    EXPECT_EQ(std::distance(fs::directory_iterator(elsewhere.path()), {}), 1);
    EXPECT_EQ(caught_code([&] { merge_traces(run.root(), 2); }), "E201");
    EXPECT_NE(caught_code([&] { merge_traces(run.root(), 1, elsewhere / "no" / "out"); }), "");
}

}  // namespace
}  // namespace lockstep
