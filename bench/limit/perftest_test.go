package limit

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What perftest 4.5 prints, shortened.
const (
	unsortedOutput = `---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
#, usec
1, 5121.93
2, 88.4472
3, 32
4, 25.7234
5, 24.2262
 100     5          24.2262        5121.93      32
`
	streamOutput = `---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 4194304    20               23.33              16.00  		   0.000005
`
)

// fakePerftest puts programs of that name on the path, which print what perftest prints.
func fakePerftest(t *testing.T, listener string) {
	t.Helper()
	dir := t.TempDir()
	outputs := map[string]string{programSend: unsortedOutput, programWrite: unsortedOutput, programStream: streamOutput}
	for program, out := range outputs {
		// The connecting side has the host as its last argument, and is the one whose output counts.
		text := "#!/bin/sh\n" +
			"for last; do :; done\nif [ \"$last\" = 10.0.0.1 ]\n" +
			"then cat <<'END'\n" + out + "END\nelse " + listener + "\nfi\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte(text), 0o755))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func perftestTimes(t *testing.T, push, pull int64, count int) (all []time.Duration, err error) {
	t.Helper()
	c, err := Connect(context.Background(), Spec{Kind: Perftest, Push: push, Pull: pull, Head: 90}, "10.0.0.1")
	require.NoError(t, err)
	defer c.Close()
	require.True(t, c.Apart())
	err = c.Run(count, func(d time.Duration) { all = append(all, d) })
	return all, err
}

// An exchange takes the time of its bytes one way and of the answer's the other way. The first times of a program do
// not count, since it has just started.
func TestPerftest(t *testing.T) {
	fakePerftest(t, "sleep 0.1")
	us := func(f float64) time.Duration { return time.Duration(f * 1e3) }
	all, err := perftestTimes(t, 8, 8, 3)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{us(64), us(51.4468), us(48.4524)}, all)
	all, err = perftestTimes(t, 4194304*4, 8, 1)
	require.ErrorContains(t, err, "no rate for 16777216 bytes", "the answer is for another size")
	require.Empty(t, all)
	all, err = perftestTimes(t, 8, 8, 30)
	require.ErrorContains(t, err, "ib_send_lat: too few times (got 5, want 32)")
	require.Empty(t, all)
}

func TestStreamed(t *testing.T) {
	one, err := streamed([]byte(streamOutput), 4<<20)
	require.NoError(t, err)
	require.Equal(t, 250*time.Millisecond, one)
}

// A listening side that fails ends the measurement, with what the program says.
func TestPerftestThatFails(t *testing.T) {
	fakePerftest(t, "echo no device; exit 1")
	program, err := exec.LookPath(programSend)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho Unable to find the device; exit 1\n"), 0o755))
	_, err = perftestTimes(t, 8, 8, 3)
	require.ErrorContains(t, err, "ib_send_lat: exit status 1: Unable to find the device")
}

func TestPerftestThatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Connect(context.Background(), Spec{Kind: Perftest, Push: 8, Pull: 8}, "10.0.0.1")
	require.ErrorContains(t, err, "apt-get install perftest")
}
