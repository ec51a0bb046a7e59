// SPDX-License-Identifier: Apache-2.0
// Tested: e2e/alone_test.cpp.
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/sources.hpp"
#include "lockstep/launch/live_placement.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/launch/supervise.hpp"
#include "lockstep/plan/contract.hpp"

#include "command.hpp"
#include "data/pack_inputs.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <list>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

/// How `predict` reads a table.
struct RawTable {
    std::string row_names;  ///< column that names the rows; "": none
    TableText text;
};

enum class RawKind { data_set, images, table, array, text };

RawKind kind_of_input(const fs::path& path) {
    if (fs::is_directory(status_of(path))) {
        if (fs::exists(status_of(path / manifest_name))) return RawKind::data_set;
        const auto is_hdf5 = [](const fs::directory_entry& entry) {
            const fs::path ending = entry.path().extension();
            return ending == ".h5" || ending == ".hdf5" || ending == ".hdf" || ending == ".he5";
        };
        return std::ranges::any_of(fs::directory_iterator(path), is_hdf5) ? RawKind::data_set
                                                                          : RawKind::images;
    }
    const fs::path ending = path.extension();
    if (ending == ".csv" || ending == ".tsv") return RawKind::table;
    if (ending == ".npy") return RawKind::array;
    if (is_image_name(path)) return RawKind::images;
    return ending == ".txt" ? RawKind::text : RawKind::data_set;
}

// The field of the training data that is made of `input`.
Field field_for(const InferSettings& settings, const fs::path& input, RawKind kind) {
    const auto fail = [&](const std::string& why) {
        return Error(
            "E106",
            fmt::format("'{}' is not what run '{}' takes", input.string(), settings.run.string()),
            why,
            "pack a data set like the training data with 'lockstep data pack', and give --data");
    };
    std::vector<std::string> names = split(read_run_settings(settings.run).settings.inputs, ',');
    const auto kept = kept_data(settings.run);
    if (!kept) throw fail("a run of an earlier version does not know how its data were made");
    std::erase(names, "");
    if (names.size() > 1) throw fail("its model has several inputs");
    if (names.empty()) names = {"images", "features", "tokens"};
    for (const std::string& name : names)
        for (const Field& field : kept->fields()) {
            if (field.name != name) continue;
            const bool fits = kind == RawKind::images  ? field.layout == "CHW"
                              : kind == RawKind::table ? field.shape.size() == 1
                              : kind == RawKind::text  ? name == "tokens"
                                                       : true;
            if (fits) return field;
            throw fail(fmt::format("its input is '{}' [{}]", name, fmt::join(field.shape, ", ")));
        }
    throw fail("its inputs have names of their own");
}

// The sign between columns that the first line has most of.
char separator_of(const fs::path& path) {
    std::string line;
    std::getline(std::ifstream(path), line);
    constexpr char signs[] = {',', ';', '\t'};
    return *std::ranges::max_element(
        signs, {}, [&](char sign) { return std::ranges::count(line, sign); });
}

// The sizes of the training images say which dimension of an array counts channels.
std::unique_ptr<RowSource> open_array(const Field& field, const fs::path& path) {
    const std::string place = path.string();
    if (field.name != "images" || field.shape.size() != 3) return open_npy({{field.name, place}});
    const auto stored = open_npy({{"features", place}})->fields()[0].shape;
    if (stored.size() != 3) return open_npy({{field.name, place}});
    const std::vector<std::int64_t> last{field.shape[1], field.shape[2], field.shape[0]};
    const bool is_last = stored == last && stored != field.shape;
    return open_npy({{field.name, place}}, is_last ? ImageLayout::hwc : ImageLayout::chw);
}

std::unique_ptr<RowSource> open_raw(const Field& field,
                                    const fs::path& path,
                                    RawKind kind,
                                    const RawTable& table) {
    if (kind == RawKind::images)
        return open_folder(path,
                           {.content = FolderContent::images,
                            .images = {field.shape[0] == 1 ? Color::gray : Color::rgb,
                                       ImageSize{static_cast<std::uint32_t>(field.shape[1]),
                                                 static_cast<std::uint32_t>(field.shape[2])}}});
    if (kind == RawKind::text)
        return open_text({path}, static_cast<std::uint64_t>(field.shape[0]) - 1);
    if (kind != RawKind::table) return open_array(field, path);
    CsvOptions csv{.type = field.type, .like = field, .row_names = table.row_names};
    csv.separator = separator_of(path);
    // Each row has a prediction: none is left out.
    csv.missing = field.table.missing == Missing::mean ? Missing::mean : Missing::error;
    table.text.apply(csv);
    return open_csv(path, csv);
}

