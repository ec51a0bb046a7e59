// SPDX-License-Identifier: Apache-2.0
// A node of the archive names its arguments: {"name": "dim", "arg": {"as_int": 1}}. Compiling takes
// the operator's schema, puts each argument at its place, and notes those that are values of
// earlier nodes. What calls write is found by what schemas say of aliases.
//
// Tested: train/program/program_graph_test.cpp, train/program/program_peer (against Python's bits).
#include "lockstep/core/log.hpp"

#include "program/program_graph.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <torch/version.h>

namespace lockstep {
namespace {

// Running statistics, which their operator writes although its schema does not declare it.
constexpr std::string_view silent_writers[] = {
    "aten::batch_norm", "aten::native_batch_norm", "aten::instance_norm"};
// Operators that read or write files, or communicate with other processes.
constexpr std::string_view forbidden[] = {"aten::from_file", "aten::_print", "aten::_save"};

// Compiles one program; members are for all its functions.
class ProgramCompiler {
  public:
    ProgramCompiler(const ProgramFile& file,
                    const std::vector<at::Tensor>& tensors,
                    ProgramMode mode)
        : file_(file), path_(file.zip.path()), tensors_(tensors), mode_(mode) {}

    ProgramGraph compile() && {
        graph_.changes.resize(tensors_.size());
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            const SlotIndex slot = new_slot(file_.tensors[i].value);
            graph_.start.back() = tensors_[i];
            roots_[slot] = file_.tensors[i].same_as;
        }
        for (const ProgramInput& input : file_.inputs)
            graph_.inputs.push_back(new_slot(input.value));
        for (const Json& node : file_.nodes) add(node);
        for (const ProgramOutput& output : file_.outputs)
            graph_.outputs.push_back(slot_of(output.value));
        for (const ProgramUpdate& update : file_.updates) {
            graph_.updates.emplace_back(slot_of(update.value), tensors_[update.tensor]);
            graph_.copied.push_back(slots_.at(file_.tensors[update.tensor].value));
            note_write(file_.tensors[update.tensor].same_as, "");
        }
        check_mode();
        finish(graph_);
        return std::move(graph_);
    }

  private:
    SlotIndex new_slot(const std::string& value) {
        slots_[value] = graph_.start.size();
        graph_.start.emplace_back();
        roots_.emplace_back();
        return graph_.start.size() - 1;
    }

    SlotIndex slot_of(const std::string& value) const {
        const auto found = slots_.find(value);
        check(found != slots_.end(), [&] {
            return damaged_program(
                path_, fmt::format("a value '{}' is used before it is computed", printable(value)));
        });
        return found->second;
    }

    ProgramRefusal refused(const std::string& why, const std::string& fix) const {
        return {"E250",
                fmt::format("'{}' is no model for this program", printable(path_.string())),
                why,
                fix};
    }

    static std::string came_from(const std::string& line) {
        return line.empty() ? "" : fmt::format("; it comes from {}", line);
    }

    void add(const Json& node) {
        const auto target = node["target"].get<std::string>();
        constexpr std::string_view library = "torch.ops.aten.";
        if (target.starts_with("torch.ops.aten._assert") ||
            target.starts_with("torch.ops.aten.sym_constrain"))
            return;  // ranges are checked for each input
        ProgramCall call;
        call.line = source_line(node);
        call.module = module_path(node);
        call.gradients = gradients_;
        if ((call.number = number_operation(target)) != nullptr) {
            call.name = target;
            add_number(node, std::move(call));
            return;
        }
        if (target == "torch.ops.higher_order.wrap_with_set_grad_enabled") return add_part(node);
        check(!target.starts_with("torch.ops.higher_order."), [&] {
            return refused(
                fmt::format("its graph has the operator {}, which runs a part of the graph{}",
                            printable(target.substr(10)),
                            came_from(line_of_part(node))),
                "write that place without torch.cond, loops over data and autocast (for example "
                "with torch.where()), and export it again");
        });
        const std::size_t dot = target.rfind('.');
        if (target.starts_with(library) && dot >= library.size()) {
            call.name = "aten::" + target.substr(library.size(), dot - library.size());
            std::string overload = target.substr(dot + 1);
            if (overload == "default") overload.clear();
            call.op = c10::Dispatcher::singleton().findSchema({call.name, overload});
        }
        check(call.op && std::ranges::find(forbidden, call.name) == std::end(forbidden), [&] {
            return refused(
                fmt::format("its graph has '{}', which is no operator of LibTorch " TORCH_VERSION
                            "{}",
                            printable(target),
                            came_from(call.line)),
                "write that place with operators of PyTorch, and export it again");
        });
        add_operator(node, std::move(call));
    }

    // Returns the line of the first node within, if the part itself has none.
    static std::string line_of_part(const Json& node) {
        std::string line = source_line(node);
        for (const Json& input : node["inputs"])
            if (const Json* part = input["arg"].find("as_graph"); part != nullptr)
                for (const Json& inner : (*part)["graph"]["nodes"])
                    if (line.empty()) line = line_of_part(inner);
        return line;
    }

