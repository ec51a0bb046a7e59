// SPDX-License-Identifier: Apache-2.0
#include "pack/csv_reader.hpp"
#include "rows.hpp"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using test::error_of;
using test::label_of;
using test::values_of;
using testing::ElementsAre;
using testing::HasSubstr;

class CsvSource : public testing::Test {
  protected:
    std::unique_ptr<RowSource> open(const std::string& content, const CsvOptions& csv = {}) {
        return open_csv(folder_.file("x.csv", content), csv, {folder_.path(), {}});
    }
    Error error(const std::string& content, const CsvOptions& csv = {}) {
        return error_of([&] { open(content, csv); });
    }

    test::TempDir folder_;
};

TEST_F(CsvSource, ReadsFeaturesAndLabels) {
    const auto source = open("a,b,class\n1,2.5,0\n-3e2, 4 ,7\n", {.label = "class"});
    ASSERT_EQ(source->samples(), 2u);
    EXPECT_THAT(source->fields()[0].shape, ElementsAre(2));
    EXPECT_THAT(values_of<float>(*source, 0, 1), ElementsAre(-300, 4));
    EXPECT_EQ(label_of(*source, 1, 1), 7);
    EXPECT_TRUE(source->fields()[1].class_names.empty());
}

TEST_F(CsvSource, KeepsTheNamesOfColumns) {
    const auto source = open("mass, kind ,\"a, b\"\n1,2,3\n", {.label = "kind"});
    EXPECT_THAT(source->fields()[0].columns, ElementsAre("mass", "a, b"));
    EXPECT_THAT(source->fields()[1].columns, ElementsAre("kind"));
    EXPECT_TRUE(open("1,2\n3,4\n")->fields()[0].columns.empty());
    const Error twice = error("mass,kind,mass\n1,2,3\n", {.label = "kind"});
    EXPECT_EQ(twice.code(), "E214");
    EXPECT_THAT(twice.what(), HasSubstr("two columns with the same name, 'mass': 1 and 3"));
    EXPECT_EQ(error("1,1\n2,2\n").code(), "none") << "that is no header";
    const std::string wide(most_column_bytes, 'w');
    EXPECT_TRUE(open(wide + ",x\n1,2\n")->fields()[0].columns.empty()) << "too long to be kept";
}

TEST_F(CsvSource, NumbersNamedClassesAsTheySort) {
    const auto source =
        open("x,species\n1,virginica\n2,setosa\n3,virginica\n4,\"a, b\"\n", {.label = "species"});
    EXPECT_THAT(source->fields()[1].class_names, ElementsAre("a, b", "setosa", "virginica"));
    EXPECT_EQ(label_of(*source, 1, 0), 2);
    EXPECT_EQ(label_of(*source, 1, 1), 1);
    EXPECT_EQ(label_of(*source, 1, 2), 2);
    EXPECT_EQ(label_of(*source, 1, 3), 0);
}

TEST_F(CsvSource, ReadsOtherEncodings) {
    const auto names = [&](const std::string& content, const std::string& encoding) {
        const auto source = open(content, {.label = "2", .encoding = encoding});
        return source->fields()[1].class_names;
    };
    EXPECT_THAT(names("1,caf\xe9\n", ""), ElementsAre("caf\xe9")) << "as it is";
    EXPECT_THAT(names("1,caf\xe9\n", "latin1"), ElementsAre("caf\u00e9"));
    EXPECT_THAT(names("1,\x80\n", "cp1252"), ElementsAre("\u20ac"));
    EXPECT_THAT(names("\xef\xbb\xbf"
                      "1,caf\u00e9\n",
                      "utf-8"),
                ElementsAre("caf\u00e9"));
    std::string wide = "\xff\xfe";
    for (const char letter : std::string("1,a\n")) wide += std::string{letter, '\0'};
    EXPECT_THAT(names(wide, "utf-16"), ElementsAre("a"));
    EXPECT_THAT(error(wide).why(), HasSubstr("--encoding utf-16"));
}

