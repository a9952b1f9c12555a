// Two hosts on a cable in ns-3: TCP bulk, or 100 000 requests a second on UDP, each answered, or both at once.
// Usage: ns3 bulk|rr|both SIMULATED_SECONDS. Prints the packets that carried data and the CPU seconds they took.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

using namespace ns3;

static uint64_t g_packets = 0;

static void Answered(Ptr<const Packet>)
{
    g_packets += 2;
}

int main(int argc, char** argv)
{
    if (argc != 3)
    {
        return 2;
    }
    const bool bulk = std::strcmp(argv[1], "rr") != 0;
    const bool requests = std::strcmp(argv[1], "bulk") != 0;
    const double seconds = std::atof(argv[2]);
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(131072));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(131072));

    NodeContainer nodes;
    nodes.Create(2);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    link.SetChannelAttribute("Delay", StringValue("1us"));
    NetDeviceContainer devices = link.Install(nodes);
    InternetStackHelper stack;
    stack.Install(nodes);
    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    InetSocketAddress server(interfaces.GetAddress(1), 5001);
    InetSocketAddress any(Ipv4Address::GetAny(), 5001);

    ApplicationContainer sink;
    if (bulk)
    {
        PacketSinkHelper sinks("ns3::TcpSocketFactory", any);
        sink = sinks.Install(nodes.Get(1));
        BulkSendHelper senders("ns3::TcpSocketFactory", server);
        senders.SetAttribute("SendSize", UintegerValue(32768));
        senders.Install(nodes.Get(0));
    }
    if (requests)
    {
        UdpEchoServerHelper servers(5001);
        servers.Install(nodes.Get(1));
        UdpEchoClientHelper clients(interfaces.GetAddress(1), 5001);
        clients.SetAttribute("MaxPackets", UintegerValue(1u << 30));
        clients.SetAttribute("Interval", TimeValue(MicroSeconds(10)));
        clients.SetAttribute("PacketSize", UintegerValue(64));
        ApplicationContainer client = clients.Install(nodes.Get(0));
        client.Get(0)->TraceConnectWithoutContext("Rx", MakeCallback(&Answered));
    }
    Simulator::Stop(Seconds(seconds));
    const std::clock_t began = std::clock();
    Simulator::Run();
    const double took = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
    if (bulk)
    {
        g_packets += DynamicCast<PacketSink>(sink.Get(0))->GetTotalRx() / 1448;
    }
    std::printf("%llu %.6f\n", static_cast<unsigned long long>(g_packets), took);
    std::fflush(stdout);
    std::_Exit(0);
}