    static std::string name_of(const Json& argument) {
        const Json& about = only_member(argument).value;
        return about[about.contains("as_name") ? "as_name" : "name"].get<std::string>();
    }

    // A part of the graph under torch.no_grad() or enable_grad(): its calls come where it is
    // called. It has names of its own. Its depth is that of the archive's JSON, which is bounded.
    void add_part(const Json& node) {
        const Json& inputs = node["inputs"];
        const Json& part = inputs[1]["arg"]["as_graph"]["graph"];
        std::map<std::string, SlotIndex> names;
        for (std::size_t i = 0; i < part["inputs"].size(); ++i)
            names[name_of(part["inputs"][i])] = slot_of(name_of(inputs[i + 2]["arg"]));
        std::swap(slots_, names);
        const auto around =
            std::exchange(gradients_, inputs[std::size_t{0}]["arg"]["as_bool"].get<bool>());
        for (const Json& inner : part["nodes"]) add(inner);
        std::vector<SlotIndex> results;
        for (const Json& output : part["outputs"]) results.push_back(slot_of(name_of(output)));
        std::swap(slots_, names);
        gradients_ = around;
        for (std::size_t i = 0; i < node["outputs"].size(); ++i) {
            check(i < results.size(),
                  [&] { return damaged_program(path_, "a part of its graph gives too little"); });
            slots_[name_of(node["outputs"][i])] = results[i];
        }
    }

    void add_number(const Json& node, ProgramCall call) {
        for (const Json& input : node["inputs"])
            add_argument(call, call.arguments.size(), input["arg"], nullptr);
        add_results(node, call);
        graph_.calls.push_back(std::move(call));
    }

    void add_operator(const Json& node, ProgramCall call) {
        std::map<std::string, const Json*> given;
        for (const Json& input : node["inputs"])
            given[input["name"].get<std::string>()] = &input["arg"];
        const std::vector<c10::Argument>& wanted = call.op->schema().arguments();
        for (const auto& [name, argument] : given)
            check(std::ranges::find(wanted, name, &c10::Argument::name) != wanted.end(), [&] {
                return refused(
                    fmt::format("{} has no argument '{}' in LibTorch " TORCH_VERSION "{}",
                                call.name,
                                printable(name),
                                came_from(call.line)),
                    "export it with PyTorch " TORCH_VERSION);
            });
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const auto found = given.find(wanted[i].name());
            if (found != given.end())
                add_argument(call, i, *found->second, &wanted[i]);
            else
                call.arguments.push_back(wanted[i].default_value().value_or(c10::IValue()));
            if (call.arguments.back().isDevice()) call.device = i;
        }
        call.takes_strides = call.name.starts_with("aten::as_strided") &&
                             !file_.turned.contains(name_of(*given.at("self")));
        add_results(node, call);
        const std::optional<CallMode> mode = switch_mode(call);
        note_writes(call, mode);
        count_batches(call);
        if (mode == CallMode::train) is_for_training_ = true;
        if (mode == CallMode::evaluate && off_.empty())
            off_ = call.line.empty() ? call.name : call.line;
        graph_.calls.push_back(std::move(call));
    }

    void add_argument(ProgramCall& call,
                      std::size_t place,
                      const Json& json,
                      const c10::Argument* wanted) {
        const auto& [kind, about] = only_member(json);
        Feed feed{.argument = place};
        call.arguments.emplace_back();
        if (takes_slots(kind, about, feed)) {
            if (feed.kind == FeedKind::value && wanted != nullptr && wants_tensor(*wanted))
                feed.kind = FeedKind::tensor;
            call.feeds.push_back(std::move(feed));
            return;
        }
        auto value = constant_argument(kind, about);
        check(value.has_value(), [&, kind = std::string(kind)] {
            return refused(fmt::format("{} has an argument of kind {}{}",
                                       call.name,
                                       printable(kind),
                                       came_from(call.line)),
                           "write that place in another way, and export it again");
        });
        call.arguments.back() =
            wanted == nullptr ? *value : fitted_argument(*std::move(value), *wanted);
    }

    // Returns true if the argument is, or has, values of earlier calls: then `feed` has their
    // slots.
    bool takes_slots(const std::string& kind, const Json& about, Feed& feed) const {
        const auto named = [&](const Json& json, const char* key) {
            feed.slots.emplace_back(slot_of(json[key].get<std::string>()));
        };
        if (kind == "as_tensor") {
            named(about, "name");
        } else if (kind == "as_tensors") {
            feed.kind = FeedKind::tensors;
            for (const Json& one : about) named(one, "name");
        } else if (kind == "as_optional_tensor" && about.contains("as_tensor")) {
            named(about["as_tensor"], "name");
        } else if (kind == "as_optional_tensors") {
            feed.kind = FeedKind::optional_tensors;
            for (const Json& one : about)
                if (one.contains("as_tensor"))
                    named(one["as_tensor"], "name");
                else
                    feed.slots.emplace_back();
        } else if (kind == "as_sym_ints") {
            feed.kind = FeedKind::numbers;
            for (const Json& one : about) {
                const bool is_named = one.contains("as_name");
                feed.numbers.push_back(is_named ? 0 : one["as_int"].get<std::int64_t>());
                if (is_named)
                    named(one, "as_name");
                else
                    feed.slots.emplace_back();
            }
        } else if (kind.starts_with("as_sym_") && about.contains("as_name")) {
            named(about, "as_name");
        } else {
            return false;
        }
        return true;
    }

