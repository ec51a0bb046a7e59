// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/ledger.hpp"

#include "lockstep/data/order.hpp"

#include "stream/ledger_record.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include <rapidcheck/gtest.h>
#include <sys/resource.h>

namespace lockstep {
namespace {

constexpr const char* digest = "0123456789abcdef0123456789abcdef";

// A job without a model: ranks that go through the steps of an order and write ledgers.
class Job {
  public:
    Job(fs::path folder, std::uint64_t samples, ShortStep short_step = ShortStep::keep)
        : folder_(std::move(folder)), samples_(samples), short_step_(short_step) {}

    /// Begins an incarnation at the position saved last.
    void start(int ranks, std::int64_t batch) {
        batch_ = batch;
        position_ = saved_;
        ++incarnation_;
        writers_.clear();
        const auto rest = static_cast<std::uint32_t>(samples_ % static_cast<std::uint64_t>(batch));
        const std::uint32_t dropped = short_step_ == ShortStep::drop ? rest : 0;
        for (int rank = 0; rank < ranks; ++rank)
            writers_.emplace_back(
                folder_,
                LedgerHead{samples_, digest, rank, ranks, incarnation_, position_, dropped});
    }

    /// The ranks' batches of the next step.
    std::vector<Batch> next_step() {
        const EpochOrder order(
            row_blocks(samples_, 7), {OrderKind::lanes, 3, 4, 2}, position_.epoch);
        const StreamPosition next = next_position(position_, batch_, samples_, short_step_);
        const std::uint64_t end =
            std::min(position_.consumed + static_cast<std::uint64_t>(batch_), samples_);
        const int ranks = static_cast<int>(writers_.size());
        std::vector<Batch> batches;
        for (int rank = 0; rank < ranks; ++rank) {
            Batch& batch = batches.emplace_back();
            batch.position = position_;
            batch.next = next;
            batch.samples_in_step = static_cast<std::int64_t>(end - position_.consumed);
            const auto ids = std::make_shared<std::vector<std::uint64_t>>();
            for (const LaneRange& part :
                 leaf_slice(position_.consumed, end, order.lanes(), rank, rank + 1, ranks))
                for (std::uint64_t p = part.begin; p < part.end; ++p)
                    ids->push_back(order.sample_at(p * static_cast<std::uint64_t>(order.lanes()) +
                                                   static_cast<std::uint64_t>(part.lane)));
            batch.sample_ids = *ids;
            batch.lease = ids;
        }
        position_ = next;
        return batches;
    }

    void step(int count = 1) {
        for (int i = 0; i < count; ++i) {
            const std::vector<Batch> batches = next_step();
            for (std::size_t rank = 0; rank < batches.size(); ++rank)
                writers_[rank].add(batches[rank]);
        }
    }

    void save() {
        for (LedgerWriter& writer : writers_) writer.flush();
        saved_ = position_;
    }

    /// Begins an incarnation that goes through some steps, and saves.
    void run(int ranks, std::int64_t batch, int steps) {
        start(ranks, batch);
        step(steps);
        save();
    }

    fs::path file(int rank, std::uint64_t incarnation) const {
        return ledger_path(folder_, {.rank = rank, .incarnation = incarnation});
    }

    std::vector<LedgerWriter>& writers() { return writers_; }
    std::uint64_t incarnation() const { return incarnation_; }
    StreamPosition position() const { return position_; }
    StreamPosition saved() const { return saved_; }

