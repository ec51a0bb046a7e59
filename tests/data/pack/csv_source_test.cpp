// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/manifest.hpp"

#include "pack/csv_table.hpp"
#include "rows.hpp"
#include "support/unit.hpp"

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using test::error_of;
using test::label_of;
using test::values_of;

class CsvSource : public InFolder {
  protected:
    std::unique_ptr<RowSource> open(const std::string& content, const CsvOptions& csv = {}) {
        return open_csv(folder_.file("x.csv", content), csv);
    }
    Error error(const std::string& content, const CsvOptions& csv = {}) {
        return error_of([&] { open(content, csv); });
    }

    /// As `predict` opens a table.
    static CsvOptions like(const Field& field) {
        return {.decimal = field.table.decimal,
                .type = field.type,
                .missing = field.table.missing == Missing::mean ? Missing::mean : Missing::error,
                .like = field};
    }
};

TEST_F(CsvSource, ReadsFeaturesAndLabelsAndTargetsInDoublePrecision) {
    const auto source = open("a,b,class\n1,2.5,0\n-3e2, 4 ,7\n", {.label = "class"});
    ASSERT_EQ(source->samples(), 2u);
    EXPECT_THAT(source->fields()[0].shape, ElementsAre(2));
    EXPECT_THAT(values_of<float>(*source, 0, 1), ElementsAre(-300, 4));
    EXPECT_EQ(label_of(*source, 1, 1), 7);
    EXPECT_TRUE(source->fields()[1].class_names.empty());
    const auto doubles =
        open("0.1;5\n0.2;6\n", {.targets = {"1"}, .separator = ';', .type = ElementType::f64});
    EXPECT_EQ(doubles->fields()[1].name, "targets");
    EXPECT_THAT(values_of<double>(*doubles, 0, 1), ElementsAre(6));
    EXPECT_THAT(values_of<double>(*doubles, 1, 1), ElementsAre(0.2));
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

TEST_F(CsvSource, ReadsOtherEncodingsAlsoInParts) {
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
    // Parts of 1 MiB end within characters of three bytes.
    std::string euros, expected;
    for (int i = 0; i < 400'000; ++i) {
        expected += "\u20ac";
        euros += "\xa4";  // the sign of the euro in ISO-8859-15
    }
    const auto label = [&](const std::string& text, const std::string& encoding) {
        return open("1," + text + "\n", {.label = "2", .encoding = encoding})
            ->fields()[1]
            .class_names.at(0);
    };
    EXPECT_EQ(label(euros, "iso-8859-15"), expected);
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

TEST_F(CsvSource, GuessesTheHeaderUnlessToldAndNamesTheColumnsThereAre) {
    EXPECT_EQ(open("1,2\n3,4\n")->samples(), 2u);
    EXPECT_EQ(open("a,b\n3,4\n")->samples(), 1u);
    EXPECT_EQ(open("1,2\n3,4\n", {.header = Header::yes})->samples(), 1u);
    EXPECT_EQ(error("a,b\n3,4\n", {.header = Header::no}).code(), "E239");
    EXPECT_THAT(error("a,b\n1,2\n", {.label = "c"}).why(), HasSubstr("2 columns are a, b"));
    EXPECT_EQ(error("a,b\n1,2\n", {.label = "c"}).fix(),
              "give a column's name, or its number from 1");
    EXPECT_EQ(error("1,2\n", {.label = "3"}).code(), "E106");
    EXPECT_EQ(error("1,2\n", {.targets = {"0"}}).code(), "E106");
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

TEST_F(CsvSource, SaysHowATableOfSpacesOrWithCommentsIsRead) {
    const std::string file = (folder_ / "x.csv").string();
    const std::string commas = "sed -e 's/^ *//; s/ *$//; s/  */,/g' " + file + " >NAME.csv";
    const std::string spaces = "a b c\n1 2 3\n";
    EXPECT_THAT(error(spaces, {.label = "c"}).fix(), EndsWith(commas));
    EXPECT_THAT(error("1 2 3\n", {.label = "1"}).fix(), EndsWith(commas));
    EXPECT_THAT(error(spaces).fix(), EndsWith(commas));
    EXPECT_THAT(error("home town\nNew York\n").fix(), HasSubstr("--categorical"));
    for (const char* text : {"# made by x\na,b\n1,2\n", "# 3\n# 2\na,b\n"})
        EXPECT_THAT(error(text, {.label = "b"}).fix(),
                    EndsWith("grep -v '^#' " + file + " >NAME.csv"));
    EXPECT_THAT(error("# made by x\n1,2\n").fix(), EndsWith("grep -v '^#' " + file + " >NAME.csv"));
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

// Columns that are dropped, texts that become numbers, cells that are filled, and tables of new
// data that follow the training data's.

using CsvTable = CsvSource;

TEST_F(CsvTable, LeavesColumnsOutAndTakesSeveralTargets) {
    const CsvOptions csv{.targets = {"y2", "y1"}, .drop = {"id", "4"}};
    const auto source = open("id,a,y1,note,b,y2\nn1,1,2,text,3,4\nn2,5,6,,7,8\n", csv);
    EXPECT_THAT(source->fields()[0].columns, ElementsAre("a", "b"));
    EXPECT_EQ(source->fields()[0].table, TableForm()) << "names are enough";
    EXPECT_THAT(values_of<float>(*source, 0, 1), ElementsAre(5, 7));
    EXPECT_EQ(source->fields()[1].name, "targets");
    EXPECT_THAT(source->fields()[1].shape, ElementsAre(2));
    EXPECT_THAT(source->fields()[1].columns, ElementsAre("y2", "y1"));
    EXPECT_THAT(values_of<float>(*source, 1, 0), ElementsAre(4, 2));
}

TEST_F(CsvTable, GivesAColumnOneRole) {
    const auto what = [&](const CsvOptions& csv) {
        const Error found = error("a,b,c\n1,2,3\n", csv);
        EXPECT_EQ(found.code(), "E106");
        return found.what() + (" " + found.why());
    };
    EXPECT_THAT(what({.label = "c", .drop = {"3"}}),
                HasSubstr("column 3 ('c') of '" + (folder_ / "x.csv").string()));
    EXPECT_THAT(what({.targets = {"a", "a"}}), HasSubstr("--target and --target"));
    EXPECT_THAT(what({.drop = {"a"}, .categorical = {"a"}}), HasSubstr("--drop and --categorical"));
    EXPECT_THAT(what({.categorical = {"d"}}), HasSubstr("has no column 'd'"));
    EXPECT_EQ(error("a,b\n1,2\n", {.label = "a", .drop = {"b"}}).code(), "E214");
}

TEST_F(CsvTable, MakesANumberOfEachTextOfAColumn) {
    const auto source = open("kind,mass,place\nred,1,x\n blue ,2,x\nred,3,x\ngreen,4,x\n",
                             {.categorical = {"kind", "place"}});
    const Field& field = source->fields()[0];
    EXPECT_THAT(field.columns,
                ElementsAre("kind=blue", "kind=green", "kind=red", "mass", "place=x"));
    EXPECT_THAT(field.table.categories,
                ElementsAre(ElementsAre("blue", "green", "red"), IsEmpty(), ElementsAre("x")));
    EXPECT_THAT(field.table.columns, ElementsAre("kind", "mass", "place"));
    EXPECT_THAT(values_of<float>(*source, 0, 0), ElementsAre(0, 0, 1, 1, 1));
    EXPECT_THAT(values_of<float>(*source, 0, 1), ElementsAre(1, 0, 0, 2, 1));
    EXPECT_THAT(values_of<float>(*source, 0, 3), ElementsAre(0, 1, 0, 4, 1));
}

TEST_F(CsvTable, FillsCellsWithTheMean) {
    const std::string table = "a,kind,y\n1,u,5\nNA,v,6\n4, ,7\n?,v,8\n";
    const auto source = open(table,
                             {.targets = {"y"},
                              .categorical = {"kind"},
                              .type = ElementType::f64,
                              .missing = Missing::mean});
    EXPECT_THAT(source->fields()[0].table.fills, ElementsAre(2.5, 1.0 / 3, 2.0 / 3));
    EXPECT_THAT(values_of<double>(*source, 0, 1), ElementsAre(2.5, 0, 1));
    EXPECT_THAT(values_of<double>(*source, 0, 2), ElementsAre(4, 1.0 / 3, 2.0 / 3));
    const Error target = error("a,y\n1,\n", {.targets = {"y"}, .missing = Missing::mean});
    EXPECT_EQ(target.code(), "E239") << "that would be made up";
    EXPECT_THAT(target.fix(), StartsWith("give --missing drop"));
    EXPECT_THAT(error("a,b\n1,\n2,nan\n", {.missing = Missing::mean}).why(),
                HasSubstr("column 2 ('b') has no value at all"));
}

TEST_F(CsvTable, LeavesOutRecordsWithoutAValue) {
    const auto source =
        open("a,kind\n1,u\n,v\n3,\n4,u\n5,v\n", {.label = "kind", .missing = Missing::drop});
    ASSERT_EQ(source->samples(), 3u);
    EXPECT_THAT(values_of<float>(*source, 0, 1), ElementsAre(4));
    EXPECT_EQ(label_of(*source, 1, 2), 1);
    EXPECT_THAT(error("a,b\n1,\n,2\n", {.missing = Missing::drop}).why(),
                HasSubstr("each of its records lacks a value"));
    const Error empty = error("a,b,y\n1,,3\n2,NA,4\n", {.label = "y", .missing = Missing::drop});
    EXPECT_EQ(empty.why(), "column 2 ('b') has no value at all");
    EXPECT_EQ(empty.fix(), "leave it out: --drop 2");
}

TEST_F(CsvTable, TakesALineWithANumberForAHeaderIfAColumnIsNamed) {
    const std::string years = "2020,2021,2022\n1,2,3\n4,5,6\n";
    EXPECT_EQ(open(years, {.targets = {"2022"}})->samples(), 2u);
    EXPECT_EQ(open(years, {.targets = {"3"}})->samples(), 3u) << "a column's number";
    EXPECT_EQ(open("a,2020,y\n1,2,3\n", {.label = "y"})->samples(), 1u);
    EXPECT_EQ(error("a,2020,z\n1,2,3\n", {.label = "y"}).code(), "E106");
    const auto trained = open(years, {.targets = {"2022"}});
    EXPECT_EQ(open("2021,2020\n2,1\n", like(trained->fields()[0]))->samples(), 1u);
}

TEST_F(CsvTable, KnowsSignsThatAreNotThoseOfTheFile) {
    const CsvOptions semicolon{.separator = ';'};
    for (const char* number : {"1.234,5", "-12.345.678", "1 234", "1_234.5", "1,234,567"})
        EXPECT_THAT(error(fmt::format("a;b\n{};2\n", number), semicolon).fix(),
                    HasSubstr("leave out the signs of thousands, into NAME.csv: "))
            << number;
    // "1,234" is either: to take it for 1.234 without a word would divide it by 1000.
    for (const char* number : {"1,234", "-12,000"})
        EXPECT_THAT(error(fmt::format("a;b\n{};2\n", number), semicolon).fix(),
                    AllOf(HasSubstr(fmt::format("if '{}' has a fraction, give --decimal comma; "
                                                "else leave out the signs of thousands, into ",
                                                number)),
                          HasSubstr("re.sub")))
            << number;
    EXPECT_EQ(error("a;b\n0,234;2\n", semicolon).fix(), "give --decimal comma");
    for (const char* text : {"12.05.2019", "1.2.3", "1,23,456", "1234,567,8", "a.123"})
        EXPECT_THAT(error(fmt::format("a;b\n{};2\n", text), semicolon).fix(),
                    HasSubstr("--categorical a"))
            << text;
    EXPECT_EQ(error("len, cm;b\n1;2\n").fix(), "give --separator semicolon");
    EXPECT_EQ(error("len, cm;b;y\n1;2;3\n", {.label = "y"}).fix(), "give --separator semicolon");
    EXPECT_THAT(error("c,c=x\nx,1\nz,2\n", {.categorical = {"c"}}).why(),
                HasSubstr("two features are called 'c=x'"));
}

TEST_F(CsvTable, ReadsDecimalCommas) {
    const CsvOptions csv{.separator = ';', .decimal = DecimalSign::comma, .type = ElementType::f64};
    EXPECT_THAT(values_of<double>(*open("0,5;-1e3\n1;+2,25\n", csv), 0, 1), ElementsAre(1, 2.25));
    EXPECT_EQ(open("0,5;1\n2;3\n", csv)->samples(), 2u) << "that is no header";
    const Error point = error("1.5;2\n", csv);
    EXPECT_EQ(point.code(), "E239");
    EXPECT_EQ(point.fix(), "give --decimal point");
    EXPECT_EQ(error("a;b\n1,5;2\n", {.separator = ';'}).fix(), "give --decimal comma");
}

TEST_F(CsvTable, FollowsTheTrainingDataAlsoWithoutNames) {
    const auto trained =
        open("id,mass,kind,y\n1,2,red,0\n2,4,blue,1\n3,,red,1\n",
             {.label = "y", .drop = {"id"}, .categorical = {"kind"}, .missing = Missing::mean});
    const Field& field = trained->fields()[0];
    const auto rows = open("kind,more,mass\nred,x,\nblue,y,7\n", like(field));
    EXPECT_EQ(rows->fields()[0].columns, field.columns);
    EXPECT_EQ(rows->fields()[0].table, field.table);
    EXPECT_THAT(values_of<float>(*rows, 0, 0), ElementsAre(3, 0, 1));
    EXPECT_THAT(values_of<float>(*rows, 0, 1), ElementsAre(7, 1, 0));
    const Error unknown = error("mass,kind\n1,red\n2,green\n", like(field));
    EXPECT_EQ(unknown.code(), "E239");
    EXPECT_THAT(unknown.what(), HasSubstr("line 3, column 2 ('kind'): 'green' is not a category"));
    EXPECT_EQ(unknown.why(), "these are blue, red");
    EXPECT_THAT(error("mass\n1\n", like(field)).what(), HasSubstr("has no column 'kind'"));
    const auto nameless =
        open("9,1,red,0\n9,2,blue,1\n", {.label = "4", .drop = {"1"}, .categorical = {"3"}});
    const Field& unnamed = nameless->fields()[0];
    EXPECT_THAT(unnamed.columns, ElementsAre("2", "3=blue", "3=red"));
    for (const char* table : {"5,red\n", "9,5,red,1\n"})
        EXPECT_THAT(values_of<float>(*open(table, like(unnamed)), 0, 0), ElementsAre(5, 0, 1))
            << table;
    const Error guess = error("5,red,1\n", like(unnamed));
    EXPECT_THAT(guess.why(), HasSubstr("it has 3 columns, and the model takes 2"));
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
    const TempDir folder;
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
