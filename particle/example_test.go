package particle_test

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan/particle"
	"github.com/stepvan/stepvan/ps"
)

// Two particles live at different peers. The first one asks the second one before it answers.
func Example() {
	ctx := context.Background()
	s := ps.DefaultSettings()
	s.NumWorker, s.NumServer, s.NumPeer, s.RootURI = 0, 0, 2, "127.0.0.1"
	var all []ps.Settings
	for i, role := range []ps.Role{ps.RoleScheduler, ps.RolePeer, ps.RolePeer} {
		s.Role, s.NodeRank = role, max(0, i-1)
		all = append(all, s)
	}
	nodes, err := ps.StartAll(ctx, all, ps.WithNetwork(ps.NewNetwork()))
	if err != nil {
		fmt.Println(err)
		return
	}
	var loops []*particle.Loop
	for _, n := range nodes[1:] {
		l, err := particle.Open(n.Peer(), particle.Options{Memory: n.Memory()})
		if err != nil {
			fmt.Println(err)
			return
		}
		loops = append(loops, l)
	}
	for rank := range loops { // the first loop is the driver
		id, created, err := loops[0].Create(ps.Rank(rank), 0)
		if err == nil {
			_, err = created.Wait(ctx)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = loops[rank].Handle(id, "ask", func(c *particle.Call, _ particle.Value) (particle.Value, error) {
			f, err := c.Send(1, "name", particle.Value{})
			if err == nil {
				err = c.Wait(c.Context(), f) // its device continues meanwhile
			}
			if err != nil {
				return particle.Value{}, err
			}
			v, err := f.Result()
			return particle.Value{Data: append([]byte("it is "), v.Data...)}, err
		})
		_ = loops[rank].Handle(id, "name", func(c *particle.Call, _ particle.Value) (particle.Value, error) {
			return particle.Value{Data: fmt.Appendf(nil, "particle %d", c.Particle())}, nil
		})
	}
	f, err := loops[0].Send(particle.None, 0, "ask", particle.Value{})
	if err != nil {
		fmt.Println(err)
		return
	}
	v, err := f.Wait(ctx)
	fmt.Println(string(v.Data), err)
	for _, l := range loops {
		_ = l.Close(ctx)
	}
	for _, n := range nodes {
		_ = n.Close()
	}
	// Output: it is particle 1 <nil>
}
