// SPDX-License-Identifier: Apache-2.0
#include "program/program_file.hpp"

#include "support/made_up_program.hpp"
#include "support/unit.hpp"

#include <functional>
#include <set>

namespace lockstep {
namespace {

using test::ArchiveEntries;
using test::MadeUpProgram;

class ProgramFileTest : public InFolder {
  protected:
    std::filesystem::path write(const std::string& bytes) const {
        std::filesystem::remove(folder_ / "net.pt2");  // ext4 flushes what is written over
        return folder_.file("net.pt2", bytes);
    }
    std::filesystem::path write(const MadeUpProgram& made) const {
        return write(test::zip_of(made.entries()));
    }
    std::string refusal(const MadeUpProgram& made) const {
        return caught_text([&] { read_program(write(made)); });
    }
};

TEST_F(ProgramFileTest, SaysWhatAnArchiveHolds) {
    const ProgramFile file = read_program(write(test::made_up_classifier(6, 3)));
    ASSERT_EQ(file.inputs.size(), 1U);
    EXPECT_EQ(file.inputs[0].name, "x");
    EXPECT_EQ(shape_text(file.inputs[0]), "f32 [batch, 6]");
    EXPECT_EQ(file.inputs[0].shape[0].least, 0);
    EXPECT_EQ(file.inputs[0].shape[0].most, 4096);
    EXPECT_EQ(file.outputs[0].shape, "f32 [batch, 3]");
    EXPECT_EQ(file.count_of(ProgramRole::parameter, true), 6 + 6 + 18);
    EXPECT_EQ(file.count_of(ProgramRole::parameter, false), 3);
    EXPECT_EQ(file.count_of(ProgramRole::buffer, false), 6 + 6 + 1);
    EXPECT_EQ(file.torch_version, "2.11.0");
    EXPECT_EQ(source_line(file.nodes[0]), "net.py, line 9: y = work(x)");
}

// The keys of a dict, as torch.utils._pytree writes them down.
TEST_F(ProgramFileTest, TakesTheLossFirst) {
    MadeUpProgram made = test::made_up_classifier(6, 3);
    made.output("norm", {6});
    const auto names = [&] {
        std::vector<std::string> found;
        for (const ProgramOutput& one : read_program(write(made)).outputs)
            found.push_back(one.name + " " + one.value);
        return found;
    };
    EXPECT_THAT(names(), ElementsAre("0 mul", "1 norm"));
    made.name_outputs({"answer", "loss"});
    EXPECT_THAT(names(), ElementsAre("answer mul", "loss norm"));
}

TEST_F(ProgramFileTest, NamesOfOneTensorAreOne) {
    MadeUpProgram made = test::made_up_classifier(6, 3);
    made.parameter("head", {3, 6}, std::vector<float>(18));
    made.weights()["head"] = made.weights()["fc.weight"];
    const ProgramFile file = read_program(write(made));
    const auto same = [&](const std::string& name) {
        return std::ranges::find(file.tensors, name, &ProgramTensor::name)->same_as;
    };
    EXPECT_EQ(same("head"), same("fc.weight"));
    EXPECT_EQ(file.count_of(ProgramRole::parameter, true), 6 + 6 + 18);
    for (const char* list : {"sizes", "strides"}) {
        Json& numbers = made.weights()["head"]["tensor_meta"][list];
        std::swap(numbers[0], numbers[1]);
    }
    EXPECT_THAT(refusal(made), HasSubstr("'fc.weight' and 'head' share memory but not shape"));
}

// What users meet; each says what to change where the program is exported.
TEST_F(ProgramFileTest, RefusesWhatCannotBeTrainedHere) {
    MadeUpProgram made = test::made_up_classifier(6, 3);
    made.model()["schema_version"]["major"] = 9;
    EXPECT_THAT(refusal(made), has("E250", "has version 9"));

    made = test::made_up_classifier(6, 3);
    made.graph()["tensor_values"]["x"]["sizes"][0] = test::argument_of("as_int", 6);
    EXPECT_THAT(refusal(made),
                has("is for one size of batch",
                    "'x' is f32 [6, 6]: the first dimension is fixed",
                    "dynamic_shapes=({0: batch},)"));

    made = test::made_up_classifier(6, 3);
    made.weights()["scale"]["use_pickle"] = true;
    EXPECT_THAT(refusal(made), HasSubstr("'scale' is kept as a Python object"));
}

// How one byte of a whole archive may differ, and its length: nothing but E250, or what is read is
// as before.
TEST_F(ProgramFileTest, SurvivesEveryDamagedByte) {
    const std::string whole = test::zip_of(test::made_up_classifier(2, 2).entries());
    const std::size_t table = whole.find("PK\1\2");
    std::set<std::string> seen;
    for (std::size_t at = 0; at < whole.size(); ++at) {
        // Texts have checksums: some of their bytes stand for all.
        if (at < table && at % 211 != 0 && whole.compare(at, 2, "PK") != 0) continue;
        for (const char bits : {'\1', '\x80', '\xff'}) {
            std::string damaged = whole;
            damaged[at] = static_cast<char>(damaged[at] ^ bits);
            seen.insert(caught_code([&] { read_program(write(damaged)); }));
        }
    }
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 97)
        EXPECT_EQ(caught_code([&] { read_program(write(whole.substr(0, bytes))); }), "E250");
    EXPECT_THAT(seen, UnorderedElementsAre("", "E250"));
}

// PyTorch writes checksums behind the bytes (flag 8 of APPNOTE.TXT 4.4.4); others write them
// before.
TEST_F(ProgramFileTest, CopiesAnArchiveWithOtherBytes) {
    const auto digits = [](char from) {
        std::vector<std::byte> bytes(8);
        for (std::byte& one : bytes) one = static_cast<std::byte>(from++);
        return bytes;
    };
    const std::string plain = test::zip_of({{"a", "01234567"}, {"b", "same"}, {"c", "01234567"}});
    std::string behind = plain;
    const std::size_t data = behind.find("net/c") + 5, table = behind.find("PK\1\2");
    const std::size_t end = behind.find("PK\5\6");
    behind.replace(behind.rfind("net/c", data) - 30 + 6, 2, test::little_endian(8, 2));
    behind.replace(behind.rfind("PK\1\2") + 8, 2, test::little_endian(8, 2));
    behind.replace(end + 16, 4, test::little_endian(table + 16, 4));
    behind.insert(data + 8, "PK\7\10" + std::string(12, '\0'));
    for (const std::string& bytes : {plain, behind}) {
        const ZipFile zip(write(bytes), program_zip);
        std::map<std::uint64_t, ReplacedEntry> replaced;
        for (const char* name : {"a", "c"})
            replaced[zip.find(name)->offset] = {*zip.find(name), [&] { return digits('A'); }};
        std::filesystem::remove(folder_ / "copy.pt2");
        NewFile out(folder_ / "copy.pt2");
        copy_zip(zip, replaced, out);
        out.finish();
        const ZipFile copy(folder_ / "copy.pt2", program_zip);
        EXPECT_EQ(copy.file_bytes(), bytes.size());
        for (const char* name : {"a", "c"}) EXPECT_EQ(copy.text(name, 100), "ABCDEFGH");
        EXPECT_EQ(copy.text("b", 100), "same");
    }
    EXPECT_NE(
        read_file(folder_ / "copy.pt2")
            .find(test::little_endian(test::zip_checksum("ABCDEFGH"), 4) + std::string(8, '\0')),
        std::string::npos);
}

TEST_F(ProgramFileTest, RefusesHostileArchives) {
    const ArchiveEntries entries = test::made_up_classifier(2, 2).entries();
    const std::string whole = test::zip_of(entries);
    const std::size_t table = whole.find("PK\1\2"), end = whole.find("PK\5\6");
    const auto with = [&](std::size_t at, const std::string& bytes) {
        std::string damaged = whole;
        damaged.replace(at, bytes.size(), bytes);
        return damaged;
    };
    const std::string huge(8, '\xff');
    ArchiveEntries twice = entries;
    twice.push_back(entries[0]);
    ArchiveEntries outside = entries;
    outside[0].first = "../../models/model.json";
    const std::string locator = "PK\6\7" + std::string(4, '\0') + huge + std::string(4, '\0');
    const std::vector<std::string> archives = {
        "",
        "PK",
        "no zip",
        std::string(100'000, 'P'),
        whole.substr(end),                                            // a table of nothing
        with(end + 12, "\xff\xff\xff\xff"),                           // bytes of the table
        with(end + 16, "\xff\xff\xff\xff"),                           // its place
        with(table + 10, test::little_endian(8, 2)),                  // deflate
        with(table + 8, test::little_endian(1, 2)),                   // encrypted
        with(table + 20, "\xff\xff\xff\x7f\xff\xff\xff\x7f"),         // bytes of an entry
        with(table + 42, test::little_endian(whole.size() - 30, 4)),  // its place
        with(table + 28, "\xff\xff"),                                 // of its name
        with(table + 30, "\xff\xff"),                                 // of its extra field
        whole.substr(0, end) + locator + whole.substr(end),
        test::zip_of(twice),
        test::zip_of(outside),
        test::zip_of({}),
        test::zip_of({{"models/model.json", ""}}),
        test::zip_of({{"models/model.json", "{}"}}),
        test::zip_of({{"models/model.json", std::string(100'000, '[')}})};
    for (std::size_t i = 0; i < archives.size(); ++i)
        EXPECT_EQ(caught_code([&] { read_program(write(archives[i])); }), "E250") << i;
}

// Sizes, offsets, names and types that the texts of a whole zip may lie about.
TEST_F(ProgramFileTest, RefusesTextsThatLie) {
    using Change = std::function<void(MadeUpProgram&)>;
    const auto meta = [](MadeUpProgram& made) -> Json& {
        return made.weights()["fc.weight"]["tensor_meta"];
    };
    const auto specs = [](MadeUpProgram& made) -> Json& { return made.signature()["input_specs"]; };
    const auto number = [](std::int64_t value) { return test::argument_of("as_int", value); };
    const std::int64_t most = INT64_MAX;
    const std::vector<Change> changes = {
        [&](auto& made) { meta(made)["sizes"][0] = number(-1); },
        [&](auto& made) { meta(made)["sizes"][0] = number(4); },
        [&](auto& made) { meta(made)["sizes"][0] = number(most); },
        [&](auto& made) { meta(made)["sizes"] = Json(std::vector<int>(100, 1)); },
        [&](auto& made) { meta(made)["sizes"].push_back(number(1)); },
        [&](auto& made) { meta(made)["sizes"][0] = "three"; },
        [&](auto& made) { meta(made)["strides"][0] = number(-6); },
        [&](auto& made) { meta(made)["strides"][0] = number(most); },
        [&](auto& made) { meta(made)["strides"][0] = number(7); },
        [&](auto& made) {
            meta(made)["strides"] = Json::array();
            for (int i = 0; i < 2; ++i) meta(made)["strides"].push_back(number(0));
            meta(made)["sizes"][0] = number(1 << 30);
        },
        [&](auto& made) { meta(made)["storage_offset"] = number(1); },
        [&](auto& made) { meta(made)["storage_offset"] = number(-1); },
        [&](auto& made) { meta(made)["storage_offset"] = number(most); },
        [&](auto& made) { meta(made)["dtype"] = 99; },
        [&](auto& made) { meta(made)["dtype"] = 11; },
        [&](auto& made) { meta(made)["layout"] = 1; },
        [&](auto& made) { meta(made)["requires_grad"] = 1; },
        [&](auto& made) { meta(made) = Json(); },
        [&](auto& made) { made.weights()["fc.weight"]["path_name"] = "../../../etc/passwd"; },
        [&](auto& made) {
            made.weights()["fc.weight"]["path_name"] = "model_weights_config.json/";
        },
        [&](auto& made) { made.weights().erase("fc.weight"); },
        [&](auto& made) { made.weights() = Json::array(); },
        [&](auto& made) { made.model().erase("schema_version"); },
        [&](auto& made) { made.model()["schema_version"]["major"] = "8"; },
        [&](auto& made) { made.model()["range_constraints"]["s0"] = 1; },
        [&](auto& made) { made.model()["graph_module"] = "none"; },
        [&](auto& made) { made.graph().erase("nodes"); },
        [&](auto& made) { made.graph().erase("tensor_values"); },
        [&](auto& made) { made.graph()["tensor_values"].erase("x"); },
        [&](auto& made) { made.graph()["tensor_values"].erase("mul"); },
        [&](auto& made) { made.graph()["tensor_values"]["x"]["dtype"] = 0; },
        [&](auto& made) { made.graph()["tensor_values"]["x"]["sizes"] = Json::array(); },
        [&](auto& made) { made.signature()["input_specs"] = Json::array(); },
        [&](auto& made) { made.signature()["output_specs"] = Json::array(); },
        [&](auto& made) { specs(made)[0] = Json::object(); },
        [&](auto& made) { specs(made)[0] = test::argument_of("custom_obj", Json::object()); },
        [&](auto& made) { specs(made)[0] = test::argument_of("surprise", number(1)); },
        [&](auto& made) {
            for (int i = 0; i < 70; ++i) specs(made).push_back(Json(specs(made)[0]));
        },
        [&](auto& made) {
            made.signature()["output_specs"].push_back(
                test::argument_of("parameter_mutation", Json::object()));
        },
        [&](auto& made) {
            Json change = Json::object();
            change["arg"]["name"] = "mul";
            change["buffer_name"] = "nobody";
            made.signature()["output_specs"].push_back(
                test::argument_of("buffer_mutation", change));
        }};
    for (std::size_t i = 0; i < changes.size(); ++i) {
        MadeUpProgram made = test::made_up_classifier(6, 3);
        changes[i](made);
        const std::string text = refusal(made);
        EXPECT_THAT(text, has("E250", "fix: ")) << i;
    }
}

}  // namespace
}  // namespace lockstep
