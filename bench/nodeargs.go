package bench

import (
	"context"
	"errors"
	"flag"
	"io"
	"strconv"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/ps"
)

// nodeArgs are the arguments that Run adds to the command line of a process. Everything else comes
// from the environment or over the control connection.
type nodeArgs struct {
	Control string // path of the coordinator's socket; "": exchange once and stop
	Bare    bool   // end at once
	Pin     int    // core, from 1; 0: any
	Agent   string // path of the socket of an agent, of which the process is a client; "": it is a node
	Sends   bool   // the client sends
	Inside  string // folder of the control group in which to execute Command; "": none
	Command []string
}

func (a nodeArgs) list() []string {
	args := []string{"--control=" + a.Control}
	if a.Bare {
		args = append(args, "--bare")
	}
	if a.Pin > 0 {
		args = append(args, "--pin="+strconv.Itoa(a.Pin))
	}
	if a.Agent != "" {
		args = append(args, "--agent="+a.Agent, "--sends="+strconv.FormatBool(a.Sends))
	}
	if a.Inside != "" {
		args = append(args, "--inside="+a.Inside, "--")
	}
	return append(args, a.Command...)
}

func parseNodeArgs(args []string) (a nodeArgs, err error) {
	f := flag.NewFlagSet("node", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&a.Control, "control", "", "")
	f.BoolVar(&a.Bare, "bare", false, "")
	f.IntVar(&a.Pin, "pin", 0, "")
	f.StringVar(&a.Agent, "agent", "", "")
	f.BoolVar(&a.Sends, "sends", false, "")
	f.StringVar(&a.Inside, "inside", "", "")
	err = f.Parse(args)
	if f.NArg() > 0 {
		a.Command = f.Args()
	}
	if err != nil || (a.Inside == "") != (a.Command == nil) {
		return a, errs.Invalid("arguments %q of a node: only `stepvan bench` starts this command", args)
	}
	return a, nil
}

// Node is the program of a process: a client of the tensor bus, or else the node that the environment says. args are
// those that Run added to Options.Node.
func Node(ctx context.Context, args []string) error {
	a, err := parseNodeArgs(args)
	if err != nil || a.Bare {
		return err
	}
	if a.Inside != "" {
		return executeInside(a.Inside, a.Command)
	}
	if a.Pin > 0 {
		if err := pinProcess(a.Pin - 1); err != nil {
			return err
		}
	}
	if a.Agent != "" {
		return runBusClient(ctx, a.Agent, a.Sends)
	}
	node, err := ps.StartFromEnv(ctx)
	if err != nil {
		return err
	}
	switch {
	case node.Role() == stepvan.RoleScheduler:
		return node.Stop(ctx)
	case a.Control == "":
		return errors.Join(exchangeOnce(ctx, node), node.Stop(ctx))
	}
	return runNode(ctx, node, a.Control)
}
