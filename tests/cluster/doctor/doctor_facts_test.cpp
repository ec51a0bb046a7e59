// SPDX-License-Identifier: Apache-2.0

#include "lockstep/cluster/doctor.hpp"

#include "cluster/placement/placement_cases.hpp"
#include "support/unit.hpp"

#include <chrono>

#include <unistd.h>

namespace lockstep {
namespace {

class DoctorFactsTest : public testing::Test {
  protected:
    DoctorFactsTest() {
        node_.host = "n1";
        node_.allowed_cpus = {4, 5};
    }

    DoctorFacts facts(std::map<std::string, std::string> variables = {}) const {
        return read_doctor_facts({.root = root_.path(), .environment = Environment(variables)},
                                 node_);
    }

    void process(const std::string& pid, const std::string& name, int parent) {
        root_.file("proc/" + pid + "/stat",
                   "1 (" + name + ") S " + std::to_string(parent) + " 1 1 0\n");
    }

    /// A bridge's configuration space with one extended capability, ACS, at 100h.
    void bridge(const std::string& address, char control) {
        std::string config(4096, '\0');
        config[0x100] = 0x0d;
        config[0x106] = control;
        root_.file("sys/bus/pci/devices/" + address + "/config", config);
    }

    TempDir root_;
    NodeTopology node_;
};

TEST_F(DoctorFactsTest, AreEmptyWhereNothingIsThere) {
    const DoctorFacts none = facts();
    EXPECT_THAT(none.environment, IsEmpty());
    EXPECT_THAT(none.program.ancestors, IsEmpty());
    EXPECT_FALSE(none.shared_memory.exists);
    EXPECT_EQ(none.system.redirects_pci, std::nullopt);
    EXPECT_EQ(none.system.ras_port_owner, std::nullopt);
}

TEST_F(DoctorFactsTest, TakeOnlyVariablesThatChecksLookAt) {
    const auto read = facts({{"SECRET_TOKEN", "x"}, {"NCCL_DEBUG", "INFO"}, {"PMIX_RANK", "0"}});
    EXPECT_THAT(read.environment, ElementsAre(Pair("NCCL_DEBUG", "INFO"), Pair("PMIX_RANK", "0")));
}

TEST_F(DoctorFactsTest, FindMpiAndNcclAmongMappedFiles) {
    root_.file("proc/self/maps",
               "7f-8f r-xp 0 08:01 1 /usr/lib/libmpi.so.40.30.4\n"
               "8f-9f rw-p 0 08:01 1 /usr/lib/libmpi.so.40.30.4\n"
               "9f-af r-xp 0 08:01 2 /opt/mpich/lib/libmpi.so.12\n"
               "bf-cf r-xp 0 08:01 3 /opt/nccl/libnccl.so.2.28.9\n"
               "cf-df r-xp 0 08:01 4 /usr/lib/libmpi_cxx.so.40\n");
    EXPECT_THAT(facts().program.mpi_libraries,
                ElementsAre("/usr/lib/libmpi.so.40.30.4", "/opt/mpich/lib/libmpi.so.12"));
    EXPECT_EQ(facts().program.nccl_version, "2.28.9");
}

TEST_F(DoctorFactsTest, NameWhoStartedThisProcess) {
    process("self", "lockstep", 30);
    process("30", "a (strange) name", 20);
    process("20", "mpirun", 1);
    std::filesystem::create_symlink("/usr/bin/orterun", root_ / "proc/20/exe");
    EXPECT_THAT(facts().program.ancestors, ElementsAre("a (strange) name", "/usr/bin/orterun"));
}

TEST_F(DoctorFactsTest, ReadSystemFiles) {
    root_.file("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 n1.site n1 # Debian's\n10.0.0.1 n2\n");
    root_.file("etc/systemd/logind.conf.d/site.conf", "[Login]\nRemoveIPC=yes\n");
    root_.file("etc/nccl.conf", "NCCL_DEBUG=WARN\n");
    root_.file("proc/sys/vm/overcommit_memory", "2\n");
    root_.file("sys/devices/system/cpu/cpu4/cpufreq/scaling_cur_freq", "800000\n");
    root_.file("sys/devices/system/cpu/cpu4/cpufreq/cpuinfo_max_freq", "3000000\n");
    root_.file(
        "proc/net/tcp",
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        "   0: 0100007F:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1234 0\n");
    const SystemFacts system = facts().system;
    EXPECT_THAT(system.host_addresses, ElementsAre("127.0.1.1"));
    EXPECT_TRUE(system.removes_ipc);
    EXPECT_THAT(system.nccl_files, ElementsAre("/etc/nccl.conf"));
    EXPECT_EQ(system.overcommit, 2);
    EXPECT_THAT(system.frequency_khz, Optional(800000u));
    EXPECT_THAT(system.max_frequency_khz, Optional(3000000u));
    EXPECT_THAT(system.ras_port_owner, Optional(1234u));
}

TEST_F(DoctorFactsTest, CountBusyTimeOfTheCpusInQuestion) {
    root_.file("proc/stat",
               "cpu  999 999 999 999 999 999 999 999 0 0\n"
               "cpu0 100 20 30 4000 50 6 7 80 90 0\n"
               "cpu1 1 1 1 1 1 1 1 1 1 1\n"
               "cpu2 50 0 50 4000 0 0 0 0 0 0\n"
               "intr 12345\n");
    const CpuTime time = read_cpu_time({0, 2}, root_.path());
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    EXPECT_DOUBLE_EQ(time.busy_s * ticks, 343);
    EXPECT_DOUBLE_EQ(time.stolen_s * ticks, 80);
    EXPECT_EQ(read_cpu_time({0}, root_ / "none").busy_s, 0);
}

TEST_F(DoctorFactsTest, CountPortErrors) {
    root_.file("sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "4\n");
    root_.file("sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err", "0\n");
    EXPECT_THAT(read_port_errors(root_.path()),
                ElementsAre(Pair("mlx5_0:1 packet_seq_err", 0), Pair("mlx5_0:1 symbol_error", 4)));
}

TEST_F(DoctorFactsTest, ReadWhetherSwitchesRedirect) {
    node_.gpus.resize(1);
    node_.gpus[0].pci.path = "pci0000:00/0000:00:01.0/0000:01:00.0";
    bridge("0000:00:01.0", 0x10);  // upstream forwarding alone
    EXPECT_THAT(facts().system.redirects_pci, Optional(false));
    bridge("0000:00:01.0", 0x1c);
    EXPECT_THAT(facts().system.redirects_pci, Optional(true));
    root_.file("sys/bus/pci/devices/0000:00:01.0/config", std::string(64, '\0'));  // not root's
    EXPECT_EQ(facts().system.redirects_pci, std::nullopt);
}

TEST_F(DoctorFactsTest, FindSharedFilesThatNobodyMaps) {
    const auto hours_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(3);
    for (const char* name :
         {"vader_segment.a", "nccl-mapped", "mine-of-another-kind", "torch_new"}) {
        const auto file = root_.file(std::filesystem::path("dev/shm") / name, "x");
        if (std::string(name) != "torch_new") std::filesystem::last_write_time(file, hours_ago);
    }
    root_.file("proc/17/maps", "7f-8f rw-s 0 00:19 1 /dev/shm/nccl-mapped\n");
    EXPECT_THAT(facts().system.stale_shared_files, ElementsAre("vader_segment.a"));
}

TEST_F(DoctorFactsTest, LookAtFolders) {
    root_.file("scratch/x", "");
    const auto here = facts({{"TMPDIR", "/scratch"}}).temporary_folder;
    EXPECT_TRUE(here.exists);
    EXPECT_TRUE(here.is_writable);
    EXPECT_GT(here.inode, 0u);
    EXPECT_TRUE(here.free_bytes.has_value());
    EXPECT_FALSE(here.holds_run);
    const auto missing = facts({{"TMPDIR", "/scratch/a/b"}}).temporary_folder;
    EXPECT_FALSE(missing.exists);
    EXPECT_EQ(missing.inode, here.inode) << "that of the folder above";
    root_.file("scratch/run.json", "{}");
    EXPECT_TRUE(facts({{"TMPDIR", "/scratch"}}).temporary_folder.holds_run);
    EXPECT_FALSE(facts({{"TMPDIR", "/nowhere"}}).temporary_folder.exists);
}

TEST_F(DoctorFactsTest, ComeBackFromTheirText) {
    DoctorFacts all = facts({{"NCCL_DEBUG", "INFO"}});
    all.rank = 3;
    all.size = all.local_size = 8;
    all.plan = {4, true, true, 1, 2, 3.5, "runs/a"};
    all.program.thread_level = 0;
    all.program.cuda_driver = 12040;
    all.program.missing_for_gpus = {{"NCCL", "why", "fix"}};
    all.system.errors_moved = {{"mlx5_0:1 symbol_error", 3}};
    all.system.redirects_pci = false;
    all.network = {-0.5, 2, {{"b", "10.0.0.2", "refused"}}, {"c"}};
    all.self_test = {{{"ring float", 3, 1}}, 2e9, {{8, 1e9}}, 0.5, 0.25, 64, "abc", 1, {0.5, 0.25}};
    all.node = test::node_of("dgx");
    EXPECT_EQ(deserialize<DoctorFacts>(serialize(all), "facts"), all);
}

TEST(DoctorFactsText, IsRefusedWhereItMakesNoSense) {
    EXPECT_EQ(caught_code([] { deserialize<DoctorFacts>("{\"rank\": \"one\"}", "facts"); }),
              "E222");
    EXPECT_EQ(caught_code([] { deserialize<DoctorFacts>("[1", "facts"); }), "E222");
}

TEST(PmixErrors, AreFoundOnceEach) {
    EXPECT_THAT(pmix_errors_in("fine\n[a:1] PMIX ERROR: OUT-OF-RESOURCE in file gds_ds12_lock.c\n"
                               "[a:1] PMIX ERROR: OUT-OF-RESOURCE in file gds_ds12_lock.c\nfine\n"),
                ElementsAre(HasSubstr("gds_ds12_lock")));
}

NetworkInterface interface_of(const std::string& name,
                              InterfaceKind kind,
                              std::vector<std::string> addresses,
                              const std::string& state = "up") {
    return {.name = name, .state = state, .addresses = std::move(addresses), .kind = kind};
}

TEST(HostAddresses, LeaveOutWhatCannotJoinNodesAndSayWhy) {
    NodeTopology node;
    node.interfaces = {interface_of("br-12", InterfaceKind::bridge, {"172.18.0.1/16"}),
                       interface_of("docker0", InterfaceKind::docker, {"172.17.0.1/16"}),
                       interface_of("eth0", InterfaceKind::veth, {"10.0.0.7/24", "fe80::1/64"}),
                       interface_of("eth1", InterfaceKind::ethernet, {"10.1.0.7/24"}, "down"),
                       interface_of("eth2", InterfaceKind::ethernet, {"169.254.0.3/16"}),
                       interface_of("ib0", InterfaceKind::infiniband, {"fd00:1::7/64"}),
                       interface_of("lo", InterfaceKind::loopback, {"127.0.0.1/8"}),
                       interface_of("virbr0", InterfaceKind::bridge, {"192.168.122.1/24"})};
    const HostAddresses chosen = addresses_of(node);
    EXPECT_THAT(chosen.usable,
                ElementsAre(HostAddress{"eth0", "10.0.0.7", "10.0.0.0/24"},
                            HostAddress{"ib0", "fd00:1::7", "fd00:1::/64"}));
    EXPECT_THAT(chosen.left_out,
                UnorderedElementsAre(LeftOutInterface{"br-12", "a bridge for containers"},
                                     LeftOutInterface{"docker0", "a bridge for containers"},
                                     LeftOutInterface{"eth1", "down"},
                                     LeftOutInterface{"eth2", "link-local addresses only"},
                                     LeftOutInterface{"lo", "loopback"},
                                     LeftOutInterface{"virbr0", "a bridge for virtual machines"}));
}

TEST(HostAddresses, AreInNetworks) {
    EXPECT_THAT(network_of("10.77.3.9/20"), Optional(std::string("10.77.0.0/20")));
    EXPECT_THAT(network_of("10.77.3.9/0"), Optional(std::string("0.0.0.0/0")));
    for (const char* bad : {"10.0.0.1", "10.0.0/24", "10.0.0.1/33", "x/8", "10.0.0.1/x"})
        EXPECT_EQ(network_of(bad), std::nullopt) << bad;
}

TEST(HostAddresses, ShareNetworks) {
    NodeTopology a, b;
    a.interfaces = {interface_of("eth0", InterfaceKind::ethernet, {"10.0.0.1/24", "10.9.0.1/24"})};
    b.interfaces = {interface_of("ens3", InterfaceKind::ethernet, {"10.0.0.2/24"})};
    const std::vector<const NodeTopology*> nodes{&a, &b};
    EXPECT_THAT(shared_networks(nodes), ElementsAre("10.0.0.0/24"));
}

}  // namespace
}  // namespace lockstep
