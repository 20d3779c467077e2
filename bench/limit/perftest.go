package limit

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/rdma/device"
)

// perftest measures RDMA with the programs of package perftest, whose two sides run on this machine. The time of an
// exchange is what its bytes take one way, and those of the answer the other way.
type perftest struct {
	host string // the address of the device that is written to
	spec Spec

	running context.Context // until close
	stop    context.CancelFunc
}

// Sizes at which the program changes that says what one way costs.
const (
	mostSent    = 1 << 10 // bytes in a message that travels with its head
	mostWritten = 8 << 20 // bytes whose single write takes so long that only the rate counts
)

func newPerftest(host string, s Spec) (*perftest, error) {
	for _, program := range []string{programSend, programWrite, programStream} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("the limit of RDMA is measured with package perftest, which is missing: apt-get install perftest: %w", err)
		}
	}
	p := &perftest{host: host, spec: s}
	p.running, p.stop = context.WithCancel(context.Background())
	return p, nil
}

func (p *perftest) close() { p.stop() }

// run measures count exchanges.
func (p *perftest) run(count int, took func(time.Duration)) error {
	push, err := p.oneWay(p.spec.Push, count)
	if err != nil {
		return err
	}
	pull := push
	if p.spec.Pull != p.spec.Push {
		if pull, err = p.oneWay(p.spec.Pull, count); err != nil {
			return err
		}
	}
	for i := range count {
		took(push[i] + pull[i])
	}
	return nil
}

// The programs of perftest.
const (
	programSend   = "ib_send_lat"
	programWrite  = "ib_write_lat"
	programStream = "ib_write_bw"
)

// Repetitions: the first of a program are slower, and it refuses less than five.
const (
	warmUps  = 2
	fewestOf = 5
)

// oneWay measures how long size bytes take one way, count times.
func (p *perftest) oneWay(size int64, count int) ([]time.Duration, error) {
	n := max(count+warmUps, fewestOf)
	switch {
	case size <= mostSent:
		all, err := p.each(programSend, size+p.spec.Head, n)
		return lastOf(all, count), err
	case size <= mostWritten:
		all, err := p.each(programWrite, size, n)
		return lastOf(all, count), err
	}
	out, err := p.pair(programStream, size, max(count, fewestOf))
	if err != nil {
		return nil, err
	}
	one, err := streamed(out, size)
	all := make([]time.Duration, count)
	for i := range all {
		all[i] = one
	}
	return all, err
}

func lastOf(all []time.Duration, n int) []time.Duration { return all[max(0, len(all)-n):] }

// each runs a program that reports every time.
func (p *perftest) each(program string, size int64, n int) ([]time.Duration, error) {
	for tries := 1; ; tries++ {
		out, err := p.pair(program, size, n+1, "--report-unsorted") // it reports the times between repetitions
		if err != nil {
			return nil, err
		}
		if tries == mostTries || !bytes.Contains(out, []byte("inf")) {
			return unsorted(program, out, n)
		}
	}
}

// mostTries is how often a program runs whose clock fails. It compares two clocks at its start, and writes infinite
// times where they disagree, as they do on a machine that is busy or emulated.
const mostTries = 20

var unsortedLine = regexp.MustCompile(`(?m)^\d+, ([0-9.]+)$`)

// unsorted reads the list of times in us, which ends with the -U option of perftest.
func unsorted(program string, out []byte, n int) ([]time.Duration, error) {
	var all []time.Duration
	for _, m := range unsortedLine.FindAllSubmatch(out, -1) {
		us, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return nil, errs.Invalid("%s: a time is not a number (got %q)", program, text.Cut(string(m[1])))
		}
		all = append(all, time.Duration(us*1e3))
	}
	if len(all) < n {
		return nil, errs.Invalid("%s: too few times (got %d, want %d)", program, len(all), n)
	}
	return all, nil
}

// streamed reads the line "bytes iterations peak average rate", whose average is in MiB/s.
func streamed(out []byte, size int64) (time.Duration, error) {
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != strconv.FormatInt(size, 10) {
			continue
		}
		rate, err := strconv.ParseFloat(f[3], 64)
		if err == nil && rate > 0 {
			return time.Duration(float64(size) / (rate * (1 << 20)) * 1e9), nil
		}
	}
	return 0, errs.Invalid("%s: no rate for %d bytes (got %q)", programStream, size, text.Cut(string(out)))
}

// The ports of rdma_cm are apart from those of TCP, and hardly anybody uses them.
const firstPort, lastPort = 20_000, 30_000

// pair runs both sides of a program, and returns what the connecting one writes.
func (p *perftest) pair(program string, size int64, n int, more ...string) ([]byte, error) {
	port := firstPort + rand.IntN(lastPort-firstPort)
	args := append([]string{"-R", "-F", "-s", strconv.FormatInt(size, 10), "-n", strconv.Itoa(n), "-p", strconv.Itoa(port)}, more...)
	ctx, stop := context.WithCancel(p.running)
	defer stop()
	listener := exec.CommandContext(ctx, program, args...)
	if err := listener.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { _ = listener.Wait(); close(ended) }()
	out, err := p.connect(ctx, ended, program, append(args, p.host))
	if err != nil {
		stop()
		return nil, cmp.Or(context.Cause(p.running), fmt.Errorf("%s: %w", program, err))
	}
	<-ended
	return out, nil
}

// connectTime is how long the listening side may take to start.
const connectTime = 20 * time.Second

// connect runs the connecting side, again and again until the other one listens.
func (p *perftest) connect(ctx context.Context, ended <-chan struct{}, program string, args []string) ([]byte, error) {
	for until := time.Now().Add(connectTime); ; {
		out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
		if err == nil {
			return out, nil
		}
		select {
		case <-ended:
			return nil, fmt.Errorf("%w: %s", err, text.Cut(lastLine(out)))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("no connection within %v: %w: %s", connectTime, err, text.Cut(lastLine(out)))
		}
	}
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// rdmaHost is the address of the first RDMA port that works. It is where servers listen first, too.
func rdmaHost() (string, error) {
	inventory, err := device.ThisMachine().Read()
	if err != nil {
		return "", err
	}
	found, err := inventory.Choose(device.Request{GIDIndex: device.AnyGID})
	if err != nil {
		return "", err
	}
	if len(found.Choices) == 0 {
		return "", errs.Invalid("the limit of RDMA: %s", found.Why(inventory))
	}
	return found.Choices[0].Source.String(), nil
}