TEST_F(CsvSource, ReadsOtherEncodingsInParts) {
    // Parts of 1 MiB end within characters of three bytes.
    std::string wide, expected;
    for (int i = 0; i < 400'000; ++i) {
        expected += "\u20ac";
        wide += "\xa4";  // the sign of the euro in ISO-8859-15
    }
    const auto label = [&](const std::string& text, const std::string& encoding) {
        return open("1," + text + "\n", {.label = "2", .encoding = encoding})
            ->fields()[1]
            .class_names.at(0);
    };
    EXPECT_EQ(label(wide, "iso-8859-15"), expected);
    EXPECT_EQ(label(expected, "utf-8"), expected);
}

TEST_F(CsvSource, NamesBytesThatAreNotOfTheEncoding) {
    const Error wrong = error("1,2\n3,caf\xe9 au lait\n", {.encoding = "utf-8"});
    EXPECT_EQ(wrong.code(), "E214");
    EXPECT_THAT(wrong.why(), HasSubstr("bytes that are no utf-8"));
    EXPECT_THAT(error("1,2\n3,\xc3", {.encoding = "utf-8"}).why(),
                HasSubstr("end within a character"));
    const Error unknown = error("1,2\n", {.encoding = "klingon"});
    EXPECT_EQ(unknown.code(), "E103");
    EXPECT_THAT(unknown.fix(), HasSubstr("iconv -l"));
}

TEST_F(CsvSource, ReadsTargetsInDoublePrecision) {
    const auto source =
        open("0.1;5\n0.2;6\n", {.targets = {"1"}, .separator = ';', .type = ElementType::f64});
    EXPECT_EQ(source->fields()[1].name, "targets");
    EXPECT_THAT(values_of<double>(*source, 0, 1), ElementsAre(6));
    EXPECT_THAT(values_of<double>(*source, 1, 1), ElementsAre(0.2));
}

TEST_F(CsvSource, GuessesTheHeaderUnlessTold) {
    EXPECT_EQ(open("1,2\n3,4\n")->samples(), 2u);
    EXPECT_EQ(open("a,b\n3,4\n")->samples(), 1u);
    EXPECT_EQ(open("1,2\n3,4\n", {.header = Header::yes})->samples(), 1u);
    EXPECT_EQ(error("a,b\n3,4\n", {.header = Header::no}).code(), "E239");
}

TEST_F(CsvSource, ReadsQuotesLineEndsAndMarks) {
    const auto source =
        open("\xef\xbb\xbf\"a\",\"b \"\"x\"\"\nnext\",c\r\n\r\n\"1\",2,y\r\n3,4,\"line\r\nbreak\"",
             {.label = "c"});
    ASSERT_EQ(source->samples(), 2u);
    EXPECT_THAT(values_of<float>(*source, 0, 0), ElementsAre(1, 2));
    EXPECT_THAT(source->fields()[1].class_names, ElementsAre("line\r\nbreak", "y"));
}

TEST_F(CsvSource, NamesLineAndColumnOfWhatIsNoNumber) {
    const auto what = [&](const std::string& content, const CsvOptions& csv = {}) {
        const Error found = error(content, csv);
        EXPECT_EQ(found.code(), "E239") << content;
        return std::string(found.what());
    };
    EXPECT_THAT(what("a,b\n1,2\n\"3\n\n\",4\n"), HasSubstr("line 3, column 1 ('a')"));
    EXPECT_THAT(what("a,b\n\"cat\ndog\",2\ncat,x4\n", {.label = "a"}),
                HasSubstr("line 4, column 2"));
    EXPECT_THAT(what("a,b\n1,2\n3,x4\n"),
                HasSubstr("line 3, column 2 ('b'): 'x4' is not a finite"));
    EXPECT_THAT(what("1,2\n3,\n"), HasSubstr("line 2, column 2: '' is not"));
    for (const char* bad : {"nan", "inf", "1e999", "0x10", "1 2", "--1", "+-1", "1,5e"})
        EXPECT_THAT(what(std::string("1,2,3\n4,5,\"") + bad + "\"\n"), HasSubstr("line 2")) << bad;
    EXPECT_THAT(what("1,2\n1,2.5\n", {.label = "2"}), HasSubstr("'2.5' is not a whole number"));
    EXPECT_THAT(what("1,2\n1,cat\n", {.label = "2"}), HasSubstr("as the first label is"));
    EXPECT_THAT(what("1,cat\n1,\n", {.label = "2"}), HasSubstr("is not a name"));
}

