// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/split.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string plain =
    "#!/usr/bin/env bash\n# what it is\n#SBATCH --job-name=a  # a comment\n"
    "#SBATCH -N 2 --ntasks-per-node=2\n#SBATCH --requeue\n. job.sh\n#SBATCH --mem=1\n"
    "\nrun_ranks mpirun lockstep train --data \"$data\" \\\n    --run \"$run\"\nsettle \"$run\"\n";

TEST(JobTemplate, IsTakenApart) {
    const auto script = parse_template("x", plain);
    ASSERT_EQ(script.parts.size(), 1u);
    EXPECT_EQ(value_of(script.parts[0], "job-name"), "a");
    EXPECT_EQ(value_of(script.parts[0], "nodes"), "2");
    EXPECT_EQ(value_of(script.parts[0], "ntasks-per-node"), "2");
    EXPECT_EQ(value_of(script.parts[0], "requeue"), "");
    EXPECT_FALSE(value_of(script.parts[0], "mem").has_value()) << "sbatch stops at a command";
    EXPECT_EQ(script.head, "#!/usr/bin/env bash\n# what it is\n");
    EXPECT_EQ(launcher_of(script), Launcher::mpirun);
    const auto parts = parse_template("x", "#!/b\n#SBATCH -p a\n#SBATCH hetjob\n#SBATCH -p b\nx\n");
    ASSERT_EQ(parts.parts.size(), 2u);
    EXPECT_EQ(value_of(parts.parts[1], "partition"), "b");
}

TEST(JobTemplate, SaysWhetherItTrains) {
    EXPECT_TRUE(trains(parse_template("x", plain)));
    const auto with = [](const std::string& line) {
        return trains(parse_template("x", "#!/bin/bash\n#SBATCH -N1\n" + line + "\n"));
    };
    EXPECT_TRUE(with("srun  lockstep\ttrain --epochs 1"));
    EXPECT_FALSE(with("# then: lockstep train --data D"));
    EXPECT_FALSE(with("lockstep data pack train"));
}

TEST(JobTemplate, IsRefusedWithWindowsLineEndsOrWithoutItsMarks) {
    for (const std::string text : {"#!/bin/bash\r\n#SBATCH -N1\r\n",
                                   "#SBATCH -N1\n",
                                   "",
                                   "#!/bin/bash\necho\n",
                                   "#!/bin/bash\n#SBATCH nodes=2\n",
                                   "#!/bin/bash\n#SBATCH -Z 2\n"})
        EXPECT_EQ(test::caught_code([&] { parse_template("x", text); }), "E531") << text;
}

TEST(JobScript, HasTheNewOptionsAndTheOldBody) {
    auto script = parse_template("x", plain);
    set_option(script.parts[0], "nodes", "4");
    set_option(script.parts[0], "time", "01:00:00");
    const auto text = render_script(script, {.variables = {{"RUN", "runs/a b"}}, .words = {}});
    EXPECT_THAT(text, HasSubstr("#SBATCH --nodes=4\n"));
    EXPECT_THAT(text, Not(HasSubstr("-N 2")));
    EXPECT_THAT(text, HasSubstr("#SBATCH --time=01:00:00\nexport RUN='runs/a b'\n. job.sh"));
    EXPECT_THAT(text, testing::EndsWith(script.body));
    EXPECT_EQ(parse_template("y", text).parts[0].size(), script.parts[0].size());
}

TEST(JobScript, GivesEachTaskOfAnArrayItsOwnRunAndNumber) {
    auto script = parse_template("x", plain);
    set_option(script.parts[0], "array", "0-2");
    const auto text =
        render_script(script, {.variables = {{"RUN", "runs/a"}}, .words = {"--seed", "1%a0"}});
    EXPECT_THAT(text, HasSubstr("export RUN='runs/a'/task-\"$SLURM_ARRAY_TASK_ID\"\n"));
    EXPECT_THAT(text, HasSubstr("set -- '--seed' '1'\"$SLURM_ARRAY_TASK_ID\"'0'\n"));
}

// Whatever bash could make of them, it reads them back as they are. The file's last line is empty.
TEST(BashWord, CarriesAnyTextWithoutControlCharacters) {
    std::vector<std::string> texts = split(test::content_of(LOCKSTEP_STRANGE_TEXTS), '\n');
    texts.insert(texts.end(), {" ", "--", "%a", "< trace", "[a-z]", "^"});
    EXPECT_GE(texts.size(), 40u);
    for (const std::string& text : texts) {
        const auto echo =
            run_process({"bash",
                         "-c",
                         "cd / && set -- " + bash_word("a word", text) + " && printf '%s' \"$1\""});
        EXPECT_EQ(echo.output, text);
        EXPECT_EQ(echo.exit_code, 0) << text;
    }
    EXPECT_FALSE(fs::exists("/trace"));
    for (const std::string text : {"a\nb", "a\rb", "\x1b[2J", "\x7f", "\t"})
        EXPECT_EQ(test::caught_code([&] { bash_word("a word", text); }), "E532");
}

}  // namespace
}  // namespace lockstep
