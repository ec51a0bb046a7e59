// SPDX-License-Identifier: Apache-2.0
#include "submit/submit_plan.hpp"

#include "lockstep/core/files.hpp"
#include "lockstep/data/manifest.hpp"

#include "support/unit.hpp"

namespace lockstep {
namespace {

using Variable = std::pair<std::string, std::string>;

// A folder with one template and one site.
class SubmitFolder : public InFolder {
  protected:
    SubmitFolder() {
        make_directories(folder_.path() / "slurm/sites");
        write_file_atomically(
            folder_.path() / "slurm/single-node.sbatch",
            "#!/usr/bin/env bash\n#SBATCH --job-name=one\n#SBATCH --partition=debug\n"
            "#SBATCH --signal=B:USR1@120\n#SBATCH --requeue\n. job.sh\n"
            "\nrun_ranks mpirun lockstep train\n");
        write_site(
            "partition = \"batch\"\nlauncher = \"srun\"\nmodules = [\"a/1\"]\nsignal-seconds = "
            "300\n");
    }

    void write_site(const std::string& text) {
        write_file_atomically(folder_.path() / "slurm/sites/here.toml", text);
    }

    SubmitPlan plan(SubmitOptions options, const std::vector<ResolvedOption>& given = {}) {
        return plan_submit(options, {.options = given}, folder_.path());
    }