TEST_F(CsvSource, RefusesRaggedAndBrokenFiles) {
    const auto why = [&](const std::string& content) {
        const Error found = error(content);
        EXPECT_EQ(found.code(), "E214") << content;
        return found.why();
    };
    EXPECT_THAT(why("1,2\n3,4\n5\n"), HasSubstr("line 3 has 1 cells; the first has 2"));
    EXPECT_THAT(why("1,2\n3,4,5\n"), HasSubstr("line 2 has 3 cells"));
    EXPECT_THAT(why("1,2\n3,\"4\n5,6\n"), HasSubstr("line 2: a quote opens and never closes"));
    EXPECT_THAT(why("1,\"2\"x\n"), HasSubstr("line 1: text follows a closing quote"));
    EXPECT_THAT(why(std::string("1,2\n3,\0\n", 8)), HasSubstr("line 2: a zero byte"));
    EXPECT_THAT(why(""), HasSubstr("no records"));
    EXPECT_THAT(why("\n\r\n"), HasSubstr("no records"));
    EXPECT_THAT(why("a,b\n"), HasSubstr("a header and no records"));
    EXPECT_EQ(error("1\n", {.label = "1"}).code(), "E214");
    EXPECT_THAT(why(std::string(17u << 20, '1')), HasSubstr("more than 16 MiB"));
}

TEST_F(CsvSource, NamesTheColumnsThereAre) {
    EXPECT_THAT(error("a,b\n1,2\n", {.label = "c"}).why(), HasSubstr("2 columns are a, b"));
    EXPECT_EQ(error("1,2\n", {.label = "3"}).code(), "E106");
    EXPECT_EQ(error("1,2\n", {.targets = {"0"}}).code(), "E106");
}

TEST_F(CsvSource, ReadsBeyondOneBuffer) {
    std::string text = "x,y\n";
    for (int i = 0; i < 200'000; ++i)
        text += std::to_string(i) + "," + std::to_string(i % 7) + "\n";
    ASSERT_GT(text.size(), 1u << 20);
    const auto source = open(text, {.label = "y"});
    ASSERT_EQ(source->samples(), 200'000u);
    for (std::uint64_t i = 0; i < 200'000; i += 997) {
        EXPECT_THAT(values_of<float>(*source, 0, i), ElementsAre(static_cast<float>(i)));
        EXPECT_EQ(label_of(*source, 1, i), static_cast<std::int64_t>(i % 7));
    }
}

// Every table of texts comes back from what RFC 4180 makes of it.
RC_GTEST_PROP(CsvProperty, AnyTableComesBackAsItWas, ()) {
    const auto sign = rc::gen::element('a', '"', ',', '\n', '\r', ' ', '1');
    const auto columns = *rc::gen::inRange<std::size_t>(2, 5);
    const auto table = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::vector<std::string>>>(
        rc::gen::container<std::vector<std::string>>(columns,
                                                     rc::gen::container<std::string>(sign))));
    std::string text;
    for (const auto& record : table) {
        for (std::size_t c = 0; c < record.size(); ++c) {
            text += c > 0 ? ",\"" : "\"";
            for (const char letter : record[c])
                text += letter == '"' ? "\"\"" : std::string{letter};
            text += '"';
        }
        text += *rc::gen::element("\n", "\r\n");
    }
    const test::TempDir folder;
    const InputFile file(folder.file("x", text));
    CsvReader reader(file, ',');
    std::vector<std::string> cells;
    for (const auto& record : table) {
        RC_ASSERT(reader.next(cells));
        RC_ASSERT(cells == record);
    }
    RC_ASSERT(!reader.next(cells));
}

}  // namespace
}  // namespace lockstep