  private:
    fs::path folder_;
    std::uint64_t samples_;
    ShortStep short_step_;
    std::uint64_t incarnation_ = 0;
    std::int64_t batch_ = 1;
    StreamPosition position_, saved_;
    std::vector<LedgerWriter> writers_;
};

class Ledger : public testing::Test {
  protected:
    fs::path folder() const { return temp_ / "ledger"; }
    LedgerReport exact_report() const {
        const LedgerReport report = check_ledger(folder());
        EXPECT_TRUE(report.is_exact()) << describe_ledger(report);
        return report;
    }
    TempDir temp_;
};

TEST_F(Ledger, ShowsEachSampleOncePerEpochAndCallsAnUnfinishedOneOpen) {
    Job job(folder(), 100);
    job.run(3, 30, 8);  // two epochs of four steps
    const LedgerReport report = exact_report();
    ASSERT_THAT(report.epochs, SizeIs(2));
    for (const LedgerEpoch& epoch : report.epochs) {
        EXPECT_EQ(epoch.seen, 100u);
        EXPECT_EQ(epoch.steps, 4u);
        EXPECT_FALSE(epoch.is_open);
    }
    EXPECT_THAT(report.notes, IsEmpty());
    EXPECT_THAT(describe_ledger(report), HasSubstr("every sample exactly once"));
    EXPECT_THAT(describe_ledger(report), HasSubstr(" samples, 1 incarnation, "));
    job.run(2, 30, 2);
    const LedgerReport unfinished = exact_report();
    ASSERT_THAT(unfinished.epochs, SizeIs(3));
    EXPECT_TRUE(unfinished.epochs[2].is_open);
    EXPECT_EQ(unfinished.epochs[2].seen, 60u);
    EXPECT_THAT(describe_ledger(unfinished), HasSubstr("every sample so far exactly once"));
    EXPECT_THAT(describe_ledger(unfinished), HasSubstr(" samples, 2 incarnations, "));
}

// Zeros that were never written take no room, and are read in pieces.
TEST_F(Ledger, BearsAFileOfATerabyte) {
    Job job(folder(), 100);
    job.run(1, 30, 4);
    std::filesystem::resize_file(job.file(0, job.incarnation()), std::uintmax_t{1} << 40);
    const LedgerReport report = exact_report();
    EXPECT_THAT(report.notes, SizeIs(1));
}

long peak_kib() {
    rusage use{};
    ::getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;
}

// A bit for each of them would take 2 GiB.
TEST_F(Ledger, TakesMemoryForTheSamplesItSawAlone) {
    {
        LedgerWriter writer(folder(),
                            {.samples = std::uint64_t{1} << 34, .data_digest = digest, .ranks = 1});
        const auto ids = std::make_shared<std::vector<std::uint64_t>>(
            std::vector<std::uint64_t>{0, 1, std::uint64_t{1} << 33});
        Batch batch;
        batch.next = {.consumed = 3};
        batch.samples_in_step = 3;
        batch.sample_ids = *ids;
        batch.lease = ids;
        writer.add(batch);
        writer.flush();
    }
    const long before_kib = peak_kib();
    const LedgerReport report = check_ledger(folder());
    ASSERT_THAT(report.epochs, SizeIs(1));
    EXPECT_EQ(report.epochs[0].seen, 3u);
    EXPECT_LT(peak_kib() - before_kib, 512 << 10) << "an eighth is the address sanitizer's";
}

TEST_F(Ledger, MissesNoSampleThatAnEpochDrops) {
    Job job(folder(), 100, ShortStep::drop);
    job.run(2, 30, 4);  // an epoch of three steps, and one more
    const LedgerReport report = exact_report();
    ASSERT_THAT(report.epochs, SizeIs(2));
    EXPECT_EQ(report.epochs[0].seen, 90u);
    EXPECT_FALSE(report.epochs[0].is_open);
    EXPECT_TRUE(report.epochs[1].is_open);
    EXPECT_EQ(report.dropped, 10u);
    EXPECT_THAT(describe_ledger(report), HasSubstr("every sample but those dropped exactly once"));
}

TEST_F(Ledger, MissesAStepBesideSamplesThatAnEpochDrops) {
    Job job(folder(), 100, ShortStep::drop);
    job.start(1, 30);
    job.step(1);
    job.next_step();
    job.step(2);
    job.save();
    const LedgerReport report = check_ledger(folder());
    EXPECT_EQ(report.epochs[0].missing, 30u);
    EXPECT_THAT(report.epochs[0].findings,
                ElementsAre("no step is recorded for positions 30 to 59"));
}

TEST_F(Ledger, LetsRestartsSupersedeWhatWasNotSaved) {
    Job job(folder(), 120);
    job.run(3, 10, 4);
    job.step(3);
    for (LedgerWriter& writer : job.writers()) writer.flush();  // written, but not saved
    job.start(2, 15);                                           // at 40, with another batch
    job.step(2);
    job.save();
    job.start(4, 10);  // at 70
    job.step(5);
    job.save();
    const LedgerReport report = exact_report();
    ASSERT_THAT(report.epochs, SizeIs(1));
    EXPECT_EQ(report.epochs[0].superseded, 30u);
    EXPECT_EQ(report.epochs[0].seen, 120u);
    EXPECT_FALSE(report.epochs[0].is_open);
    EXPECT_EQ(report.incarnations, 3u);
    EXPECT_EQ(report.files, 9u);
}

TEST_F(Ledger, ForgetsEpochsThatWereNotSaved) {
    Job job(folder(), 20);
    job.run(1, 10, 1);
    job.step(4);  // into the third epoch
    job.writers()[0].flush();
    job.run(1, 10, 1);
    const LedgerReport report = exact_report();
    ASSERT_THAT(report.epochs, SizeIs(3));
    EXPECT_EQ(report.epochs[0].seen, 20u);
    EXPECT_EQ(report.epochs[1].seen, 0u);
    EXPECT_EQ(report.epochs[1].superseded, 20u);
    EXPECT_TRUE(report.epochs[1].is_open);
}

TEST_F(Ledger, NamesSamplesThatAreMissingOrSeenTwice) {
    Job job(folder(), 20);
    job.start(1, 10);
    job.step(1);
    Batch wrong = job.next_step()[0];
    const std::uint64_t lost = wrong.sample_ids[3], again = wrong.sample_ids[4];
    std::vector<std::uint64_t> ids(wrong.sample_ids.begin(), wrong.sample_ids.end());
    ids[3] = again;
    wrong.sample_ids = ids;
    job.writers()[0].add(wrong);
    job.save();
    const LedgerReport report = check_ledger(folder());
    EXPECT_FALSE(report.is_exact());
    EXPECT_EQ(report.epochs[0].missing, 1u);
    EXPECT_EQ(report.epochs[0].duplicate, 1u);
    EXPECT_THAT(report.epochs[0].findings,
                ElementsAre("seen more than once: " + std::to_string(again),
                            "never seen: " + std::to_string(lost)));
    EXPECT_THAT(describe_ledger(report), HasSubstr("NOT exact"));
}

TEST_F(Ledger, NoticesARankWhoseLedgerIsGone) {
    Job job(folder(), 100);
    job.run(4, 20, 5);
    job.step(1);
    job.save();
    fs::remove(job.file(2, 1));
    const LedgerReport report = check_ledger(folder());
    EXPECT_FALSE(report.is_exact());
    EXPECT_EQ(report.epochs[0].missing, 25u);
    EXPECT_THAT(report.epochs[0].findings,
                Contains("the step at position 20 has 20 samples; 3 ranks recorded 15"));
    EXPECT_THAT(report.findings, ElementsAre("incarnation 1 had 4 ranks; 3 left a ledger"));
}

TEST_F(Ledger, NoticesStepsThatWereDueAtARestart) {
    Job job(folder(), 100);
    job.run(1, 10, 3);
    job.step(2);
    job.save();
    fs::resize_file(job.file(0, 1), fs::file_size(job.file(0, 1)) - 5);  // saved, then lost
    EXPECT_TRUE(check_ledger(folder()).is_exact());  // nobody knows that more was there
    job.start(1, 10);
    const LedgerReport report = check_ledger(folder());
    EXPECT_FALSE(report.is_exact());
    EXPECT_EQ(report.epochs[0].missing, 10u);
    EXPECT_THAT(report.epochs[0].findings, Contains("no step is recorded for positions 40 to 49"));
}

TEST_F(Ledger, CountsMaskedRows) {
    Job job(folder(), 20);
    job.start(1, 20);
    Batch batch = job.next_step()[0];
    std::vector<std::uint8_t> valid(20, 1);
    valid[3] = valid[5] = 0;
    batch.valid = valid;
    job.writers()[0].add(batch);
    job.save();
    const LedgerReport report = exact_report();
    EXPECT_EQ(report.epochs[0].masked, 2u);
}

TEST_F(Ledger, SaysWhereThereIsNone) {
    EXPECT_EQ(caught_code([&] { check_ledger(folder()); }), "E201");
    EXPECT_THAT(caught_text([&] { check_ledger(folder()); }),
                HasSubstr("give the directory of a run that was trained with --ledger"));
    fs::create_directories(folder());
    EXPECT_EQ(caught_code([&] { check_ledger(folder()); }), "E228");
    temp_.file("ledger/rank-00000.1.ledger", std::string(200, 'x'));
    EXPECT_EQ(caught_code([&] { check_ledger(folder()); }), "E228");
}

TEST_F(Ledger, IsNotWrittenOverAndTellsWhatBelongsToAnotherRun) {
    const LedgerHead head{10, digest, 0, 1, 1, {}};
    const LedgerWriter here(folder(), head);
    EXPECT_NE(caught_code([&] { LedgerWriter(folder(), head); }), "");
    const LedgerWriter other(folder(), {11, digest, 0, 1, 2, {}});
    fs::copy_file(folder() / "rank-00000.1.ledger", folder() / "rank-00007.1.ledger");
    EXPECT_THAT(check_ledger(folder()).findings,
                ElementsAre("'rank-00000.2.ledger' is about another data set",
                            "'rank-00007.1.ledger' is the ledger of rank 0 of incarnation 1"));
}

// Kills at any moment, with anything unsaved lost or torn, on changing numbers of ranks, batches
// and saves: what the final model saw is exact, and nothing else is claimed.
RC_GTEST_FIXTURE_PROP(Ledger, IsExactHoweverOftenAJobIsKilled, ()) {
    fs::remove_all(folder());
    const auto samples = *rc::gen::inRange<std::uint64_t>(1, 80);
    Job job(folder(), samples);
    const int incarnations = *rc::gen::inRange(1, 5);
    for (int i = 0; i < incarnations; ++i) {
        const int ranks = *rc::gen::inRange(1, 5);
        job.start(ranks, *rc::gen::inRange(1, 40));
        std::vector<std::uintmax_t> saved;
        const auto sizes = [&] {
            std::vector<std::uintmax_t> bytes;
            for (int rank = 0; rank < ranks; ++rank)
                bytes.push_back(fs::file_size(job.file(rank, job.incarnation())));
            return bytes;
        };
        saved = sizes();
        for (int saves = *rc::gen::inRange(0, 3); saves > 0; --saves) {
            job.step(*rc::gen::inRange(0, 4));
            job.save();
            saved = sizes();
        }
        job.step(*rc::gen::inRange(0, 4));
        for (LedgerWriter& writer : job.writers()) writer.flush();
        const auto written = sizes();
        job.writers().clear();
        for (int rank = 0; rank < ranks; ++rank) {
            const auto at = static_cast<std::size_t>(rank);
            fs::resize_file(job.file(rank, job.incarnation()),
                            *rc::gen::inRange(saved[at], written[at] + 1));
        }
    }
    const LedgerReport report = check_ledger(folder());
    if (!report.is_exact()) RC_FAIL(describe_ledger(report));
    std::uint64_t finished = 0;
    for (const LedgerEpoch& epoch : report.epochs)
        finished += !epoch.is_open && epoch.seen == samples;
    RC_ASSERT(finished >= job.saved().epoch);
}

// One damaged byte anywhere in what counts is found, or lies in a step that does not count.
RC_GTEST_FIXTURE_PROP(Ledger, NoticesDamage, ()) {
    fs::remove_all(folder());
    Job job(folder(), 60);
    job.run(2, 10, 6);
    job.start(2, 10);  // all of the epoch is due
    const fs::path path = job.file(*rc::gen::inRange(0, 2), 1);
    std::string bytes = content_of(path);
    const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << *rc::gen::inRange(0, 8));
    std::ofstream(path, std::ios::binary) << bytes;
    RC_ASSERT(!check_ledger(folder()).is_exact());
}

RC_GTEST_PROP(LedgerRecord, IsReadAsWritten, ()) {
    const StepFacts step{
        {*rc::gen::arbitrary<std::uint64_t>(), *rc::gen::arbitrary<std::uint64_t>()},
        1'000'000,
        *rc::gen::inRange<std::uint64_t>(0, 10)};
    const auto ids = *rc::gen::oneOf(
        rc::gen::arbitrary<std::vector<std::uint64_t>>(),
        rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 4)),
        rc::gen::map(rc::gen::inRange<std::size_t>(0, 1000), [](std::size_t count) {
            std::vector<std::uint64_t> run(count);
            std::iota(run.begin(), run.end(), ~std::uint64_t{0} - 500);  // and round the corner
            return run;
        }));
    std::vector<std::byte> bytes;
    std::uint64_t chain = 5, read_chain = 5;
    append_record(bytes, step, ids, chain);
    const FoundRecord found = read_record(bytes, read_chain);
    RC_ASSERT(found.state == FoundRecord::State::whole);
    RC_ASSERT(found.bytes == bytes.size());
    RC_ASSERT(found.step == step);
    RC_ASSERT(found.ids == ids);
    RC_ASSERT(read_chain == chain);
    const auto cut = *rc::gen::inRange<std::size_t>(0, bytes.size());
    read_chain = 5;
    RC_ASSERT(read_record(std::span(bytes).first(cut), read_chain).state ==
              FoundRecord::State::torn);
    RC_ASSERT(read_chain == 5u);
}