// Bytes mean value / 255.
void check_values(const Field& given, const Field& learned, const fs::path& input) {
    const bool is_u8 = learned.type == ElementType::u8;
    check(learned.name == "tokens" || (given.type == ElementType::u8) == is_u8,
          "E217",
          fmt::format("'{}' does not fit the training data", input.string()),
          fmt::format("it has {}, the training data {}",
                      element_name(given.type),
                      element_name(learned.type)),
          fmt::format("write its values in the same range and type: x.astype('{}')",
                      is_u8 ? "uint8" : "float32"));
    const bool are_rows = given.shape.size() == 1 && learned.shape.size() == 1;
    check(learned.name == "tokens" || !are_rows || given.shape == learned.shape, [&] {
        return Error("E217",
                     fmt::format("'{}' does not fit the training data", input.string()),
                     fmt::format("its rows have {} numbers, those of the training data {}",
                                 given.shape[0],
                                 learned.shape[0]),
                     "give the columns that the training data have, in their order");
    });
}

/// Collective. If `input` is a data set or HDF5, `settings` take it as it is. Else it is packed in
/// its order, read as the training data of the run were: an image or a folder of them, a table
/// (.csv, .tsv, with its columns found by their names), .npy or .txt; `settings` get the names of
/// rows. Returns, on rank 0, what was made and what an error leaves: folders beside the outputs,
/// which all ranks see. Errors: E106 for an input of which a run cannot take its only field; E217
/// for bytes in place of other numbers, or the other way round, and for another number of columns;
/// those of reading and packing.
std::list<RemovedFolder> take_input(InferSettings& settings,
                                    const fs::path& input,
                                    const RawTable& table,
                                    const Communicator& ranks) {
    std::list<RemovedFolder> left;
    const RawKind kind = kind_of_input(input);
    const bool is_of_table =
        !table.row_names.empty() || table.text.decimal.has_value() || !table.text.encoding.empty();
    check_fits(!is_of_table || kind == RawKind::table,
               fmt::format("--id, --decimal and --encoding do not go with '{}'", input.string()),
               "they are for tables: .csv and .tsv",
               "drop them");
    if (kind == RawKind::data_set) {
        settings.data = input;
        return left;
    }
    const Field field = field_for(settings, input, kind);
    const auto source = together(team_of(ranks), [&] {
        auto opened = open_raw(field, input, kind, table);
        check_values(opened->fields()[0], field, input);
        return opened;
    });
    PackOptions pack{.output = settings.outputs.parent_path() /
                               fmt::format(".{}.rows", settings.outputs.filename().string()),
                     .name = "rows",
                     .shuffle_seed = {},
                     .leftovers = Leftovers::discard,
                     .team = team_of(ranks)};
    if (field.name == "tokens") pack.classes = field.classes();
    if (ranks.is_root()) {
        fs::remove_all(pack.output);
        left.emplace_back(pack.output.parent_path() /
                          fmt::format(".{}.partial", pack.output.filename().string()));
        left.emplace_back(pack.output);
    }
    Progress progress;
    const SignalGuard signals;
    pack_dataset(*source, pack, pack_report("reading", progress));
    settings.data = pack.output;
    settings.row_title = kind == RawKind::images   ? "file"
                         : table.row_names.empty() ? "row"
                                                   : table.row_names;
    if (!source->row_name(0).empty() && ranks.is_root())
        for (std::uint64_t row = 0; row < source->samples(); ++row)
            settings.row_names.push_back(source->row_name(row));
    return left;
}

struct InferArguments {
    InferSettings settings;
    int np = 0;
    bool oversubscribe = false;
    fs::path confusion;
    RawTable table;  ///< of `predict`
};

OptionSection applied_to_group(InferSettings& settings) {
    return {
        "Samples to compute",
        {data_option("data", settings.data, "data to read, as for train"),
         enum_option(
             "part all|train|held-out",
             settings.part,
             "samples to use of a run with --split, whose training data --data names: train, those "
             "it was trained on; held-out, those it was tested on"),
         list_option("channels N[,N]",
                     settings.channels,
                     "channels of --weights that 'lockstep prune' wrote")}};
}

