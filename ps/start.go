package ps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/tensor"
)

// Start makes a node with the settings s, joins the cluster and connects with the peers. It returns when all workers
// and servers have done so. The scheduler's Start returns when all have joined. Start waits for the others until ctx
// ends or STEPVAN_START_TIMEOUT has passed. Every few seconds it logs which instances are missing.
//
// After an error everything is closed. The errors are:
//   - a [stepvan.ConfigError] for each wrong setting, joined: each names the variable to change;
//   - [stepvan.ErrRemote]: the scheduler refused this node. The text has its reason;
//   - [stepvan.ErrPeerLost]: the instance that the error names died during the start;
//   - the error of ctx, or [context.DeadlineExceeded] after the start timeout. The text names the instances that are
//     missing.
func Start(ctx context.Context, s Settings, opts ...Option) (*Node, error) {
	o := collect(opts)
	warnings, refused := reach.Check(&s, o.network != nil, o.written)
	if err := errors.Join(s.Validate(), refused); err != nil {
		return nil, err
	}
	n, err := newNode(s, o, warnings)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.StartTimeout+reportTime(s.StartTimeout), errStartTimeout)
	defer cancel()
	defer context.AfterFunc(n.life.failed, cancel)()
	if err := n.start(ctx); err != nil {
		if errors.Is(err, stepvan.ErrPeerLost) || errors.Is(err, stepvan.ErrRemote) {
			n.awaitDeathReport() // a peer that left may have left because of another
		}
		n.abandon(cmp.Or(n.Err(), err))
		return nil, n.startError(ctx, err)
	}
	n.members[0].log.Info().Msgf("%s has started", n)
	return n, nil
}

// reportTime is how much longer than the start timeout a node waits for the scheduler. The timeout of the scheduler
// ends the start for all, with a text that says which instances are missing.
func reportTime(timeout time.Duration) time.Duration {
	return min(max(timeout/10, 250*time.Millisecond), 5*time.Second)
}

var errStartTimeout = errs.Late("the start timeout has passed", context.DeadlineExceeded)

// startError adds what ended the start from outside, if something did.
func (n *Node) startError(ctx context.Context, err error) error {
	if cause := n.Err(); cause != nil {
		return errs.Ended("start", cause)
	}
	said := startFailure(err)
	if errors.Is(context.Cause(ctx), errStartTimeout) && errors.Is(err, context.DeadlineExceeded) {
		if said != nil {
			err = said.Err
		}
		return fmt.Errorf("start: STEPVAN_START_TIMEOUT, %v, has passed: %w", n.settings.StartTimeout, err)
	}
	if said != nil {
		return said
	}
	return fmt.Errorf("start: %w", err)
}

// startFailure is what the scheduler says of a start that failed, with the instance that it is about. It is nil where
// err has another origin.
func startFailure(err error) *stepvan.OpError {
	var op *stepvan.OpError
	for errors.As(err, &op) {
		if op.Op == "start" {
			return op
		}
		err = op.Err
	}
	return nil
}

// StartFromEnv is [Start] with the settings of the environment. It logs a warning for each variable that looks wrong.
func StartFromEnv(ctx context.Context, opts ...Option) (*Node, error) {
	s, warnings, err := config.FromProcess()
	return startWith(ctx, s, warnings, err, append([]Option{ReadFrom(config.OfProcess)}, opts...))
}

// StartFrom is [StartFromEnv] with environ instead of the environment. Each entry is NAME=value. Of entries with the
// same name the last one counts.
func StartFrom(ctx context.Context, environ []string, opts ...Option) (*Node, error) {
	lookup := config.Lookup(environ)
	s, warnings, err := config.FromEnv(lookup, environ)
	return startWith(ctx, s, warnings, err, append([]Option{ReadFrom(lookup)}, opts...))
}

// startWith starts with what config has read of an environment.
func startWith(ctx context.Context, s Settings, warnings []config.Warning, err error, opts []Option) (*Node, error) {
	o := collect(opts)
	log := o.logger(&s)
	for _, w := range warnings {
		log.Warn().Msg(w.String())
	}
	if err != nil {
		return nil, err
	}
	return Start(ctx, s, opts...)
}

// StartAll starts several nodes in this process at once, and returns them in order. If one fails, StartAll ends all and
// returns the error of the first. RootPort may be 0 for all of them, if one is the scheduler. Then the scheduler takes
// a free port, and the others use it.
func StartAll(ctx context.Context, all []Settings, opts ...Option) ([]*Node, error) {
	nodes := make([]*Node, len(all))
	listening, port := context.WithCancel(context.Background())
	defer port()
	taken := 0
	g, ctx := errgroup.WithContext(ctx)
	for i, s := range all {
		g.Go(func() (err error) {
			more := opts
			switch {
			case s.Role == RoleScheduler:
				more = append(opts[:len(opts):len(opts)], alsoOnListen(func(p int) { taken = p; port() }))
			case s.RootPort == 0:
				select {
				case <-listening.Done():
				case <-ctx.Done():
					return ctx.Err()
				}
				s.RootPort = taken
			}
			nodes[i], err = Start(ctx, s, more...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		for _, n := range nodes {
			if n != nil {
				n.abandon(err)
			}
		}
		return nil, err
	}
	return nodes, nil
}

func alsoOnListen(f func(int)) Option {
	return func(o *options) {
		first := o.onListen
		o.onListen = func(port int) { first(port); f(port) }
	}
}

func newNode(s Settings, o options, warnings []config.Warning) (*Node, error) {
	n := &Node{settings: &s, options: o, starvedLines: newStarvedLines(), life: newLifecycle()}
	n.log = o.logger(&s)
	roles := []Role{s.Role}
	if s.Role == RoleJoint {
		roles = []Role{RoleWorker, RoleServer}
	}
	for _, r := range roles {
		n.members = append(n.members, newMember(n, r))
	}
	for _, w := range warnings {
		n.members[0].log.Warn().Msg(w.String())
	}
	var err error
	if n.placed, err = bindCores(&s, n.members[0].log); err != nil {
		return nil, err
	}
	n.memory, err = tensor.NewAllocator(tensor.Options{Name: "stepvan " + string(s.Role), HugePages: reach.HugePages(&s), Near: n.placed.near()})
	if err != nil {
		_ = n.placed.release()
	}
	return n, err
}

func (n *Node) start(ctx context.Context) error {
	tasks := make([]func(context.Context) error, len(n.members))
	for i, m := range n.members {
		if err := m.build(); err != nil {
			return err
		}
		tasks[i] = m.start
	}
	n.makeStorages()
	return n.inParallel(ctx, tasks...)
}
