package stress

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/ps"
)

var long = flag.Bool("long", false, "run every test with its full counts")

// jobEnv holds the job of a child process, as JSON.
const jobEnv = "STRESS_JOB"

// job is what a child process does; its settings are in its environment.
type job struct {
	Program string
	Work    work
	Peer    peerWork

	Logs     bool // what the node logs are events
	Restless bool // exchange without end, and take no orders
	Hasty    bool // of bulk: exit at the first loss

	Seed  uint64 // of the first damaged cluster
	Count int    // of damaged clusters

	Transport, Dir, Addr string // of a link server and its clients
}

// The kernel must not turn small pages of these processes into huge ones. It would fill what the
// heap has returned with memory again, and resident bytes would mean nothing.
func TestMain(m *testing.M) {
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "huge pages cannot be switched off:", err)
		os.Exit(2)
	}
	runtime.MemProfileRate = 0 // its tables would be counted
	text := os.Getenv(jobEnv)
	if text == "" {
		launch.Unignore()
		os.Exit(m.Run())
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", jobEnv, err)
		os.Exit(2)
	}
	c := &childProgram{job: j, report: writer(os.Stdout), commands: commands(os.Stdin)}
	ctx, cancel := context.WithTimeout(context.Background(), childBound)
	defer cancel()
	if err := c.runProgram(ctx); err != nil {
		c.report(event{Kind: evWrong, Text: err.Error()})
		os.Exit(1)
	}
}

// childBound is the limit of a child's life when its parent does not end it.
const childBound = 45 * time.Minute

// childProgram runs the program of a child process.
type childProgram struct {
	job      job
	report   sink
	commands <-chan command
}

func (c *childProgram) runProgram(ctx context.Context) error {
	programs := map[string]func(context.Context) error{
		"node": c.node, "host": c.host, "guest": c.guest, "link server": c.linkServer, "link client": c.linkClient, "launch": c.launch,
		"bulk": c.bulk, "damaged clusters": c.runDamagedClusters, "peer": c.peer,
	}
	p := programs[c.job.Program]
	if p == nil {
		return fmt.Errorf("there is no program %q", c.job.Program)
	}
	return p(ctx)
}

// node runs a node of the environment's settings. The node works until the stop command, until it
// has nothing left to do, or until the cluster is lost. Then it stops and reports what it has left
// behind.
func (c *childProgram) node(ctx context.Context) error {
	was, err := takeStock()
	if err != nil {
		return err
	}
	opts := []ps.Option{ps.OnListen(c.listening), ps.OnDead(c.dead)}
	if c.job.Logs {
		opts = append(opts, ps.WithLogger(zerolog.New(journal{c.report}).Level(zerolog.InfoLevel)))
	}
	n, err := ps.StartFromEnv(ctx, opts...)
	if err != nil {
		c.report(event{Kind: evEnded, Text: err.Error(), Leaks: was.leaks()})
		return nil
	}
	err = c.live(ctx, n)
	text := ""
	if err != nil {
		text = err.Error()
	}
	c.report(event{Kind: evEnded, Text: text, Leaks: was.leaks()})
	return nil
}

func (c *childProgram) listening(port int) { c.report(event{Kind: evPort, Count: port}) }

func (c *childProgram) dead(p ps.Peer, _ error) { c.report(event{Kind: evDead, Text: p.Name()}) }

// live is the life of a started node. It returns what Stop has said.
func (c *childProgram) live(ctx context.Context, n *ps.Node) error {
	working, rest := context.WithCancel(ctx)
	defer rest()
	e, err := c.newRoleProgram(working, n, rest)
	if err != nil {
		k := evWrong
		if errors.Is(err, stepvan.ErrPeerLost) {
			k = evLost
		}
		c.report(event{Kind: k, Text: "beginning: " + err.Error()})
		rest()
	}
	c.handleCommands(working, e)
	rest()
	c.report(event{Kind: evStopping})
	stopped := n.Stop(ctx)
	if err := e.close(); err != nil {
		c.report(event{Kind: evWrong, Text: fmt.Sprintf("%s: memory is still held after its end (%v): %v", n, stopped, err)})
	}
	return stopped
}

// roleProgram is the program of one role.
type roleProgram struct {
	do    func(command)
	close func() error // once the node has stopped
}

// newRoleProgram starts the program of the node's role. The program calls over when it has nothing
// left to do.
func (c *childProgram) newRoleProgram(ctx context.Context, n *ps.Node, over func()) (roleProgram, error) {
	e := roleProgram{func(command) {}, func() error { return nil }}
	var begin func()
	switch {
	case c.job.Work.Regions && n.Role() != ps.RoleScheduler:
		m := &mover{node: n, report: c.report, book: newBook(regionPiece)}
		e.do, begin = func(cmd command) { m.do(ctx, cmd) }, func() {}
	case n.Worker() != nil:
		a, err := newAsker(n, &c.job.Work, c.report)
		e = roleProgram{a.do, a.close}
		if err != nil {
			return e, err
		}
		begin = func() { a.start(ctx) }
	case n.Server() != nil:
		a, err := newAnswerer(n, &c.job.Work, c.report)
		e.close = a.close
		if err != nil {
			return e, err
		}
		begin = func() { a.start(ctx, over) }
	default: // the scheduler lives until all nodes have left
		c.report(event{Kind: evStarted})
		go func() {
			defer over()
			if err := n.Stop(ctx); err != nil && ctx.Err() == nil {
				c.report(event{Kind: evWrong, Text: "the scheduler's end: " + err.Error()})
			}
		}()
		return e, nil
	}
	// Every buffer is registered before the first push.
	if err := n.Barrier(ctx, ps.Servers|ps.Workers, true); err != nil {
		return e, err
	}
	c.report(event{Kind: evStarted, Text: used(n)})
	begin()
	if c.job.Restless {
		e.do(command{Do: doRun, Count: 1 << 40})
	}
	return e, nil
}

// used names the vans that carry the node's tensors: one, as a rule.
func used(n *ps.Node) string {
	var names []string
	for _, c := range n.Connections() {
		if !slices.Contains(names, c.Van) {
			names = append(names, c.Van)
		}
	}
	return strings.Join(names, ", ")
}

// handleCommands runs the parent's commands until the stop command, the end of the parent, or the
// end of ctx.
func (c *childProgram) handleCommands(ctx context.Context, e roleProgram) {
	if c.job.Restless {
		<-ctx.Done()
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case cmd, ok := <-c.commands:
			switch {
			case !ok || cmd.Do == doStop:
				return
			case cmd.Do == doSample:
				c.sample()
			default:
				e.do(cmd)
			}
		}
	}
}

func (c *childProgram) sample() {
	_, _ = examine() // the first time makes what the collector keeps
	v, err := examine()
	if err != nil {
		c.report(event{Kind: evWrong, Text: err.Error()})
		return
	}
	c.report(event{Kind: evSample, Vitals: &v})
}