    void add_results(const Json& node, ProgramCall& call) {
        const Json& outputs = node["outputs"];
        const auto add_one = [&](const Json& about, const char* key) {
            call.results.emplace_back(new_slot(about[key].get<std::string>()));
        };
        for (const Json& output : outputs) {
            const auto& [kind, about] = only_member(output);
            if (kind == "as_tensors") {
                check(outputs.size() == 1,
                      [&] { return damaged_program(path_, call.name + " gives lists and more"); });
                call.gives_list = true;
                for (const Json& one : about) add_one(one, "name");
            } else if (kind == "as_tensor") {
                add_one(about, "name");
            } else if (kind.starts_with("as_sym_")) {
                add_one(about, "as_name");
            } else {
                call.results.emplace_back();
            }
        }
    }

    void note_write(std::optional<std::size_t> tensor, const std::string& line) {
        if (!tensor) return;
        const ProgramTensor& written = file_.tensors[*tensor];
        check(written.role != ProgramRole::parameter, [&] {
            return refused(
                fmt::format(
                    "it writes the parameter '{}' in forward(){}", written.name, came_from(line)),
                "make it a buffer, or leave the writing out, and export it again");
        });
        graph_.changes[*tensor] = true;
    }

    // A call writes the tensor of which an argument is a view. Results may be views, too.
    void note_writes(const ProgramCall& call, std::optional<CallMode> mode) {
        const auto& schema = call.op->schema();
        const bool is_silent =
            mode == CallMode::train &&
            std::ranges::find(silent_writers, call.name) != std::end(silent_writers);
        for (const Feed& feed : call.feeds) {
            const c10::Argument& argument = schema.arguments()[feed.argument];
            const c10::AliasInfo* alias = argument.alias_info();
            const bool is_statistic = is_silent && argument.name().starts_with("running_");
            for (const auto& slot : feed.slots) {
                if (!slot || !roots_[*slot]) continue;
                if (is_statistic || (alias != nullptr && alias->isWrite()))
                    note_write(roots_[*slot], call.line);
                if (alias != nullptr) note_views(call, *alias, *roots_[*slot]);
            }
        }
    }

    void note_views(const ProgramCall& call, const c10::AliasInfo& of, std::size_t tensor) {
        const auto& returns = call.op->schema().returns();
        if (returns.empty()) return;
        for (std::size_t i = 0; i < call.results.size(); ++i) {
            const auto* alias =
                returns[call.gives_list ? 0 : std::min(i, returns.size() - 1)].alias_info();
            const bool is_view = alias != nullptr && (alias->beforeSets() == of.beforeSets() ||
                                                      !alias->containedTypes().empty());
            if (is_view && call.results[i]) roots_[*call.results[i]] = tensor;
        }
    }

    // Batch norm counts its batches in training alone.
    void count_batches(ProgramCall& call) const {
        if (call.name != "aten::add_" || call.feeds.empty()) return;
        const Feed& first = call.feeds.front();
        if (first.argument != 0 || first.slots.empty() || !first.slots.front()) return;
        const auto root = roots_[*first.slots.front()];
        call.trains_only = root && file_.tensors[*root].name.ends_with("num_batches_tracked");
    }

    void check_mode() const {
        const bool is_for_evaluation = !off_.empty() && !is_for_training_;
        check_program(
            !is_for_evaluation || mode_ == ProgramMode::as_exported,
            fmt::format("'{}' was exported for evaluation", printable(path_.string())),
            fmt::format("its dropout or batch norm is switched off: {}", off_),
            "if these layers are in eval() on purpose, train it as it is with --model-mode "
            "as-exported; else call net.train() before torch.export.export(), and export it again");
        check(is_for_evaluation || mode_ == ProgramMode::train, [&] {
            return ProgramRefusal("E107",
                                  "--model-mode as-exported has no effect",
                                  fmt::format("'{}' {}",
                                              printable(path_.string()),
                                              is_for_training_ ? "was exported for training"
                                                               : "has no dropout and batch norm"),
                                  "drop it");
        });
    }

    const ProgramFile& file_;
    fs::path path_;
    const std::vector<at::Tensor>& tensors_;
    ProgramMode mode_;
    ProgramGraph graph_;
    std::map<std::string, SlotIndex> slots_;
    std::vector<std::optional<std::size_t>> roots_;  ///< by slot: the tensor that it is a view of
    std::optional<bool> gradients_;                  ///< mode of the part that is compiled
    bool is_for_training_ = false;
    std::string off_;  ///< place of the first operator that was exported for evaluation
};

}  // namespace

ProgramGraph compile_program(const ProgramFile& file,
                             const std::vector<at::Tensor>& tensors,
                             ProgramMode mode) {
    return reading_program(file.zip.path(),
                           [&] { return ProgramCompiler(file, tensors, mode).compile(); });
}

}  // namespace lockstep