OptionTable table_of(InferArguments& arguments, std::vector<Option> output) {
    InferSettings& settings = arguments.settings;
    return {{"Output", std::move(output)},
            applied_to_group(settings),
            foreign_group(settings.fields, settings.follows_links),
            checkpoint_group(settings.step),
            weights_group(settings.weights, settings.train_data),
            ranks_section(arguments.np, arguments.oversubscribe)};
}

/// Starts ranks, becomes one that carries LibTorch, or calls `show` with what was found.
int run_infer(InferArguments& arguments,
              const Invocation& call,
              const std::function<void(const InferResult&)>& show) {
    InferSettings& settings = arguments.settings;
    settings.run = call.positionals[0];
    const bool has_input = call.positionals.size() > 1;
    check_fits(!has_input || settings.data.empty(),
               fmt::format("'{}' and --data are both given", call.positionals.back()),
               "either names what is read");
    check_fits(settings.weights.empty() || settings.step == "newest",
               "--weights and --step are both given",
               "either names the weights that are used");
    if (!has_input) check_given(!settings.data.empty(), "data", "name a data set: --data DIR");
    const Program& program = call.process.program;
    const Communicator& ranks = call.process.ranks;
    agree(ranks, [&] { check_launch(call.process.facts->launch(), ranks.rank(), ranks.size()); });
    check_rank_count(call);
    if (arguments.np > 1 && !launched_by_mpi())
        return supervise_ranks({.np = arguments.np,
                                .oversubscribe = arguments.oversubscribe,
                                .words = call.words,
                                .program = this_executable()});
    if (program.infer == nullptr) become_rank(rank_program(program), call.words, kept_cores());
    std::list<RemovedFolder> left;
    if (has_input) agree(ranks, [&] { check_new_outputs(settings.outputs); });
    if (has_input) left = take_input(settings, call.positionals[1], arguments.table, ranks);
    const InferResult result = program.infer(settings, ranks);
    if (call.process.ranks.is_root()) show(result);
    return 0;
}

OptionTable predict_table(InferArguments& arguments) {
    std::vector<Option> output{
        path_option("out FILE", arguments.settings.outputs, "new file: .csv, .npy, .h5 or .hdf5"),
        enum_option("as logits|probabilities|classes",
                    arguments.settings.form,
                    "what is written: the model's outputs, probabilities, or the "
                    "most probable class"),
        text_option(
            "id COLUMN", arguments.table.row_names, "with a table: column that names the rows")};
    OptionTable table = table_of(arguments, std::move(output));
    table.push_back(table_text_group(arguments.table.text));
    return table;
}

void show_metrics(const InferArguments& arguments, const InferResult& result) {
    if (!arguments.confusion.empty()) write_named_file(arguments.confusion, result.confusion);
    std::string text =
        fmt::format("weights       {}\nsamples       {}\ntest          {}\n",
                    result.step > 0 ? fmt::format("step {}", result.step) : "of a file",
                    grouped(result.samples),
                    result.evaluation.text);
    for (const auto& [name, value] : result.evaluation.metrics)
        text += fmt::format("{:<13} {:.6g}\n", name, value);
    if (!result.by_class.empty()) text += '\n' + result.by_class;
    print_once(text);
}

}  // namespace

Command eval_command() {
    auto arguments = std::make_shared<InferArguments>();
    return {.name = "eval",
            .summary = "measure a trained run on a data set",
            .usage = "lockstep eval RUN --data DIR [options]",
            .text =
                "Prints the metrics of the run's task over all samples, with its model, transform\n"
                "and newest checkpoint (or the moving average, if the run has --ema): the same\n"
                "bits on any number of ranks. Unset options of the data are the run's. It needs\n"
                "nothing but the run and DIR, wherever the run lies now.\n\n"
                "Examples:\n"
                "  lockstep eval runs/a --data D/test\n"
                "  lockstep eval runs/b --data D --part held-out     # trained with --split 0.9\n"
                "  lockstep eval runs/a --data D/test --np 4 --confusion confusion.csv\n"
                "  lockstep eval runs/a --data D/test --step best\n"
                "  lockstep eval runs/a --data D/test --weights a.safetensors\n",
            .table = table_of(*arguments,
                              {path_option("confusion FILE",
                                           arguments->confusion,
                                           "CSV file to write the confusion matrix to")}),
            .positionals = 1,
            .run = [arguments](const Invocation& call) {
                return run_infer(*arguments, call, [&](const InferResult& result) {
                    show_metrics(*arguments, result);
                });
            }};
}

