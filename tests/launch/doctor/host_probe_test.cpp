// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/host_probe.hpp"

#include "support/unit.hpp"

namespace lockstep {
namespace {

HostProbe host(const std::string& name, const std::vector<std::string>& networks) {
    HostProbe probe{name, {}, {}};
    for (const std::string& network : networks)
        probe.own.usable.push_back(
            {"eth", network.substr(0, network.find_last_of('.') + 1) + name, network});
    probe.own.left_out.push_back({"lo", "loopback"});
    return probe;
}

constexpr const char *one = "10.0.1.0/24", *two = "10.0.2.0/24", *three = "10.0.3.0/24";

TEST(ChooseNetwork, TakesTheOneThatRoutesUseWhereItIsOpen) {
    const std::vector hosts{host("1", {one, two}), host("2", {two, one})};
    EXPECT_EQ(choose_network(hosts, two).network, two);
    EXPECT_EQ(choose_network(hosts, "").network, one);
    EXPECT_EQ(choose_network(hosts, three).network, one) << "not shared";
    EXPECT_EQ(choose_network(hosts, two).note, "network 10.0.2.0/24 joins 1, 2");
}

TEST(ChooseNetwork, LeavesOutWhatOneHostDoesNotReach) {
    std::vector hosts{host("1", {one, two}), host("2", {one, two, three}), host("3", {one, two})};
    hosts[2].unreached.push_back({"1", "10.0.1.1", "no answer in 2 s"});
    hosts[0].own.left_out.push_back({"docker0", "a bridge for containers"});
    const auto chosen = choose_network(hosts, one);
    EXPECT_EQ(chosen.network, two);
    EXPECT_EQ(chosen.note,
              "network 10.0.2.0/24 joins 1, 2, 3; left out: 10.0.1.0/24 (3 does not reach 1 "
              "(10.0.1.1): no answer in 2 s), 10.0.3.0/24 (1 is not in it), docker0 (a bridge for "
              "containers)");
}

TEST(ChooseNetwork, RefusesHostsThatNothingJoins) {
    std::vector hosts{host("1", {one}), host("2", {two})};
    hosts[1].own.left_out.push_back({"wg0", "a tunnel"});
    EXPECT_THAT(caught_text([&] { choose_network(hosts, one); }),
                has("E647: no network connects the hosts 1, 2",
                    "10.0.1.0/24 (2 is not in it)",
                    "wg0 (a tunnel)",
                    "export OMPI_MCA_btl_tcp_if_include=NETWORK"));
}

/// Host `name` in network `one` by interface "eth".
HostProbe host_with(const std::string& name, const std::vector<ProbedPort>& ports) {
    HostProbe probe = host(name, {one});
    probe.rdma_ports = ports;
    return probe;
}

const ProbedPort infiniband{"mlx5_0:1", "InfiniBand", "ib0"};
const ProbedPort roce{"mlx5_1:1", "Ethernet", "eth"};
const ProbedPort lone_roce{"mlx5_2:1", "Ethernet", "storage"};

TEST(ChooseNetwork, LetsRdmaThroughWhereAllHostsHaveIt) {
    const auto chosen = choose_network(
        std::vector{host_with("1", {infiniband, lone_roce}), host_with("2", {roce, infiniband})},
        "");
    EXPECT_TRUE(chosen.has_rdma);
    EXPECT_EQ(chosen.note,
              "network 10.0.1.0/24 joins 1, 2; MPI may use InfiniBand (1 mlx5_0:1, 2 mlx5_0:1)");
}

TEST(ChooseNetwork, TakesRoceOnlyInANetworkInWhichAllReachEachOther) {
    EXPECT_TRUE(
        choose_network(std::vector{host_with("1", {roce}), host_with("2", {roce})}, "").has_rdma);
    const auto lone =
        choose_network(std::vector{host_with("1", {roce}), host_with("2", {lone_roce})}, "");
    EXPECT_FALSE(lone.has_rdma);
    EXPECT_THAT(lone.note, HasSubstr("RDMA is left out: no InfiniBand on all hosts, nor RoCE"));
    EXPECT_FALSE(
        choose_network(std::vector{host_with("1", {roce}), host_with("2", {infiniband})}, "")
            .has_rdma);
}

TEST(ChooseNetwork, LeavesRdmaOutWhereAHostHasNone) {
    const auto chosen =
        choose_network(std::vector{host_with("1", {infiniband}), host_with("2", {})}, "");
    EXPECT_FALSE(chosen.has_rdma);
    EXPECT_THAT(chosen.note, HasSubstr("RDMA is left out: no active port on 2"));
    EXPECT_FALSE(choose_network(std::vector{host_with("1", {}), host_with("2", {})}, "").has_rdma);
}

TEST(AskHosts, HearsOfPortsAndOfNoneFromOlderPrograms) {
    const auto host = [](const std::string& ports) {
        return std::vector<std::string>{
            "sh",
            "-c",
            "echo 'lockstep-probe {\"offer\": \"\", \"addresses\": {\"usable\": [], "
            "\"left_out\": []}" +
                ports + "}'; read -r line; echo 'lockstep-probe {\"unreached\": []}'"};
    };
    const std::vector<std::string> names{"new", "old"};
    const auto hosts = ask_hosts(
        names,
        std::vector{host(R"(, "rdma_ports": [["mlx5_0:1", "InfiniBand", "ib0"]])"), host("")},
        20);
    EXPECT_EQ(hosts[0].rdma_ports, std::vector{infiniband});
    EXPECT_EQ(hosts[1].rdma_ports, std::vector<ProbedPort>());
}

TEST(AskHosts, GivesEachHostEveryonesOfferAndTakesItsWord) {
    const auto host = [](const char* address) {
        return std::vector<std::string>{
            "sh",
            "-c",
            std::string("echo welcome; echo 'lockstep-probe {\"offer\": \"") + address +
                "\", \"addresses\": {\"usable\": [[\"eth0\", \"" + address +
                "\", \"10.0.1.0/24\"]], \"left_out\": []}}'; read -r line; case $line in "
                "*10.0.1.1*10.0.1.2*) echo 'lockstep-probe {\"unreached\": [[\"h\", \"" +
                address + "\", \"no answer in 2 s\"]]}';; esac; read -r line"};
    };
    const std::vector<std::string> names{"one", "two"};
    const std::vector<std::vector<std::string>> commands{host("10.0.1.1"), host("10.0.1.2")};
    const auto hosts = ask_hosts(names, commands, 20);
    ASSERT_EQ(hosts.size(), 2u);
    EXPECT_EQ(hosts[1].name, "two");
    EXPECT_EQ(hosts[1].own.usable, (std::vector<HostAddress>{{"eth0", "10.0.1.2", "10.0.1.0/24"}}));
    EXPECT_EQ(hosts[1].unreached,
              (std::vector<UnreachedAddress>{{"h", "10.0.1.2", "no answer in 2 s"}}));
}

TEST(AskHosts, NamesTheOneThatDoesNotAnswerWithItsLastWords) {
    const std::vector<std::string> names{"n7"};
    const std::vector<std::vector<std::string>> commands{{"echo", "no route to n7"}};
    EXPECT_THAT(caught_text([&] { ask_hosts(names, commands, 20); }),
                has("E647: host 'n7' does not report", "no route to n7"));
    const std::vector<std::vector<std::string>> silent{{"sleep", "30"}};
    EXPECT_THAT(caught_text([&] { ask_hosts(names, silent, 0.1); }),
                HasSubstr("its last output: nothing"));
}

}  // namespace
}  // namespace lockstep