RC_GTEST_PROP(LedgerRecord, SurvivesAnyBytes, ()) {
    const auto bytes = *rc::gen::arbitrary<std::vector<std::uint8_t>>();
    std::uint64_t chain = 0;
    RC_ASSERT(read_record(std::as_bytes(std::span(bytes)), chain).state !=
              FoundRecord::State::whole);
    // The same as the body of a record that is otherwise sound: past the hash.
    std::vector<std::byte> framed;
    append_body(framed, std::as_bytes(std::span(bytes)), chain);
    chain = 0;
    const FoundRecord found = read_record(framed, chain);
    RC_ASSERT(found.ids.size() <= bytes.size() || found.step.samples >= found.ids.size());
}

TEST(LedgerRecord, IsSmall) {
    const EpochOrder order(row_blocks(1'281'167, 256), {OrderKind::lanes, 1, 64, 4}, 0);
    std::vector<std::uint64_t> shuffled, sequential;
    for (const LaneRange& part : leaf_slice(0, 2048, order.lanes(), 0, 1, 1))
        for (std::uint64_t p = part.begin; p < part.end; ++p)
            shuffled.push_back(order.samples_of(order.window_at(part.lane, p))[p]);
    for (std::uint64_t i = 0; i < 2048; ++i) sequential.push_back(5000 + i);
    std::vector<std::byte> bytes;
    std::uint64_t chain = 0;
    append_record(bytes, {{0, 0}, 2048, 0}, shuffled, chain);
    EXPECT_LT(bytes.size(), 4 * 2048u);
    bytes.clear();
    append_record(bytes, {{0, 0}, 2048, 0}, sequential, chain);
    EXPECT_LT(bytes.size(), 40u);
}

}  // namespace
}  // namespace lockstep