Command predict_command() {
    auto arguments = std::make_shared<InferArguments>();
    return {
        .name = "predict",
        .summary = "write a trained model's outputs for a data set",
        .usage = "lockstep predict RUN [INPUT] --out FILE [options]",
        .text =
            "Writes the model's output for each sample, in the order of the input (or of its\n"
            "--part): logits of classes [n, K], of pixels [n, K, H, W] or of next tokens [n, T, "
            "K],\n"
            "or the numbers of a regression [n, K]. --as probabilities or classes computes those "
            "of\n"
            "them. The values are the same on any number of ranks.\n\n"
            "INPUT is read as 'lockstep data pack' reads it, and needs no labels. It is an image,\n"
            "or a folder of them, which get the size and colours of the training data. It may be\n"
            "a table (.csv, .tsv), whose columns may have any order, .npy or .txt. Packed data\n"
            "and HDF5 may also be given by --data.\n\n"
            "FILE ends in .csv (a line for each sample, with its file or row, and names of\n"
            "classes), .npy, or .h5 with data set predictions. An .h5 has data sets names (files\n"
            "or rows) and classes, too, where they have names; NAME.npy has them in\n"
            "NAME.names.json.\n\n"
            "Examples:\n"
            "  lockstep predict runs/a photos --out new.csv --as classes\n"
            "  lockstep predict runs/t new.csv --id name --out predicted.csv\n"
            "  lockstep predict runs/a --data D/new --out new.npy --step best --np 4\n"
            "  python3 -c \"import numpy; print(numpy.load('new.npy').argmax(1))\"\n",
        .table = predict_table(*arguments),
        .positionals = 1,
        .optional_positionals = 1,
        .run = [arguments](const Invocation& call) {
            check_given(!arguments->settings.outputs.empty(),
                        "out",
                        "name a file: --out FILE.csv, FILE.npy or FILE.h5");
            return run_infer(*arguments, call, [&](const InferResult& result) {
                print_once(fmt::format(
                    "{}: {} [{}], {}{}\n",
                    arguments->settings.outputs.string(),
                    result.element,
                    fmt::join(result.shape, ", "),
                    result.step > 0 ? fmt::format("step {}", result.step) : "weights of a file",
                    result.names.empty() ? "" : "; " + result.names));
            });
        }};
}

Command sample_command() {
    auto arguments = std::make_shared<SampleSettings>();
    SampleSettings& settings = *arguments;
    return {
        .name = "sample",
        .summary = "let a model of tokens go on with a text",
        .usage = "lockstep sample RUN --prompt TEXT [options]",
        .text =
            "Prints the prompt and the tokens that the model of a --task next-token run chooses\n"
            "after it, one after another. If the run's tokens are no bytes, the prompt and the\n"
            "answer are numbers with blanks between. The same seed gives the same text.\n\n"
            "Examples:\n"
            "  lockstep sample runs/a --prompt 'Once upon a time'\n"
            "  lockstep sample runs/a --prompt 'To be' --tokens 500 --temperature 0.8 --top 40\n"
            "  lockstep sample runs/a --prompt 'To be' --temperature 0      # the most probable\n",
        .table = {{"Sampling",
                   {text_option("prompt TEXT", settings.prompt, "tokens to go on with"),
                    whole_option("tokens", settings.tokens, {1, 1 << 24}, "tokens to choose"),
                    real_option("temperature",
                                settings.temperature,
                                {0, 1000},
                                "divisor of the logits; 0: always the most probable token"),
                    whole_option("top",
                                 settings.top,
                                 {0, 1 << 24},
                                 "most probable tokens to choose from; 0: all"),
                    whole_option("seed",
                                 settings.seed,
                                 {0, std::numeric_limits<std::int64_t>::max()},
                                 "seed of the choices")}},
                  checkpoint_group(settings.from.step),
                  weights_group(settings.from.weights, settings.from.train_data)},
        .positionals = 1,
        .run = [arguments](const Invocation& call) {
            check_one_process(call, "sample", "each token follows the one before");
            arguments->from.run = call.positionals[0];
            check_given(!arguments->prompt.empty(), "prompt", "give --prompt TEXT");
            const Program& program = call.process.program;
            if (program.sample == nullptr) become_rank(rank_program(program), call.words);
            print_once(program.sample(*arguments, call.process.ranks) + "\n");
            return 0;
        }};
}

}  // namespace lockstep
