package device

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCountersOfPorts(t *testing.T) {
	m := twoRails(t)
	dir := "sys/devices/" + nic0 + "/infiniband/mlx5_0/ports/"
	for name, text := range map[string]string{
		"1/hw_counters/out_of_sequence": "3", "1/hw_counters/rnr_nak_retry_err": "0", "1/hw_counters/lifespan": "12",
		"1/hw_counters/np_cnp_sent": "18446744073709551615", "1/hw_counters/rx_write_requests": "77", "1/hw_counters/odd": "none",
		"1/counters/link_downed": "1", "x/hw_counters/out_of_sequence": "4",
	} {
		m.Write(dir+name, text)
	}
	got := m.machine().Counters("mlx5_0")
	require.Equal(t, []PortCounters{{Device: "mlx5_0", Port: 1, List: []Counter{
		{"link_downed", 1}, {"np_cnp_sent", 18446744073709551615}, {"out_of_sequence", 3}, {"rnr_nak_retry_err", 0}, {"rx_write_requests", 77},
	}}}, got)
	require.Equal(t, "mlx5_0 port 1: link_downed 1, np_cnp_sent 18446744073709551615, out_of_sequence 3", got[0].String())

	quiet := m.machine().Counters("mlx5_2")
	require.Len(t, quiet, 1)
	require.Equal(t, "mlx5_2 port 1: no retries, losses or congestion", quiet[0].String())
	require.Empty(t, m.machine().Counters("gone"))
}

// The names that drivers give to what the counters are read for.
func TestCountersOfTrouble(t *testing.T) {
	for _, name := range []string{
		"local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "rnr_nak_retry_err", "roce_adp_retrans", "roce_slow_restart",
		"rp_cnp_handled", "np_ecn_marked_roce_packets", "rx_icrc_encapsulated", // mlx5
		"completer_retry_err", "out_of_seq_request", "rcvd_rnr_err", "retry_exceeded_err", "send_err", "link_downed", // rxe
		"port_xmit_discards", "port_rcv_errors", // InfiniBand
	} {
		require.Equal(t, name != "rx_icrc_encapsulated", Counter{Name: name}.Trouble(), name)
	}
	for _, name := range []string{"sent_pkts", "rcvd_pkts", "rdma_sends", "ack_deferred", "rx_write_requests", "lifespan"} {
		require.False(t, Counter{Name: name}.Trouble(), name)
	}
}