    std::string option_of(const SubmitPlan& plan, const std::string& name) {
        return value_of(plan.script.parts[0], name).value_or("none");
    }
};

TEST_F(SubmitFolder, CommandLineIsOverSiteIsOverTemplate) {
    EXPECT_EQ(option_of(plan({}), "partition"), "debug");
    EXPECT_EQ(option_of(plan({.site = "here"}), "partition"), "batch");
    EXPECT_EQ(
        option_of(plan({.site = "here"}, {{"partition", "x", "command line", {}}}), "partition"),
        "x");
    EXPECT_EQ(option_of(plan({}, {{"partition", "x", "default", {}}}), "partition"), "debug");
}

TEST_F(SubmitFolder, TheLauncherDecidesWhoIsTold) {
    EXPECT_EQ(option_of(plan({}), "signal"), "B:USR1@120");
    const auto by_site = plan({.site = "here"});
    EXPECT_EQ(by_site.launcher, Launcher::srun);
    EXPECT_EQ(option_of(by_site, "signal"), "USR2@300");
    EXPECT_THAT(by_site.settings.variables,
                testing::IsSupersetOf({Variable{"MODULES", "a/1"}, {"LOCKSTEP_LAUNCHER", "srun"}}));
    EXPECT_EQ(plan({.template_name = "single-node", .site = "here"}).launcher, Launcher::mpirun);
}

TEST_F(SubmitFolder, TellsJobShOfTheContainer) {
    const auto given = plan({.image = "a://b", .runtime = ContainerRuntime::pyxis});
    EXPECT_THAT(given.settings.variables,
                testing::IsSupersetOf({Variable{"LOCKSTEP_LAUNCHER", "srun"},
                                       {"LOCKSTEP_CONTAINER", "a://b"},
                                       {"LOCKSTEP_CONTAINER_RUNTIME", "pyxis"}}));
    EXPECT_THAT(plan({}).settings.variables, ElementsAre(testing::Key("LOCKSTEP_ROOT")));
}

TEST_F(SubmitFolder, AChainSharesARunAndIsNotRequeued) {
    const auto chain = plan({.template_name = "single-node", .chain = 3});
    EXPECT_EQ(option_of(chain, "requeue"), "none");
    EXPECT_EQ(option_of(chain, "no-requeue"), "");
    EXPECT_EQ(option_of(chain, "dependency"), "singleton");
    EXPECT_THAT(chain.settings.variables, Contains(testing::Pair("RUN", "runs/one")));
}

TEST_F(SubmitFolder, RefusesWhatIsNotThereOrDoesNotGoTogether) {
    const auto code = [&](const SubmitOptions& options) {
        return caught_code([&] { plan(options); });
    };
    EXPECT_THAT(caught_text([&] { plan({.template_name = "single-nod"}); }),
                HasSubstr("did you mean 'single-node'?"));
    EXPECT_EQ(code({.template_name = "single-nod"}), "E539");
    EXPECT_EQ(code({.site = "nowhere"}), "E539");
    EXPECT_EQ(code({.image = "/nowhere.sif"}), "E539");
    EXPECT_EQ(code({.image = "-x://y"}), "E532");
    EXPECT_EQ(
        code({.image = "a://b", .launcher = Launcher::mpirun, .runtime = ContainerRuntime::pyxis}),
        "E537");
    write_file_atomically(folder_.path() / "other.sbatch", "#!/b\n#SBATCH -N1\nmpirun a\n");
    const std::string other = (folder_.path() / "other.sbatch").string();
    EXPECT_EQ(code({.template_name = other, .launcher = Launcher::srun}), "E531");
    EXPECT_EQ(code({.template_name = other, .image = "a://b"}), "E531");
    EXPECT_EQ(code({.het_nodes = "2"}), "E106");
    EXPECT_EQ(code({.het_partition = "b", .template_name = "single-node", .chain = 2}), "E106");
}

TEST_F(SubmitFolder, RefusesMoreRanksThanTheRunThatGoesOnHasVirtualRanks) {
    write_file_atomically(
        folder_.path() / "run.json",
        R"({"format":"lockstep-run","format_version":1,"run_id":"a","created_at":"","created_by":"",)"
        R"("contract":{"virtual_ranks":2},"deciding":{},"config":{},"versions":{}})");
    const auto code = [&](std::int64_t ranks) {
        JobRequest request;
        request.parts = {JobPart{.tasks = ranks}};
        const SubmitOptions options{.run = folder_.path(), .chain = 2};
        return caught_code([&] { check_ranks_will_run(options, request, {}); });
    };
    EXPECT_EQ(code(3), "E640");
    EXPECT_NE(code(2), "E640");
}

TEST_F(SubmitFolder, RefusesSettingsOtherThanTheRunThatGoesOnHas) {
    write_file_atomically(
        folder_.path() / "run.json",
        R"({"format":"lockstep-run","format_version":1,"run_id":"a","created_at":"","created_by":"",)"
        R"("contract":{},"deciding":{"lr":0.25,"batch":64,"device":"cpu","precision":"fp32"},"config":{},"versions":{}})");
    TrainSettings settings;
    settings.optimizer.learning_rate = 9;
    settings.device = DeviceKind::cuda;
    const auto text = [&](const std::string& name) {
        settings.origins = {{name, {"", "command line"}}, {"batch", {"", "default"}}};
        const SubmitOptions options{.run = folder_.path(), .chain = 2};
        return caught_text([&] { check_ranks_will_run(options, {}, settings); });
    };
    EXPECT_THAT(text("lr"), AllOf(HasSubstr("E306"), HasSubstr("lr is 0.25 in the run, now 9")));
    EXPECT_THAT(text("device"), Not(HasSubstr("E306"))) << "ranks settle it";
    EXPECT_THAT(text("precision"), Not(HasSubstr("E306"))) << "auto: that of the run";
    EXPECT_THAT(text("epochs"), Not(HasSubstr("E306")));
}

TEST_F(SubmitFolder, RefusesAFolderOfOutputThatIsMissing) {
    const auto text_of = [&](const SbatchOptions& part) {
        return caught_text([&] { check_output_folders({.head = "", .parts = {part}}); });
    };
    const std::string here = folder_.path().string();
    for (const char* name : {"output", "error"})
        EXPECT_THAT(text_of({{name, here + "/logs/%x/%j.out"}}),
                    AllOf(HasSubstr(fmt::format("no folder '{}/logs' for --{}", here, name)),
                          HasSubstr(fmt::format("fix: mkdir -p {}/logs", here))));
    EXPECT_THAT(text_of({{"output", "logs/%j.out"}, {"chdir", here}}), HasSubstr(here + "/logs"));
    for (const char* file : {"%j.out", "x.out", "slurm/%x/a", "/seen-by-nodes-only/logs/a"})
        EXPECT_EQ(text_of({{"output", file}, {"chdir", here}}), "") << file;
    EXPECT_EQ(text_of({}), "");
    testing::internal::CaptureStderr();
    text_of({{"output", "/seen-by-few-nodes-only/%j.out"}});
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("there is no folder '/seen-by-few-nodes-only' for --output"),
                      HasSubstr("mkdir -p /seen-by-few-nodes-only")));
}

TEST_F(SubmitFolder, ASiteSaysWhatItsJobsNeedByTypeAndKey) {
    write_site("account = \"a\"\nqos = \"long\"\nconstraint = \"a|b\"\nmem = \"8G\"\n");
    const auto by_site = plan({.site = "here"});
    EXPECT_EQ(option_of(by_site, "account"), "a");
    EXPECT_EQ(option_of(by_site, "qos"), "long");
    EXPECT_EQ(option_of(by_site, "constraint"), "a|b");
    EXPECT_EQ(by_site.request.parts[0].node_memory_mb, 8192);
    EXPECT_EQ(option_of(plan({.site = "here"}, {{"mem", "1G", "command line", {}}}), "mem"), "1G");
    EXPECT_EQ(option_of(plan({}), "mem"), "none");
    for (const auto& [text, code] :
         std::vector<std::pair<std::string, std::string>>{{"partitoin = \"x\"", "E111"},
                                                          {"partition = 3", "E112"},
                                                          {"partition = true", "E112"},
                                                          {"partition = [\"x\"]", "E112"},
                                                          {"modules = \"x\"", "E112"},
                                                          {"modules = [3]", "E112"},
                                                          {"signal-seconds = -1", "E112"},
                                                          {"launcher = \"ssh\"", "E112"},
                                                          {"launcher = 1", "E112"},
                                                          {"container-runtime = \"x\"", "E112"},
                                                          {"launcher = = 1", "E110"}}) {
        write_site(text);
        EXPECT_EQ(caught_code([&] { plan({.site = "here"}); }), code) << text;
    }
}

// The quick start's run says 1,630,090.
TEST(SubmitEstimate, CountsTheParametersOfBuiltInModels) {
    EXPECT_EQ(estimate_job({}, {}, 0).parameters, 1'630'090u);
    EXPECT_EQ(estimate_job({.model = {"own"}}, {}, 0).parameters, 0u);
    EXPECT_EQ(estimate_job({.model = {"gpt"}}, {}, 0).parameters, 10'844'160u);
    EXPECT_EQ(estimate_job({.model = {.name = "gpt", .layers = 2}}, {}, 0).parameters, 0u);
    EXPECT_EQ(estimate_job({.model = {.name = "unet", .width = 8}}, {}, 0).parameters, 0u);
    const auto bytes = [](int leaves, std::int64_t ranks) {
        const TrainSettings settings{.virtual_ranks = leaves};
        return estimate_job(settings, {.node_tasks = ranks}, 1'000'000).node_memory_bytes;
    };
    EXPECT_EQ(bytes(64, 1) - bytes(1, 1), 6u * 4'000'000u) << "7 gradient vectors and 1";
    EXPECT_EQ(bytes(64, 3) - bytes(4, 3), 3u * 5u * 4'000'000u) << "3 ranks, with 7 and 2 of them";
    const auto estimate = estimate_job({}, {}, 1000);
    EXPECT_EQ(estimate.checkpoint_bytes, 12'000u);
    EXPECT_EQ(estimate.copy_bytes, 12'000u);
    EXPECT_EQ(estimate_job({.checkpoint_mode = CheckpointMode::blocking}, {}, 1000).copy_bytes, 0u);
    EXPECT_EQ(estimate.disk_bytes, 48'000u);
    const TrainSettings keeps_more{.keep_best = "loss", .on_nonfinite = NonFinite::rollback};
    EXPECT_EQ(estimate_job(keeps_more, {}, 1000).disk_bytes, 72'000u);
    const OptimizerSettings averaged{.kind = OptimizerKind::lars, .average_decay = 0.9};
    EXPECT_EQ(estimate_job({.optimizer = averaged}, {}, 1000).checkpoint_bytes, 12'000u);
}

// Once in all nodes, or once on each.
TEST(SubmitEstimate, DividesOptimizerStateAmongNodes) {
    const auto estimate = [](std::int64_t nodes, std::optional<ShardState> shards) {
        const JobPart part{.least_nodes = nodes, .tasks = nodes, .node_tasks = 1};
        return estimate_job({.virtual_ranks = 4, .shard_state = shards}, part, 1000);
    };
    const auto node_bytes = [&](std::int64_t nodes, std::optional<ShardState> shards) {
        return estimate(nodes, shards).node_memory_bytes;
    };
    EXPECT_EQ(estimate(4, {}).copy_bytes, 3000u);
    EXPECT_EQ(estimate(4, ShardState::node).copy_bytes, 12'000u);
    EXPECT_EQ(node_bytes(4, {}), node_bytes(4, ShardState::all));
    EXPECT_EQ(node_bytes(4, ShardState::node) - node_bytes(4, {}), 8000u - 2000u);
    EXPECT_EQ(node_bytes(1, ShardState::node), node_bytes(1, {}));
}

// A model of text has an embedding for each token and each place.
TEST(SubmitEstimate, LooksAtTheVocabularyAndTheLengthOfText) {
    Field tokens{.name = "tokens", .shape = {17}};
    tokens.class_counts.assign(12, 1);
    Manifest manifest{.name = "text", .uuid = "00000000-0000-8000-8000-000000000001"};
    manifest.writer = "test";
    manifest.row_order = "source";
    manifest.samples = manifest.block_rows = 4;
    manifest.fields = {tokens};
    manifest.shards = {{"a.h5", 5000, 4, 0, std::string(32, 'a'), {{100, 1, 7, "tokens"}}}};
    TempDir folder;
    write_file_atomically(folder.path() / manifest_name, manifest_text(manifest));
    const auto estimate = estimate_job({.data = folder.path(), .model = {"gpt"}}, {}, 0);
    EXPECT_EQ(estimate.parameters, 10'844'160u - (256 - 12 + 256 - 16) * 384);
}

}  // namespace
}  // namespace lockstep
